"""What is missing at switches, and what that says of places that may have lost it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.ops.balance import Missing, missing

FABRIC = multiplane(16, 2, 100 * 10**9, 4, 4, 0, 0)
WAY = FABRIC.route(1, 9, FABRIC.ev(1, 2))
FROM_NIC, UP, DOWN, TO_NIC = WAY
T0, T1, FAR_T0 = (int(FABRIC.port_peer_switch[port]) for port in WAY[:3])
LOST = 100


def after(sent: Sequence[int], dropped: int = 0) -> Missing:
    """What is missing if the four ports on the way from NIC 1 to NIC 9 send so many packets, and
    the second drops some.
    """
    drops = [0, dropped, 0, 0]
    links = {"port": list(WAY), "packets_out": list(sent), "dropped": drops}
    return missing(FABRIC, pl.DataFrame(links))


@pytest.mark.parametrize(
    ("sent", "switch"),
    [((1000, 900, 900, 900), T0), ((1000, 1000, 900, 900), T1), ((1000, 1000, 1000, 900), FAR_T0)],
)
def test_what_a_link_loses_is_missing_where_it_leads(sent: Sequence[int], switch: int) -> None:
    found = after(sent).packets
    assert found[switch] == LOST
    assert not np.delete(found, switch).any()


def test_what_is_lost_behind_the_last_switch_is_missing_nowhere() -> None:
    assert not after((1000, 1000, 1000, 1000)).packets.any()


def test_what_full_queues_drop_is_not_missing() -> None:
    assert not after([1000, 940, 940, 940], dropped=60).packets.any()


def test_of_two_links_the_one_is_accused_behind_which_as_much_is_missing() -> None:
    assert after((1000, 900, 900, 900)).one_of([FROM_NIC, TO_NIC], LOST, LOST) == FROM_NIC
    assert after((1000, 1000, 900, 900)).one_of([UP, DOWN], LOST, LOST) == UP
    assert after((1000, 1000, 1000, 900)).one_of([UP, DOWN], LOST, LOST) == DOWN


@pytest.mark.parametrize(
    ("sent", "candidates"),
    [
        ((1000, 1000, 1000, 1000), [FROM_NIC, TO_NIC]),  # it may be the second, or neither
        ((1000, 400, 400, 400), [FROM_NIC, TO_NIC]),  # something else lost more there
        ((1000, 1000, 900, 800), [UP, DOWN]),  # both
        ((1000, 1000, 900, 860), [UP, DOWN]),  # or maybe both
        ((1000, 1000, 900, 900), [UP, FABRIC.n_ports + T1]),  # a switch, or what leads to it
    ],
)
def test_where_more_than_one_place_may_have_lost_it_none_is_accused(
    sent: Sequence[int], candidates: list[int]
) -> None:
    assert after(sent).one_of(candidates, LOST, LOST) is None


def test_more_than_senders_know_may_be_missing_where_all_others_are_clear() -> None:
    assert after((1000, 1000, 400, 400)).one_of([UP, DOWN], LOST, LOST) == UP
    assert after((1000, 850, 850, 850)).one_of([FROM_NIC, TO_NIC], LOST // 2, LOST) == FROM_NIC


def test_a_link_between_switches_is_cleared_if_nothing_is_missing_at_either_end() -> None:
    assert after((1000, 1000, 1000, 1000)).clears(UP, LOST)
    assert not after((1000, 1000, 900, 900)).clears(UP, LOST)
    assert not after((1000, 900, 900, 900)).clears(UP, LOST)  # its port was down
    assert after((1000, 900, 900, 900)).clears(DOWN, LOST)
    assert not after((1000, 1000, 1000, 1000)).clears(TO_NIC, LOST)
    assert not after((1000, 1000, 1000, 1000)).clears(FROM_NIC, LOST)  # it may not have sent
    assert after((1000, 1000, 1000, 1000)).clears(FROM_NIC, LOST, one_by_one=True)
    assert not after((1000, 900, 900, 900)).clears(FROM_NIC, LOST, one_by_one=True)
    assert not after((1000, 1000, 1000, 1000)).clears(TO_NIC, LOST, one_by_one=True)


def test_what_one_place_lost_accuses_no_other() -> None:
    found = after((1000, 900, 900, 900))
    other = FABRIC.nic_port(2, 1)
    assert found.accuses(other, LOST)
    assert not found.without(FROM_NIC, LOST).accuses(other, LOST)
