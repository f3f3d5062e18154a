"""Published figures come out by arithmetic, and small fabrics have as many parts when built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.planning.sizing import largest, size
from tests.planning.designs import GBPS, NIC, SWITCH, built, eight, single

# --- MRC 7.1 to 7.5, each figure


def test_a_switch_of_51_tbps_is_64_ports_of_800g_or_512_of_100g() -> None:
    assert (single(1000).radix, eight(1000).radix) == (64, 512)
    assert eight(1000).port_rate_bps == 100 * GBPS


def test_one_plane_of_three_tiers_holds_65_536_nics() -> None:
    full = single(65_536)
    assert (full.tiers, full.nics_max) == (3, 65_536)
    assert full.reach(1) == 1024  # a pod
    assert full.blocks(1) == 64  # pods
    assert full.switches == (2048, 2048, 1024)
    assert sum(full.switches) == 5120


def test_eight_planes_of_two_tiers_hold_131_072_nics_on_6_144_switches() -> None:
    full = eight(131_072)
    assert full.nics_max == 131_072
    assert (full.t0s, full.switches) == (512, (4096, 2048))
    assert sum(full.switches) == 6144


def test_four_planes_of_two_tiers_hold_32_768_nics() -> None:
    full = size(32_768, 4, NIC, SWITCH, 2)
    assert (full.radix, full.half, full.nics_max) == (256, 128, 32_768)


def test_a_nic_needs_three_fifths_of_the_switches() -> None:
    per_nic = sum(eight(131_072).switches) / 131_072
    assert per_nic / (5120 / 65_536) == 3 / 5
    assert sum(eight(65_536).switches) / sum(single(65_536).switches) == 3 / 5


def test_a_nic_needs_two_thirds_of_the_optics() -> None:
    """Four link ends for a NIC's bandwidth, in place of six."""
    assert sum(single(65_536).transceivers) == 6 * 65_536
    assert sum(eight(131_072).transceivers) == 4 * 131_072
    assert sum(eight(65_536).transceivers) / sum(single(65_536).transceivers) == 2 / 3


def test_the_longest_path_is_three_switches_in_place_of_five_or_seven() -> None:
    assert (eight(65_536).hops_max, single(65_536).hops_max) == (3, 5)
    assert (single(131_072).tiers, single(131_072).hops_max) == (4, 7)


def test_256_nics_are_within_one_hop_in_place_of_32() -> None:
    assert (eight(65_536).reach(0), single(65_536).reach(0)) == (256, 32)


# --- what is counted is what is built


@pytest.mark.parametrize(
    ("nics", "planes", "radix", "tiers"),
    [
        (32, 1, 8, 2),
        (31, 1, 8, 2),
        (9, 4, 8, 2),  # begun T0s; a T1 with parallel links to each
        (100, 2, 16, 2),
        (5, 3, 12, 2),
        (128, 1, 8, 3),
        (70, 1, 8, 3),  # a begun pod
        (33, 1, 8, 3),
        (300, 2, 12, 3),
        (27, 1, 7, 3),  # a port is left over
    ],
)
def test_a_fabric_that_is_built_has_as_many_switches_and_links(
    nics: int, planes: int, radix: int, tiers: int
) -> None:
    design = size(nics, planes, planes * GBPS, radix * GBPS, tiers)
    fabric = built(design)
    assert tuple(planes * count for count in fabric.tier_counts) == design.switches
    assert fabric.n_ports == 2 * sum(design.links)
    lower = np.where(fabric.port_switch < 0, -1, fabric.sw_tier[fabric.port_switch])
    upper = np.where(fabric.port_peer_switch < 0, -1, fabric.sw_tier[fabric.port_peer_switch])
    stages = np.bincount(lower[upper > lower] + 1, minlength=tiers)
    assert tuple(stages.tolist()) == design.links
    assert len(fabric.longest_path_ports()) - 1 == design.hops_max
    busiest = np.bincount(fabric.port_switch[fabric.port_switch >= 0]).max()
    assert busiest <= design.radix


def test_transceivers_are_whole_and_serve_one_switch() -> None:
    # 4 planes: 4 links share one. 9 NICs on T0s of 6: two T0s a plane, of 6 NICs and of 3.
    design = size(9, 4, 4 * GBPS, 12 * GBPS, 2)
    nic, t0_down, between = design.transceivers
    assert nic == 9
    assert t0_down == 4 * (2 + 1)
    # each T0 has 6 uplinks; two T1s a plane would do at 3 each, but one holds all 12
    assert (design.bundle, design.switches) == (6, (8, 4))
    assert between == 8 * 2 + 4 * 3


