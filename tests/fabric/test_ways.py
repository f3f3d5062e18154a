"""Routes of many EVs at once are those of `Fabric.route`."""

from __future__ import annotations

import pytest

from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.ways import routes

GBPS = 10**9


@pytest.mark.parametrize(
    "fabric",
    [
        multiplane(14, 2, GBPS, 4, 3, 0, 0),
        fat_tree(24, GBPS, 2, 3, 0, 0, tiers=3, t1_down=3, t1_up=2),
    ],
    ids=["two tiers", "three"],
)
def test_routes_are_those_of_the_fabric(fabric: Fabric) -> None:
    asked = [
        (src, dst, fabric.ev_of_path(src, dst, plane, index))
        for src in range(fabric.n_nics)
        for dst in range(0, fabric.n_nics, 3)
        if src != dst
        for plane in range(fabric.n_planes)
        for index in range(fabric.n_paths(src, dst, plane))
    ]
    found = routes(fabric, *zip(*asked, strict=True))
    assert [[p for p in row if p >= 0] for row in found.tolist()] == [
        fabric.route(*each) for each in asked
    ]
