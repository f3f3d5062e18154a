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


def told(*where: str, over: np.ndarray = EVERY, lost: int = 4096) -> list[str]:
    """The lines, if all paths that cross these directed ports lose packets with so much data."""
    bad = np.concatenate([ports(FABRIC, place) for place in where])
    narrow_bytes = np.where(np.isin(over, bad).any(axis=1), lost, 0)
    return lines(over, narrow_bytes)


def lines(over: np.ndarray, narrow_bytes: np.ndarray, rested: int = 0) -> list[str]:
    """Narrow paths carried 9 packets, all others 90 but for the first ones, which rested since."""
    packets = np.where(narrow_bytes > 0, 9, 90)
    packets[np.flatnonzero(narrow_bytes == 0)[:rested]] = 9
    return narrow.lines(FABRIC, narrow.Paths(over, narrow_bytes, packets), 120)


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


def test_a_path_that_rests_since_does_not_hide_the_place() -> None:
    across = np.isin(EVERY, ports(FABRIC, "plane 1 t0 0 > t1 1")).any(axis=1)
    order = np.argsort(~across, kind="stable")  # those across it first
    narrow_bytes = np.where(across, 4096, 0)[order]
    narrow_bytes[:3] = 0
    found = lines(EVERY[order], narrow_bytes, rested=3)
    assert found == [words("plane 1 t0 0 > t1 1", 29, of=32)]


def test_a_path_that_still_carries_clears_all_it_crosses() -> None:
    """All uplinks of a T0 are bad: a NIC below it is not, for its neighbours reach it."""
    every = paths([(src, dst) for src in range(12) for dst in range(12) if src != dst])
    bad = np.isin(every, ports(FABRIC, "plane 1 t0 0 < t1 0")).any(axis=1)
    bad |= np.isin(every, ports(FABRIC, "plane 1 t0 0 < t1 1")).any(axis=1)
    found = lines(every, np.where(bad, 4096, 0))
    assert found == [words("plane 1 t0 0 < t1 0", 32), words("plane 1 t0 0 < t1 1", 32)]


def test_what_no_place_explains_is_told_of_its_plane() -> None:
    narrow_bytes = np.where(np.arange(len(EVERY)) == 2, 4096, 0)
    twice = np.vstack([EVERY, EVERY])  # of two queue pairs, one of which carries on
    found = lines(twice, np.concatenate([narrow_bytes, 0 * narrow_bytes]))
    assert found == [words("plane 1", 1, of=len(EVERY))]


def test_without_narrow_paths_nothing_is_said() -> None:
    assert lines(EVERY, np.zeros(len(EVERY), np.int64)) == []
    assert lines(EVERY[:0], np.zeros(0, np.int64)) == []
