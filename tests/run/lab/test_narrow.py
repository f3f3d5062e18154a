"""Too small an MTU: from what senders believe of their paths to the place."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric.clos import multiplane
from openmrc.fabric.places import ports
from openmrc.fabric.ways import routes
from openmrc.run.lab import narrow

FABRIC = multiplane(
    nics=12, planes=2, port_rate_bps=10**9, t0_down=4, t0_up=2, link_delay_ps=0, switch_delay_ps=0
)


def paths(pairs: list[tuple[int, int]]) -> np.ndarray:
    """The directed ports of all paths of these pairs of NICs, [n, hops]."""
    evs = [FABRIC.ev(plane, up) for plane in range(2) for up in range(2)]
    each = [(src, dst, ev) for src, dst in pairs for ev in evs]
    return routes(FABRIC, *np.array(each).T)


EVERY = paths([(src, dst) for src in range(12) for dst in range(12) if src // 4 != dst // 4])
RING = paths([(3, 4)])


def across(over: np.ndarray, *where: str) -> np.ndarray:
    """Which of these paths cross the places."""
    bad = np.concatenate([ports(FABRIC, place) for place in where])
    return np.asarray(np.isin(over, bad).any(axis=1))


def told(*where: str, over: np.ndarray = EVERY, lost: int = 4096, times: int = 4) -> list[str]:
    """The lines, if all paths across these places pass small packets and lose so much data."""
    return lines(over, np.where(across(over, *where), times, 0), lost)


def lines(
    over: np.ndarray, times: np.ndarray, lost: int = 4096, rested: int = 0, lossy: int = 0
) -> list[str]:
    """Narrow paths carried 9 packets, all others 90 but for the first ones, which rested since.
    So many of the others after those lost a packet, and delivered the next one.
    """
    sound = np.flatnonzero(times == 0)
    packets = np.where(times > 0, 9, 90)
    packets[sound[:rested]] = 9
    lost_bytes = np.where(times > 0, lost, 0)
    blamed = times > 0
    blamed[sound[rested : rested + lossy]] = True
    return narrow.lines(FABRIC, narrow.Paths(over, times, lost_bytes, packets, blamed), 120)


def words(place: str, n: int, lost: str = "4,096", of: int | None = None) -> str:
    return f"{place}: {n} of {of or n} paths pass 120 B and lose {lost} B of data: MTU?"


@pytest.mark.parametrize(
    ("place", "n"),
    [
        ("plane 1 t0 0 - t1 1", 64),
        ("plane 1 t0 0 > t1 1", 32),
        ("plane 1 t0 0 < t1 1", 32),
        ("nic 5 plane 0", 32),
        ("nic 5 plane 0 > t0", 16),
        ("nic 5 plane 0 < t0", 16),
        ("plane 0 t1 1", 96),
    ],
)
def test_the_place_is_named_with_its_direction_and_how_many_paths_say_so(
    place: str, n: int
) -> None:
    assert told(place) == [words(place, n)]


def test_each_of_several_places_is_named() -> None:
    found = told("plane 0 t0 0 > t1 0", "nic 6 plane 1", lost=1024)
    assert found == [words("nic 6 plane 1", 32, "1,024"), words("plane 0 t0 0 > t1 0", 32, "1,024")]


def test_what_the_same_paths_cross_cannot_be_told_apart() -> None:
    found = told("plane 1 t0 0 > t1 0", over=RING)
    assert found == [words("plane 1 t0 0 > t1 0 or plane 1 t0 1 < t1 0", 1)]


@pytest.mark.parametrize(("times", "is_said"), [(1, False), (3, False), (4, True), (100, True)])
def test_one_path_needs_sufficient_evidence_of_its_own(times: int, is_said: bool) -> None:
    assert bool(told("plane 1 t0 0 > t1 0", over=RING, times=times)) is is_said


def test_paths_of_one_place_are_sufficient_together() -> None:
    four = paths([(0, 4), (1, 5), (2, 6), (3, 7)])
    place = "plane 1 t0 0 > t1 0"
    assert told(place, over=four, times=1) == [
        words(f"{place} or plane 1 t0 1 < t1 0", 4),
    ]
    assert told(place, over=four[:8], times=1) == []


def test_a_path_that_rests_since_does_not_hide_the_place() -> None:
    crossing = across(EVERY, "plane 1 t0 0 > t1 1")
    order = np.argsort(~crossing, kind="stable")  # those across it first
    times = np.where(crossing, 4, 0)[order]
    times[:3] = 0
    found = lines(EVERY[order], times, rested=3)
    assert found == [words("plane 1 t0 0 > t1 1", 29, of=32)]


def test_a_path_that_still_carries_clears_all_it_crosses() -> None:
    """All uplinks of a T0 are bad: a NIC below it is not, for its neighbours reach it."""
    every = paths([(src, dst) for src in range(12) for dst in range(12) if src != dst])
    bad = across(every, "plane 1 t0 0 < t1 0", "plane 1 t0 0 < t1 1")
    found = lines(every, np.where(bad, 4, 0))
    assert found == [words("plane 1 t0 0 < t1 0", 32), words("plane 1 t0 0 < t1 1", 32)]


@pytest.mark.parametrize("lossy", [12, 32])
def test_where_packets_of_any_size_are_lost_it_is_no_mtu(lossy: int) -> None:
    """At a loss of one half a quarter of the paths have just passed a small packet and lost a
    larger one.
    """
    crossing = across(EVERY, "plane 1 t0 0 > t1 1")
    order = np.argsort(~crossing, kind="stable")
    times = np.zeros(len(EVERY), np.int64)
    times[:8] = 1
    assert lines(EVERY[order], times, lossy=lossy) == []


def test_a_host_that_stood_still_makes_no_place() -> None:
    """A few paths of a queue pair look narrow, and others across the same links carry on."""
    times = np.zeros(len(EVERY), np.int64)
    times[[2, 70, 130]] = 4
    assert lines(EVERY, times) == []


def test_a_plane_is_named_if_all_of_it_is_narrow() -> None:
    assert told("nic * plane 1") == [words("plane 1", 192)]


def test_without_narrow_paths_nothing_is_said() -> None:
    assert lines(EVERY, np.zeros(len(EVERY), np.int64)) == []
    assert lines(EVERY[:0], np.zeros(0, np.int64)) == []
