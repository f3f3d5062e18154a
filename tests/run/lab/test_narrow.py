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
    return narrow.lines(FABRIC, narrow.Paths(over, narrow_bytes), 120)


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


def test_a_path_that_carried_its_data_before_does_not_hide_the_place() -> None:
    bad = np.where(np.isin(EVERY, ports(FABRIC, "plane 1 t0 0 > t1 1")).any(axis=1), 4096, 0)
    bad[np.flatnonzero(bad)[:3]] = 0  # and rests since
    found = narrow.lines(FABRIC, narrow.Paths(EVERY, bad), 120)
    assert found == [words("plane 1 t0 0 > t1 1", 29, of=32)]


def test_without_narrow_paths_nothing_is_said() -> None:
    assert narrow.lines(FABRIC, narrow.Paths(EVERY, np.zeros(len(EVERY), np.int64)), 120) == []
    assert narrow.lines(FABRIC, narrow.Paths(EVERY[:0], np.zeros(0, np.int64)), 120) == []
