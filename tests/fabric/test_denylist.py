"""Denylists: what a place closes, and whose paths that concerns."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.denylist import denied, entrances
from openmrc.fabric.places import links

GBPS = 10**9
TWO = multiplane(32, 8, 100 * GBPS, 4, 4, 10**6, 0)
THREE = fat_tree(64, 100 * GBPS, 4, 4, 10**6, 0, tiers=3)
BUNDLED = build("htsim", 4, 1, [Tier(2, 4, GBPS, 1, 0), Tier(2, 0, GBPS, 1, 0, bundle=2)])


def all_evs(fabric: Fabric, src: int, dst: int) -> list[int]:
    return [
        fabric.ev_of_path(src, dst, plane, index)
        for plane in range(fabric.n_planes)
        for index in range(fabric.n_paths(src, dst, plane))
    ]


def count(fabric: Fabric, where: str, src: int, dst: int) -> tuple[int, int]:
    """How many paths of all are denied."""
    evs = all_evs(fabric, src, dst)
    found = denied(fabric, entrances(fabric, where).targets, src, dst, evs)
    assert found.shape == (len(evs),)
    return int(found.sum()), len(evs)


@pytest.mark.parametrize(
    ("where", "src", "dst", "expected"),
    [
        ("plane 3", 0, 31, 4),
        ("plane *", 0, 31, 32),
        ("plane 3 t0 0", 0, 31, 4),
        ("plane 3 t0 7", 0, 31, 4),
        ("plane 3 t0 1", 0, 31, 0),
        ("plane 3 t1 2", 0, 31, 1),
        ("plane 3 t1 2", 0, 3, 0),
        ("plane 3 t0 0 - t1 2", 0, 31, 1),
        ("plane 3 t0 0 > t1 2", 0, 31, 1),
        ("plane 3 t0 0 < t1 2", 0, 31, 0),
        ("plane 3 t0 7 < t1 2", 0, 31, 1),
        ("plane 3 t0 0 - t1 *", 0, 3, 0),
        ("nic 0 plane 3", 0, 31, 4),
        ("nic 31 plane 3", 0, 31, 4),
        ("nic 31 plane 3 > t0", 0, 31, 0),
        ("nic 1 plane 3", 0, 31, 0),
    ],
)
def test_what_is_denied_in_two_tiers(where: str, src: int, dst: int, expected: int) -> None:
    """Eight planes of four paths each; below one T0 a path is a plane."""
    assert count(TWO, where, src, dst)[0] == expected


@pytest.mark.parametrize(
    ("where", "src", "dst", "expected"),
    [
        ("plane 0", 0, 63, 16),
        ("plane 0 t2 9", 0, 63, 1),
        ("plane 0 t1 2", 0, 63, 4),
        ("plane 0 t1 14", 0, 63, 4),
        ("plane 0 t1 2 - t2 9", 0, 63, 1),
        ("plane 0 t1 14 - t2 9", 0, 63, 1),
        ("plane 0 t1 6 - t2 9", 0, 63, 0),
        ("plane 0 t1 2", 0, 5, 1),
        ("plane 0 t2 *", 0, 5, 0),
    ],
)
def test_what_is_denied_in_three_tiers(where: str, src: int, dst: int, expected: int) -> None:
    """Sixteen paths through all tiers; four within a pod."""
    assert count(THREE, where, src, dst)[0] == expected


def test_one_of_two_parallel_links() -> None:
    """Four uplinks, two to each T1; downwards a path takes the parallel link of its own number."""
    for way in (">", "<", "-"):
        ends = "t0 0" if way == ">" else "t0 1"
        assert count(BUNDLED, f"plane 0 {ends} {way} t1 1 link 0", 0, 3) == (1, 4)
    assert count(BUNDLED, "plane 0 t0 0 - t1 1", 0, 3) == (2, 4)


@pytest.mark.parametrize("fabric", [TWO, THREE, BUNDLED], ids=["two", "three", "bundled"])
def test_it_is_the_route_that_decides(fabric: Fabric) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        src, dst = rng.choice(fabric.n_nics, 2, replace=False).tolist()
        ports = rng.choice(fabric.n_ports, 5)
        evs = all_evs(fabric, src, dst)
        expected = [not set(ports.tolist()).isdisjoint(fabric.route(src, dst, ev)) for ev in evs]
        assert denied(fabric, ports, src, dst, evs).tolist() == expected


def test_things_one_by_one() -> None:
    assert len(entrances(TWO, "plane *")) == 8
    assert len(entrances(TWO, "plane * t0 *")) == 64
    assert len(entrances(TWO, "plane 3 t0 5 - t1 *")) == 4
    one_way = links(TWO, "plane 3 t0 5 > t1 1").tolist()
    assert entrances(TWO, "plane 3 t0 5 > t1 1").targets.tolist() == one_way


@pytest.mark.parametrize(
    "where", ["plane 8", "plane 3 t0 8", "plane 3 t0 5 - t1 4", "nic 32 plane 1"]
)
def test_a_place_that_is_not_there_is_refused(where: str) -> None:
    with pytest.raises(InputError, match="there is no"):
        entrances(TWO, where)


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(
        InputError, match='nothing that can be denied; "plane 3", "plane 3 t0 5" or'
    ):
        entrances(TWO, "nic 3")
