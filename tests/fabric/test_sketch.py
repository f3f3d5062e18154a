"""What a picture of a fabric shows of it: each link once, and no more lines than it bears."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric import Fabric, fat_tree, multiplane, places
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.sketch import LINES_MAX, sketch

GBPS = 10**9


def demo() -> Fabric:
    return multiplane(32, 4, 100 * GBPS, 8, 8, 10**6, 0)


def big() -> Fabric:
    return fat_tree(1024, 100 * GBPS, 8, 8, 10**6, 0, tiers=3)


def bundled() -> Fabric:
    t0 = Tier(down=2, up=2, rate_bps=200 * GBPS, link_delay_ps=1, switch_delay_ps=0)
    t1 = Tier(down=2, up=4, rate_bps=200 * GBPS, link_delay_ps=1, switch_delay_ps=0)
    t2 = Tier(0, 0, rate_bps=100 * GBPS, link_delay_ps=1, switch_delay_ps=0, bundle=2)
    return build("htsim", 8, 1, [t0, t1, t2])


def test_a_small_fabric_is_drawn_link_by_link() -> None:
    found = sketch(demo())
    assert set(found.row_joined) == {1}
    assert (found.row_members, found.row_nodes) == ((32, 4, 8), (32, 4, 8))
    assert len(found.edge_row) == 512  # 4 planes x (32 + 4 x 8) links, both directions
    assert found.edge_ports.tolist() == [1] * 512


@pytest.mark.parametrize("fabric", [demo(), big(), bundled()], ids=["demo", "big", "bundled"])
def test_every_port_lies_in_the_edge_between_its_own_nodes(fabric: Fabric) -> None:
    found = sketch(fabric)
    assert np.bincount(found.port_edge).tolist() == found.edge_ports.tolist()
    joined = found.row_joined
    for port in range(0, fabric.n_ports, 7):
        edge = found.port_edge[port]
        nic = int(fabric.port_nic[port])
        switch = int(fabric.port_switch[port])
        row = 0 if nic >= 0 else int(fabric.sw_tier[switch]) + 1
        node = (nic if nic >= 0 else int(fabric.sw_index[switch])) // joined[row]
        end = found.edge_upper if found.edge_down[edge] else found.edge_lower
        assert (int(found.edge_row[edge]) + bool(found.edge_down[edge]), end[edge]) == (row, node)
        back = found.port_edge[fabric.port_reverse[port]]
        assert found.edge_down[back] != found.edge_down[edge]
        assert found.edge_lower[back] == found.edge_lower[edge]
        assert found.edge_plane[back] == found.edge_plane[edge]


def test_parallel_links_are_one_line() -> None:
    found = sketch(bundled())
    upper = (found.edge_row == 1) & ~found.edge_down
    assert set(found.edge_ports[found.edge_row == 2].tolist()) == {2}
    assert upper.sum() == 8


def test_the_ways_up_come_before_the_ways_down_in_the_same_order() -> None:
    found = sketch(big())
    up, down = ~found.edge_down, found.edge_down
    for name in ("edge_plane", "edge_row", "edge_lower", "edge_upper", "edge_ports"):
        values = getattr(found, name)
        assert values[up].tolist() == values[down].tolist(), name


@pytest.mark.parametrize("lines", [1216 // 2, 1216 // 2 - 1, 64, LINES_MAX])
def test_neighbours_are_joined_until_the_lines_fit(lines: int) -> None:
    found = sketch(big(), lines)
    assert (~found.edge_down).sum() <= lines
    assert set(found.row_joined) != {1}
    assert found.edge_ports.sum() == big().n_ports


def test_three_tiers_of_1024_nics_make_608_lines() -> None:
    found = sketch(big())
    assert found.row_joined == (32, 4, 4, 2)
    assert (~found.edge_down).sum() == 608
    assert found.edge_ports.max() == 32


def test_every_plane_keeps_a_line_in_each_row_whatever_is_asked() -> None:
    found = sketch(demo(), 1)
    assert (~found.edge_down).sum() == 4 * 2


def test_switches_know_their_nodes() -> None:
    fabric = big()
    found = sketch(fabric)
    # plane by plane, tier by tier: 32 nodes of T0, 32 of T1, 32 of T2
    nodes = [found.switch_node[fabric.sw_tier == tier] for tier in range(3)]
    assert [(int(n.min()), int(n.max())) for n in nodes] == [(0, 31), (32, 63), (64, 95)]
    assert found.n_switch_nodes == 96
    several = sketch(demo())
    assert len(set(several.switch_node.tolist())) == several.n_switch_nodes == 4 * (4 + 8)


@pytest.mark.parametrize("fabric", [demo(), big(), bundled()], ids=["demo", "big", "bundled"])
def test_the_name_of_a_port_is_a_place_of_one_direction(fabric: Fabric) -> None:
    for port in range(0, fabric.n_ports, 5):
        assert places.links(fabric, fabric.port_name(port)).tolist() == [port]
