"""uSID numbers; the published example of a template is in `tests/wire/test_profile.py`."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.clos import Tier, build
from openmrc.fabric.usid import UsidPlan, carrier, expand, extract

GBPS = 10**9
WORDS = st.integers(0, 2**128 - 1)


@given(WORDS, WORDS, WORDS)
def test_expand_and_extract_are_inverse_under_a_mask(template: int, mask: int, bits: int) -> None:
    bits &= (1 << mask.bit_count()) - 1
    expanded = expand(template, mask, bits)
    assert extract(expanded, mask) == bits
    assert expanded & ~mask == template & ~mask


def test_a_carrier_spells_its_path() -> None:
    fabric = multiplane(64, 8, GBPS, 8, 8, 0, 0)
    # T0 0, T1 3, T0 7, NIC 7 of that T0; three bits each of plane and number.
    across = UsidPlan(fabric).carrier(0, 63, fabric.ev(5, 3))
    assert IPv6Address(across) == IPv6Address("2001:db8:4028:202b:402f:1007::")
    local = carrier(fabric, 56, 63, fabric.ev(5, 3))
    assert IPv6Address(local) == IPv6Address("2001:db8:402f:1007::")


def test_a_third_tier_takes_two_more_usids() -> None:
    fabric = fat_tree(128, GBPS, 4, 4, 0, 0, tiers=3)
    across = carrier(fabric, 0, 127, fabric.ev(0, 2, 1))
    assert IPv6Address(across) == IPv6Address("2001:db8:4000:2002:8009:401f:1003:0")


def test_a_carrier_of_links_names_the_first_t0_and_the_links_after_it() -> None:
    """T0 0 of plane 5, its uplink 3, the T1's downlink 7, the NIC; six uSIDs in three tiers."""
    fabric = replace(multiplane(64, 8, GBPS, 8, 8, 0, 0), sids="uA")
    across = carrier(fabric, 0, 63, fabric.ev(5, 3))
    assert IPv6Address(across) == IPv6Address("2001:db8:4028:f003:e007:1007::")
    local = carrier(fabric, 56, 63, fabric.ev(5, 3))
    assert IPv6Address(local) == IPv6Address("2001:db8:402f:1007::")
    fabric = replace(fat_tree(128, GBPS, 4, 4, 0, 0, tiers=3), sids="uA")
    across = carrier(fabric, 0, 127, fabric.ev(0, 2, 1))
    assert IPv6Address(across) == IPv6Address("2001:db8:4000:f002:f001:e007:e003:1003")


@pytest.mark.parametrize(
    "fabric",
    [
        multiplane(131_072, 8, GBPS, 256, 256, 0, 0),
        fat_tree(65_536, GBPS, 32, 32, 0, 0, tiers=3),
    ],
    ids=["131072 NICs on 8 planes", "65536 NICs in 3 tiers"],
)
def test_the_published_fabrics_fit_into_the_numbers_of_nodes(fabric: Fabric) -> None:
    plan = UsidPlan(fabric)
    last = plan.fabric.n_nics - 1
    plane, n_t0 = plan.fabric.n_planes - 1, plan.fabric.tier_counts[0]
    up0, up1 = (1 << plan.fabric.ev_up0_bits) - 1, (1 << plan.fabric.ev_up1_bits) - 1
    highest = [plan.nic(last), plan.t1(plane, up0), plan.t0(plane, n_t0 - 1)]
    if plan.fabric.n_tiers == 3:
        highest.append(plan.t2(plane, up0, up1))
    # MRC 2.12: numbers of nodes lie in 0x0001 to 0xDFFF. No two kinds overlap.
    assert highest == sorted(highest)
    assert highest[0] >> 12 == 1
    assert highest[-1] <= 0xDFFF


def test_what_has_no_usids_is_refused() -> None:
    with pytest.raises(InputError, match="the T0s need 17 bits of a uSID, 14 are left"):
        UsidPlan(multiplane(2**16, 2, GBPS, 1, 1, 0, 0))
    tier = Tier(down=1, up=2, rate_bps=GBPS, link_delay_ps=0, switch_delay_ps=0)
    top = Tier(down=0, up=0, rate_bps=GBPS, link_delay_ps=0, switch_delay_ps=0, bundle=2)
    with pytest.raises(InputError, match="parallel links"):
        UsidPlan(build("htsim", 2, 1, [tier, top]))