# --- properties

RATES = st.sampled_from([(1, 8), (1, 16), (2, 8), (4, 12), (8, 16), (1, 9)])


@given(RATES, st.data())
def test_more_gpus_never_take_fewer_of_anything(
    rates: tuple[int, int], data: st.DataObject
) -> None:
    planes, radix = rates
    one, two = (data.draw(st.integers(2, largest(radix, 4))) for _ in range(2))
    fewer, more = (size(n, planes, planes * GBPS, radix * GBPS) for n in sorted((one, two)))
    assert sum(fewer.switches) <= sum(more.switches)
    assert sum(fewer.links) <= sum(more.links)
    assert sum(fewer.transceivers) <= sum(more.transceivers)
    assert fewer.tiers <= more.tiers


@given(RATES, st.data())
def test_two_tiers_never_take_more_than_three_of_the_same_switches(
    rates: tuple[int, int], data: st.DataObject
) -> None:
    planes, radix = rates
    nics = data.draw(st.integers(2, largest(radix, 2)))
    two, three = (size(nics, planes, planes * GBPS, radix * GBPS, tiers) for tiers in (2, 3))
    assert sum(two.transceivers) <= sum(three.transceivers)
    assert sum(two.switches) <= sum(three.switches)
    assert two.links[0] == three.links[0]


@given(st.integers(1, 512))
def test_eight_planes_never_take_more_optics_than_one(t0s: int) -> None:
    """Where T0s are full: a begun one has all of its uplinks, and 512 ports are more to begin."""
    many, one = eight(256 * t0s), single(256 * t0s)
    part_empty = many.switches[1]  # the last transceiver of each T1
    assert sum(many.transceivers) <= sum(one.transceivers) + part_empty
    assert many.hops_max <= one.hops_max


@given(RATES, st.integers(2, 4), st.data())
def test_the_last_nic_that_fits_is_the_last(
    rates: tuple[int, int], tiers: int, data: st.DataObject
) -> None:
    planes, radix = rates
    most = largest(radix, tiers)
    assert size(most, planes, planes * GBPS, radix * GBPS, tiers).nics_max == most
    with pytest.raises(InputError, match=rf"at most {most:,} GPUs"):
        size(most + 1, planes, planes * GBPS, radix * GBPS, tiers)


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1, 8, NIC, SWITCH, 2), "--gpus 1: 2 to 10,000,000 is accepted"),
        ((10_000_001, 8, NIC, SWITCH, 2), "--gpus 10,000,001: 2 to 10,000,000"),
        ((64, 0, NIC, SWITCH, 2), "--planes 0: 1 to 32 is accepted"),
        ((64, 33, NIC, SWITCH, 2), "--planes 33: 1 to 32 is accepted"),
        ((64, 3, NIC, SWITCH, 2), "accepted: 1, 2, 4, 5, 8, 10, 16, 20, 25, 32"),
        ((64, 1, 0, SWITCH, 2), "accepted: a rate above 0"),
        ((64, 8, NIC, SWITCH, 1), "--tiers 1: 2 to 4 is accepted"),
        ((64, 8, NIC, SWITCH, 5), "--tiers 5: 2 to 4 is accepted"),
        ((64, 1, NIC, 2400 * GBPS, 2), "3 ports of 800Gbps; 4 to 4096 are accepted: 3.2Tbps"),
        ((64, 1, NIC, 10**7 * GBPS, 2), "12,500 ports of 800Gbps; 4 to 4096 are accepted"),
        (
            (200_000, 8, NIC, SWITCH, 2),
            "--gpus 200000: 2 tiers of 512-port switches (51.2Tbps at 100Gbps) are too small;"
            " accepted: at most 131,072 GPUs, or --planes 16, or --tiers 3",
        ),
        (
            (9_000_000, 1, NIC, SWITCH, None),
            "4 tiers of 64-port switches (51.2Tbps at 800Gbps) are too small;"
            " accepted: at most 2,097,152 GPUs, or --planes 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(
    arguments: tuple[int, int, int, int, int | None], words: str
) -> None:
    with pytest.raises(InputError) as refused:
        size(*arguments)
    assert words in str(refused.value)
