"""What arrived damaged, and what that says of the paths on which it came."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.fabric.ways import routes
from openmrc.ops.damage import Damaged, damaged

FABRIC = multiplane(16, 2, 100 * 10**9, 4, 4, 0, 0)
WAYS = routes(FABRIC, [1, 2, 1, 5], [9, 13, 9, 9], [FABRIC.ev(1, up) for up in (2, 2, 0, 3)])
LOST = np.array([10, 20, 5, 5])


def after(*rows: tuple[int, float, int]) -> Damaged:
    """So many packets arrived damaged at each NIC, on plane 1, in the bin of 10 us from then on."""
    ports = [int(np.flatnonzero(FABRIC.port_peer_nic == nic)[1]) for nic, *_ in rows]
    links = [(port, at, at + 10, n) for port, (_, at, n) in zip(ports, rows, strict=True)]
    kinds = {"port": pl.Int64, "from_us": pl.Float64, "until_us": pl.Float64, "damaged": pl.Int64}
    return damaged(FABRIC, pl.DataFrame(links, schema=kinds, orient="row"))


@pytest.mark.parametrize(
    ("arrived", "accused"),
    [
        (((9, 0.0, 20), (13, 0.0, 20)), True),
        (((9, 0.0, 15), (13, 0.0, 5)), True),  # half of all
        (((9, 0.0, 40),), True),
        (((9, 0.0, 19),), False),
        (((8, 0.0, 40),), False),  # elsewhere
        ((), False),
    ],
)
def test_paths_lost_damaged_packets_if_as_many_arrived_at_their_ends(
    arrived: tuple[tuple[int, float, int], ...], accused: bool
) -> None:
    assert after(*arrived).accuses(WAYS, LOST) == accused


def test_what_ended_elsewhere_is_not_behind_them() -> None:
    assert after((9, 0.0, 7), (9, 10.0, 2), (8, 0.0, 5)).behind(WAYS) == 9
    assert after((9, 0.0, 7), (13, 10.0, 2)).behind(WAYS[:1]) == 7


def test_what_one_place_damaged_accuses_no_other() -> None:
    found = after((9, 0.0, 40), (13, 0.0, 50))
    assert found.accuses(WAYS[:1], LOST[:1])
    rest = found.without(WAYS, LOST)
    assert not rest.accuses(WAYS[:1], LOST[:1])
    assert rest.behind(WAYS) == 10


def test_the_time_is_that_in_which_about_as_many_arrived_as_were_lost() -> None:
    found = after((9, 0.0, 1), (9, 20.0, 60), (13, 30.0, 60), (9, 90.0, 1), (8, 200.0, 100))
    begins = [0.0, 20.0, 30.0, 50.0]
    rows = pl.DataFrame({"from_us": begins, "lost": [4, 50, 50, 2], "sent": [100] * 4})
    assert found.span_us(WAYS, rows) == (20.0, 40.0)
    assert found.span_us(WAYS[1:2], rows) == (30.0, 40.0)
    assert after().span_us(WAYS, rows) is None
