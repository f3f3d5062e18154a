"""The most probable faults: what broke is named, and what did not is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric import multiplane
from openmrc.ops.diagnose.answer import places
from openmrc.ops.diagnose.components import table
from openmrc.ops.diagnose.observed import Observed
from openmrc.ops.diagnose.reading import joined, told_down
from openmrc.ops.diagnose.search import Search
from tests.ops.diagnose.made import (
    END_US,
    FABRIC,
    RTT_US,
    TABLE,
    Bad,
    component,
    seen,
    told,
)

SINCE_US, UNTIL_US = 50.0, 120.0


@pytest.mark.parametrize(
    "where",
    [
        "plane 1 t0 2 > t1 3",
        "plane 1 t0 2 - t1 3",
        "nic 5 plane 0 < t0",
        "nic 5",
        "plane 0 t0 1 transceiver 1",
        "plane 1 t1 2",
        "plane 0 t0 3",
        "plane 1 t1 *",
        "plane 1",
    ],
)
def test_what_let_nothing_through_is_named_with_its_times(where: str) -> None:
    (place,) = told(seen(Bad(component(where).ports)))
    assert where in (place.where, *place.one_of)
    assert place.dead
    assert place.since_us[0] <= SINCE_US <= place.since_us[1] + RTT_US
    assert place.until_us[0] - RTT_US <= UNTIL_US <= place.until_us[1]


@pytest.mark.parametrize(
    ("where", "every"),
    [
        ("plane 1 t0 2 > t1 3", 5),
        ("nic 5 plane 0 < t0", 20),
        ("plane 0 t0 1 transceiver 1", 20),
    ],
)
def test_what_lost_a_part_is_named_with_its_rate(where: str, every: int) -> None:
    (place,) = told(seen(Bad(component(where).gates, 10.0, END_US, every)))
    assert (place.where, place.one_of, place.dead) == (where, (), False)
    assert place.rate == pytest.approx(1 / every, rel=0.4)
    assert place.until_us[1] == np.inf


def test_what_loses_half_is_dead_only_if_senders_say_that_small_packets_pass() -> None:
    bad = seen(Bad(component("plane 0 t0 1 > t1 2").ports, every=2))
    (lossy,) = told(bad)
    paths = zip(bad.lost.qp.tolist(), bad.lost.ev.tolist(), strict=True)
    (narrow,) = told(replace(bad, narrow=frozenset(paths)))
    assert (lossy.where, lossy.dead, lossy.narrow) == ("plane 0 t0 1 > t1 2", False, False)
    assert (narrow.where, narrow.dead, narrow.narrow) == ("plane 0 t0 1 > t1 2", True, True)


def test_what_loses_in_both_directions_is_one_place() -> None:
    """Packets across a T1 cross two of its links."""
    (place,) = told(seen(Bad(component("plane 1 t1 2").ports, 10.0, END_US, 30)))
    assert "plane 1 t1 2" in (place.where, *place.one_of)
    assert not place.dead
    assert place.rate == pytest.approx(2 / 30, rel=0.25)  # what may be chance counts in part


def test_the_direction_of_a_nic_is_known_by_where_packets_are_missing() -> None:
    """Who sends to a NIC that gets them and answers in vain loses as many as if it got none, and so
    does the NIC; but a switch misses what it sends.
    """
    for way in "><":
        where = f"nic 5 plane 0 {way} t0"
        assert told(seen(Bad(component(where).ports)))[0].where == where


def test_what_loses_many_packets_at_a_time_is_named() -> None:
    """Four in a row now and then are no moments in which nothing passes."""
    nic = component("nic 5 plane 0 < t0")
    (place,) = told(seen(Bad(nic.ports, 10.0, END_US, 20), burst=4))
    assert (place.where, place.dead) == ("nic 5 plane 0 < t0", False)


@pytest.mark.parametrize("where", ["nic 5", "plane 0 t0 3"])
def test_what_died_early_in_a_long_tick_is_dead(where: str) -> None:
    """What a tick's packets need of a link's time may have been before: others went on."""
    (place,) = told(seen(Bad(component(where).ports, 20.0, 1e9), tick_us=5000.0))
    assert where in (place.where, *place.one_of)
    assert place.dead


def test_the_order_of_what_was_lost_says_nothing() -> None:
    observed = seen(Bad(component("plane 0 t0 1 transceiver 1").ports))
    order = np.random.default_rng(1).permutation(len(observed.lost))
    assert told(observed) == told(replace(observed, lost=observed.lost.take(order)))


def test_two_at_once_are_two() -> None:
    both = "plane 1 t0 2 > t1 3", "nic 9 plane 0 < t0"
    found = told(seen(*(Bad(component(where).ports) for where in both)))
    assert {place.where for place in found} == {*both}


def test_where_nothing_is_lost_nothing_broke() -> None:
    assert not told(seen())


def test_a_moment_in_which_a_nic_is_late_breaks_nothing() -> None:
    """Half of what it was judged to lose proved to be late, and no port misses the rest."""
    late = Bad(component("nic 5 plane * < t0").ports, 50.0, 62.0, late=True)
    observed = seen(late)
    assert len(observed.lost) > 20
    assert not told(observed)


def test_no_bound_is_below_what_a_component_is_worth() -> None:
    """Else the best one may not be looked at."""
    observed = seen(Bad(component("plane 1 t1 2").ports), Bad(component("nic 9 plane 0").ports))
    search = Search(observed, TABLE)
    for _ in range(3):
        search._look()
        bounds, stale = search._bounds(), search._stale.copy()
        search._fit(np.flatnonzero(stale).tolist())
        assert (bounds[stale] >= search._nats.max(axis=0)[stale] - 1e-6).all()
        fault = search.best()
        if fault is None:
            break
        search.add(fault)
    assert len({fault.component for fault in search.faults}) == 2


def test_the_worth_of_one_fault_is_what_it_was_found_to_explain() -> None:
    search = Search(_cut(), TABLE)
    fault = search.best()
    assert fault is not None
    search.add(fault)
    assert search.worth() == pytest.approx(fault.nats, rel=0.05)


def _cut() -> Observed:
    return seen(Bad(component("plane 1 t0 2 > t1 3").ports))


def test_a_port_that_goes_down_as_the_run_ends_is_named() -> None:
    """Its first and its last moment are one."""
    observed = seen()
    port = component("nic 5 plane 0 > t0").ports[0]
    end_us = float(observed.edges_us[-1])
    spans = [(it, end_us - 0.1, end_us) for it in (port, int(FABRIC.port_reverse[port]))]
    down = joined(observed.lost, told_down(FABRIC, spans, observed.lost))
    (one,) = told(replace(observed, lost=down))
    assert (one.where, one.since_us, one.downs) == ("nic 5 plane 0", (end_us - 0.1,) * 2, 1)


@pytest.mark.parametrize(
    ("nics", "where"), [((8, 9, 10, 11), "plane 1 t0 2 transceiver 0"), (range(16), "plane 1")]
)
def test_what_took_ports_down_is_what_has_these_and_no_others(
    nics: Sequence[int], where: str
) -> None:
    observed, known = seen(), TABLE.fabric
    own = [nic * known.n_planes + 1 for nic in nics]
    spans = [(it, 100.0, 150.0) for port in own for it in (port, int(known.port_reverse[port]))]
    lost = joined(observed.lost, told_down(known, spans, observed.lost))
    (place,) = told(replace(observed, lost=lost))
    assert (place.where, place.downs, place.since_us) == (where, 1, (100.0, 100.0))


def test_a_port_that_goes_down_in_a_silent_switch_does_not_date_it() -> None:
    observed, known = seen(Bad(component("plane 1 t0 2").ports)), TABLE.fabric
    port = 9 * known.n_planes + 1
    spans = [(it, 90.0, 110.0) for it in (port, int(known.port_reverse[port]))]
    lost = joined(observed.lost, told_down(known, spans, observed.lost))
    (place,) = [it for it in told(replace(observed, lost=lost)) if it.where == "plane 1 t0 2"]
    assert (place.downs, place.dead) == (0, True)
    assert place.since_us[1] < 60.0


def test_a_plane_that_dies_after_a_part_of_it_dies_once() -> None:
    observed, known = seen(), TABLE.fabric
    spans = [
        (way, 60.0 if nic in range(8, 12) else 100.0, 150.0)
        for nic in range(16)
        for port in (nic * known.n_planes + 1,)
        for way in (port, int(known.port_reverse[port]))
    ]
    lost = joined(observed.lost, told_down(known, spans, observed.lost))
    found = {(it.where, it.downs, it.since_us) for it in told(replace(observed, lost=lost))}
    assert found == {
        ("plane 1", 1, (100.0, 100.0)),
        ("plane 1 t0 2 transceiver 0", 1, (60.0, 60.0)),
    }


def test_a_port_that_was_down_in_a_silent_switch_is_told_beside_it() -> None:
    """What a port says of itself needs no loss, if others of the switch stayed up."""
    observed, known = seen(Bad(component("plane 1 t0 2").ports, 20.0)), TABLE.fabric
    port = 9 * known.n_planes + 1
    spans = [(it, 60.0, 90.0) for it in (port, int(known.port_reverse[port]))]
    lost = joined(observed.lost, told_down(known, spans, observed.lost))
    found = {it.where: it.downs for it in told(replace(observed, lost=lost))}
    assert found == {"plane 1 t0 2": 0, "nic 9 plane 1": 1}


def test_of_a_switch_that_is_not_all_down_a_transceiver_was() -> None:
    """Ports between switches are found down when they are read."""
    fabric = multiplane(32, 1, 100 * 10**9, 4, 4, 0, 0)
    where, rows = "plane 0 t1 2 transceiver 0", table(fabric)
    (half,) = (row for row in rows.rows if row.where == where)
    observed = seen(Bad(half.ports, 50.0, 120.0), fabric=fabric)
    spans = [(port, 60.0 - 1e-6, 120.0 - 1e-6) for port in half.ports]
    lost = joined(observed.lost, told_down(fabric, spans, observed.lost))
    down = np.zeros_like(observed.out)
    down[5:12, [*half.ports]] = 1
    search = Search(replace(observed, lost=lost, down=down), rows)
    search.search()
    (place,) = places(search)
    assert (place.where, place.downs) == (where, 1)
    assert place.since_us[0] <= SINCE_US <= place.since_us[1] + RTT_US
    assert place.until_us[0] <= UNTIL_US <= place.until_us[1]
