"""Paths, entropy values and names of a built fabric."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, Hops, fat_tree, multiplane
from openmrc.fabric.clos import Tier, build

GBPS = 10**9


def two_tiers() -> Fabric:
    return multiplane(64, 8, 100 * GBPS, 8, 8, 10**6, 0)


def three_tiers() -> Fabric:
    return fat_tree(128, 100 * GBPS, 4, 4, 10**6, 0, tiers=3)


def bundled() -> Fabric:
    """8 NICs in two pods; each T1 has its 4 uplinks in two bundles of 2."""
    t0 = Tier(down=2, up=2, rate_bps=200 * GBPS, link_delay_ps=1, switch_delay_ps=0)
    t1 = Tier(down=2, up=4, rate_bps=200 * GBPS, link_delay_ps=1, switch_delay_ps=0)
    t2 = Tier(0, 0, rate_bps=100 * GBPS, link_delay_ps=1, switch_delay_ps=0, bundle=2)
    return build("htsim", 8, 1, [t0, t1, t2])


def multiplane_of_ev_bits(bits: int) -> Fabric:
    """8 planes take three bits of an EV, the uplinks of a T0 the others."""
    return multiplane(2, 8, 100 * GBPS, 1, 1 << bits - 3, 10**6, 0)


FABRICS = {"two tiers": two_tiers(), "three tiers": three_tiers(), "bundled": bundled()}


@st.composite
def paths(draw: st.DrawFn) -> tuple[Fabric, int, int, int]:
    """A fabric, two NICs and the EV of one of the paths between them."""
    fabric = FABRICS[draw(st.sampled_from(sorted(FABRICS)))]
    src = draw(st.integers(0, fabric.n_nics - 1))
    dst = draw(st.integers(0, fabric.n_nics - 1).filter(lambda nic: nic != src))
    plane = draw(st.integers(0, fabric.n_planes - 1))
    index = draw(st.integers(0, fabric.n_paths(src, dst, plane) - 1))
    return fabric, src, dst, fabric.ev_of_path(src, dst, plane, index)


@given(paths())
@settings(max_examples=200)
def test_every_route_leads_link_by_link_to_its_destination(
    path: tuple[Fabric, int, int, int],
) -> None:
    fabric, src, dst, ev = path
    ports = fabric.route(src, dst, ev)
    assert ports[0] == fabric.nic_port(src, fabric.hops(ev).plane)
    for port, following in pairwise(ports):
        assert fabric.port_peer_switch[port] == fabric.port_switch[following]
    assert fabric.port_peer_nic[ports[-1]] == dst
    assert fabric.port_last_hop[ports].tolist() == [False] * (len(ports) - 1) + [True]
    assert len(ports) == 2 * (1 + int(fabric.uplinks(src, dst)))


@given(paths())
def test_an_ev_is_its_hops(path: tuple[Fabric, int, int, int]) -> None:
    fabric, _, _, ev = path
    assert fabric.ev(*fabric.hops(ev)) == ev


@pytest.mark.parametrize("name", sorted(FABRICS))
def test_all_paths_of_a_pair_are_different(name: str) -> None:
    fabric = FABRICS[name]
    dst = fabric.n_nics - 1
    n = fabric.n_paths(0, dst, 0)
    evs = [fabric.ev_of_path(0, dst, 0, index) for index in range(n)]
    assert len({tuple(fabric.route(0, dst, ev)) for ev in evs}) == len(set(evs)) == n


def test_the_number_of_paths_is_the_product_of_the_uplinks() -> None:
    fabric = three_tiers()
    assert [fabric.n_paths(0, dst, 0) for dst in (3, 15, 16, 127)] == [1, 4, 16, 16]
    assert two_tiers().n_paths(0, 63, 7) == 8


def test_neighbouring_paths_leave_by_different_uplinks() -> None:
    fabric = three_tiers()
    hops = [fabric.hops(fabric.ev_of_path(0, 127, 0, index)) for index in range(6)]
    assert [hop.up0 for hop in hops] == [0, 1, 2, 3, 0, 1]
    assert [hop.up1 for hop in hops] == [0, 0, 0, 0, 1, 1]


def test_the_ev_names_the_hops_from_the_highest_bits_down() -> None:
    # MRC 2.11: fields packed MSB first, per-hop widths fixed.
    fabric = two_tiers()
    assert (fabric.ev_plane_bits, fabric.ev_up0_bits, fabric.ev_up1_bits) == (3, 3, 0)
    assert fabric.ev(5, 3) == 0b101_011 << 16 | 0xC000  # the source port is one of RoCEv2's
    assert three_tiers().ev(0, 2, 1) == 0b10_01 << 16 | 0xC000
    assert three_tiers().hops(0b10_01 << 16 | 0xC000) == Hops(plane=0, up0=2, up1=1)


def test_an_ev_of_more_than_sixteen_bits_takes_the_source_port_too() -> None:
    fits, wider = multiplane_of_ev_bits(16), multiplane_of_ev_bits(17)
    assert (fits.ev_base, fits.ev_up1_shift) == (0xC000, 16)
    assert (wider.ev_base, wider.ev_up1_shift) == (0, 0)


def test_the_way_of_one_packet_by_name() -> None:
    fabric = three_tiers()
    names = [fabric.link_name(port) for port in fabric.route(0, 127, fabric.ev(0, 2, 1))]
    assert names == [
        "nic 0 plane 0",
        "plane 0 t0 0 - t1 2",
        "plane 0 t1 2 - t2 9",
        "plane 0 t1 30 - t2 9",
        "plane 0 t0 31 - t1 30",
        "nic 127 plane 0",
    ]
    assert [fabric.link_name(port) for port in fabric.longest_path_ports()][2] == (
        "plane 0 t1 0 - t2 0"
    )


def test_both_directions_of_a_link_have_one_name() -> None:
    for fabric in FABRICS.values():
        for port in range(fabric.n_ports):
            reverse = int(fabric.port_reverse[port])
            assert fabric.link_name(port) == fabric.link_name(reverse)


def test_a_bundle_is_used_downwards_by_the_uplinks_number() -> None:
    fabric = bundled()
    names = [
        [fabric.link_name(port) for port in fabric.route(0, 7, fabric.ev(0, 1, up1))[2:4]]
        for up1 in range(4)
    ]
    assert names == [
        ["plane 0 t1 1 - t2 2 link 0", "plane 0 t1 3 - t2 2 link 0"],
        ["plane 0 t1 1 - t2 2 link 1", "plane 0 t1 3 - t2 2 link 1"],
        ["plane 0 t1 1 - t2 3 link 0", "plane 0 t1 3 - t2 3 link 0"],
        ["plane 0 t1 1 - t2 3 link 1", "plane 0 t1 3 - t2 3 link 1"],
    ]


def test_an_ev_of_what_is_not_there_is_refused() -> None:
    fabric = multiplane(16, 3, GBPS, 4, 3, 0, 0)
    with pytest.raises(InputError, match="names plane 3 of 3"):
        fabric.route(0, 5, fabric.ev(3, 0))
    with pytest.raises(InputError, match="names uplink 3 of 3 at tier 0"):
        fabric.route(0, 5, fabric.ev(0, 3))
    # Below the same T0 no uplink is taken, so none is looked at.
    assert len(fabric.route(0, 1, fabric.ev(0, 3))) == 2
    with pytest.raises(InputError, match="nic 5 needs no path to itself"):
        fabric.route(5, 5, 0)
    with pytest.raises(InputError, match="path 3 of nic 0 to nic 5 does not exist"):
        fabric.ev_of_path(0, 5, 0, 3)
