"""What is built: counts, wiring, and that both ends of every link agree."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane

GBPS = 10**9
US = 10**6


def two_tiers(nics: int = 16, planes: int = 4, t0_down: int = 4, t0_up: int = 4) -> Fabric:
    return multiplane(nics, planes, 100 * GBPS, t0_down, t0_up, US, 300_000)


def three_tiers(nics: int = 128) -> Fabric:
    return fat_tree(nics, 100 * GBPS, 4, 4, US, 0, tiers=3)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    small = st.integers(1, 4)
    nics, planes = draw(st.integers(2, 40)), draw(small)
    down, up = draw(small), draw(small)
    if draw(st.booleans()):
        return multiplane(nics, planes, GBPS, down, up, 7, 3)
    t1_down, t1_up = draw(small), draw(small)
    return fat_tree(nics, GBPS, down, up, 7, 3, tiers=3, t1_down=t1_down, t1_up=t1_up)


def test_sixteen_nics_on_four_planes_count_as_expected() -> None:
    fabric = two_tiers()
    assert fabric.tier_counts == (4, 4)
    assert (fabric.n_switches, fabric.n_tiers, fabric.n_planes) == (32, 2, 4)
    # per plane: 16 NIC ports, 4 T0 x (4 + 4), 4 T1 x 4
    assert fabric.n_ports == 4 * (16 + 32 + 16)
    assert (fabric.port_rate_bps == 100 * GBPS).all()
    assert (fabric.port_delay_ps == US).all()
    assert (fabric.sw_delay_ps == 300_000).all()
    assert fabric.port_last_hop.sum() == 64


def test_nics_need_not_fill_the_last_t0() -> None:
    fabric = two_tiers(nics=13)
    last = np.flatnonzero((fabric.sw_tier == 0) & (fabric.sw_index == 3))
    assert (fabric.sw_hi - fabric.sw_lo)[last].tolist() == [1, 1, 1, 1]
    assert fabric.n_ports == 4 * (13 + 13 + 16 + 16)
    assert [fabric.t0_of(nic) for nic in (0, 3, 4, 12)] == [0, 0, 1, 3]


def test_three_tiers_follow_the_stated_wiring() -> None:
    fabric = three_tiers()
    assert fabric.tier_counts == (32, 32, 16)
    t2 = [fabric.link_name(int(fabric.sw_first_up[32 + 6]) + v) for v in range(4)]
    # T1 6 is number 2 of pod 1: it leads to the T2s 8 to 11.
    assert t2 == [f"plane 0 t1 6 - t2 {n}" for n in (8, 9, 10, 11)]


def test_the_published_two_tier_fabric_is_built_in_seconds() -> None:
    # MRC 7.3: 131,072 NICs, 8 planes: 512 T0 and 256 T1 per plane.
    begin = time.process_time()
    fabric = two_tiers(131_072, 8, 256, 256)
    assert time.process_time() - begin < 10
    assert fabric.tier_counts == (512, 256)
    assert fabric.n_switches == 6_144
    assert fabric.n_ports == 8 * 4 * 131_072


def test_the_published_three_tier_fabric_has_5120_switches() -> None:
    # MRC 7.2: T0 32 down and 32 up, pods of 1024 NICs, 64 pods.
    fabric = fat_tree(65_536, 800 * GBPS, 32, 32, US, 0, tiers=3)
    assert fabric.tier_counts == (2_048, 2_048, 1_024)
    assert sum(fabric.tier_counts) == 5_120


@given(fabrics())
def test_reverse_ports_are_an_involution_that_swaps_the_ends(fabric: Fabric) -> None:
    reverse, ports = fabric.port_reverse, np.arange(fabric.n_ports)
    assert (reverse[reverse] == ports).all()
    assert (reverse != ports).all()
    assert (fabric.port_peer_switch == fabric.port_switch[reverse]).all()
    assert (fabric.port_peer_nic == fabric.port_nic[reverse]).all()
    assert ((fabric.port_switch >= 0) ^ (fabric.port_nic >= 0)).all()
    assert (fabric.port_last_hop == (fabric.port_peer_nic >= 0)).all()


@given(fabrics())
def test_links_join_neighbouring_tiers_of_one_plane(fabric: Fabric) -> None:
    between = np.flatnonzero((fabric.port_switch >= 0) & (fabric.port_peer_switch >= 0))
    near, far = fabric.port_switch[between], fabric.port_peer_switch[between]
    assert (fabric.sw_plane[near] == fabric.sw_plane[far]).all()
    assert (abs(fabric.sw_tier[near] - fabric.sw_tier[far]) == 1).all()
    # Each pair of switches is linked once where nothing is bundled.
    assert len(set(zip(near.tolist(), far.tolist(), strict=True))) == len(between)


@given(fabrics())
def test_every_port_belongs_to_the_range_of_its_owner(fabric: Fabric) -> None:
    owner = np.repeat(
        np.arange(fabric.n_switches), fabric.sw_first_up + fabric.sw_n_up - fabric.sw_first_down
    )
    first = fabric.n_nics * fabric.n_planes
    assert (fabric.port_switch[first:] == owner).all()
    nic_ports = np.arange(first)
    assert (fabric.port_nic[:first] == nic_ports // fabric.n_planes).all()
    planes = fabric.sw_plane[fabric.port_peer_switch[:first]]
    assert (planes == nic_ports % fabric.n_planes).all()


@settings(max_examples=30)
@given(fabrics(), st.data())
def test_a_neighbour_downwards_reaches_the_nic(fabric: Fabric, data: st.DataObject) -> None:
    switch = data.draw(st.integers(0, fabric.n_switches - 1))
    lo, hi = int(fabric.sw_lo[switch]), int(fabric.sw_hi[switch])
    for nic in range(lo, hi):
        port = int(fabric.sw_first_down[switch]) + (nic - lo) // int(fabric.sw_stride[switch])
        below = int(fabric.port_peer_switch[port])
        if below < 0:
            assert fabric.port_peer_nic[port] == nic
        else:
            assert fabric.sw_lo[below] <= nic < fabric.sw_hi[below]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nics": 0}, "fabric.nics: 0 is too few; at least 2"),
        ({"nics": 1}, "fabric.nics: 1 is too few; at least 2"),
        ({"nics": -5}, "fabric.nics: -5 is too few; at least 2"),
        ({"planes": 0}, "fabric.planes: 0 is too few; at least 1"),
        ({"planes": 33}, "fabric.planes: 33 is too many; at most 32"),
        ({"port_rate_bps": 0}, "fabric.port_rate: 0 is too few; at least 1"),
        ({"t0_down": 0}, "fabric.t0_down: 0 is too few; at least 1"),
        ({"t0_up": 0}, "fabric.t0_up: 0 is too few; at least 1"),
        ({"link_delay_ps": -1}, "fabric.link_delay: -1 ps is negative; 0 or more is accepted"),
        ({"switch_delay_ps": -1}, "fabric.switch_delay: -1 ps is negative; 0 or more is accepted"),
    ],
)
def test_sizes_that_cannot_be_built_are_refused_by_key(
    change: dict[str, int], message: str
) -> None:
    sizes = {
        "nics": 16,
        "planes": 4,
        "port_rate_bps": GBPS,
        "t0_down": 4,
        "t0_up": 4,
        "link_delay_ps": 0,
        "switch_delay_ps": 0,
    }
    with pytest.raises(InputError) as refused:
        multiplane(**(sizes | change))
    assert str(refused.value) == message


def test_a_fat_tree_has_two_or_three_tiers() -> None:
    with pytest.raises(InputError, match=r"fabric\.tiers: 4 tiers .* 2 or 3 can"):
        fat_tree(16, GBPS, 4, 4, 0, 0, tiers=4)
    with pytest.raises(InputError, match=r"fabric\.t1_down, t1_up: only for three tiers"):
        fat_tree(16, GBPS, 4, 4, 0, 0, tiers=2, t1_up=3)


def test_what_is_too_large_is_refused_before_it_is_built() -> None:
    with pytest.raises(InputError, match=r"fabric: 16062500000000 ports, the limit is 67108864"):
        multiplane(10**12, 8, GBPS, 256, 1, 0, 0)
