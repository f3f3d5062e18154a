"""What failures take and how often they come, in figures worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.planning.assumptions import ASSUMPTIONS, values_with
from openmrc.planning.prices import bill
from openmrc.planning.reliability import (
    Failure,
    failures,
    interruptions_per_day,
    mean_time_between_h,
)
from openmrc.planning.restarts import lost
from openmrc.planning.sizing import Design, size
from tests.planning.designs import GBPS, NIC, SWITCH, built, eight, single

NEVER = {name: 1e15 for name in ASSUMPTIONS if name.endswith("mtbf_h")} | {
    "fabric_flaps_per_day": 0.0,
    "port_flaps_per_day": 0.0,
}


def by_kind(design: Design, **values: float) -> dict[str, Failure]:
    return {f.kind: f for f in failures(design, values_with() | values)}


def test_a_link_between_t0_and_t1_takes_3_percent_or_0_4() -> None:
    one, many = by_kind(single(65_536)), by_kind(eight(65_536))
    assert one["link T0-T1"].share == 1 / 32  # "3 %"
    assert many["link T0-T1"].share == 1 / 256  # "0.4 %"
    assert (f"{one['link T0-T1'].share:.0%}", f"{many['link T0-T1'].share:.1%}") == ("3%", "0.4%")


@pytest.mark.parametrize(("planes", "percent"), [(8, 12.5), (4, 25), (1, 100)])
def test_a_nics_link_takes_its_plane(planes: int, percent: float) -> None:
    found = by_kind(size(8192, planes, NIC, SWITCH))
    for kind in ("link NIC-T0", "NIC port, flap", "T0 switch", "plane"):
        assert 100 * found[kind].share == percent
    assert found["transceiver of a T0, to NICs"].nics == planes  # B3: 4 links, 4 nodes


def test_switches_take_what_goes_through_them() -> None:
    one, many = by_kind(single(65_536)), by_kind(eight(131_072))
    assert (one["T1 switch"].share, one["T1 switch"].nics) == (1 / 32, 1024)
    assert (one["T2 switch"].share, one["T2 switch"].nics) == (1 / 1024, 65_536)
    assert (many["T1 switch"].share, many["T1 switch"].nics) == (1 / 256, 131_072)
    # at half the size a T1 has two links to every T0
    assert by_kind(eight(65_536))["T1 switch"].share == 2 / 256


@pytest.mark.parametrize(("nics", "radix", "tiers"), [(32, 8, 2), (16, 8, 2), (128, 8, 3)])
def test_the_share_is_that_of_the_paths_which_a_built_fabric_loses(
    nics: int, radix: int, tiers: int
) -> None:
    design = size(nics, 1, GBPS, radix * GBPS, tiers)
    found = by_kind(design)
    fabric = built(design)
    src, dst = 0, nics - 1
    routes = [
        fabric.route(src, dst, fabric.ev_of_path(src, dst, 0, i))
        for i in range(fabric.n_paths(src, dst, 0))
    ]
    for tier in range(tiers - 1):
        link = routes[0][tier + 1]  # the first is the NIC's own
        lost = sum(link in route for route in routes) / len(routes)
        assert found[f"link T{tier}-T{tier + 1}"].share == lost
        switch = fabric.port_peer_switch[link]
        lost = sum(switch in fabric.port_switch[route] for route in routes) / len(routes)
        assert found[f"T{tier + 1} switch"].share == lost


def test_a_rate_is_things_times_days_over_the_mean_time() -> None:
    found = by_kind(single(65_536), switch_mtbf_h=24_000.0, fabric_flaps_per_day=0.5)
    assert found["T0 switch"].per_day == pytest.approx(2048 / 1000)
    assert found["link T0-T1, flap"].per_day == 65_536 / 2


def test_one_plane_is_interrupted_by_whatever_takes_it() -> None:
    values = values_with() | NEVER
    design = single(65_536)
    found = failures(design, values | {"link_mtbf_h": 65_536.0})
    # only the links to NICs, each the NIC's only one: 24 a day
    assert interruptions_per_day(found) == pytest.approx(24)
    found = failures(design, values | {"switch_mtbf_h": 2048.0})
    assert interruptions_per_day(found) == pytest.approx(24)  # of 24 T0s, 24 T1s and 12 T2s


def test_two_planes_are_interrupted_when_both_are_gone() -> None:
    """Two ports of a NIC, each missing for a day of a hundred: 2 * 0.01 * 0.0099 a NIC and day."""
    design = size(2048, 2, NIC, SWITCH, 2)
    values = values_with() | NEVER | {"link_mtbf_h": 2400.0, "repair_h": 24.0}
    missing = 0.01 / 1.01
    assert interruptions_per_day(failures(design, values)) == pytest.approx(
        2 * 2048 * 0.01 * missing, rel=1e-6
    )


def test_many_planes_are_interrupted_by_what_a_nic_has_once() -> None:
    """The NIC and its transceiver are the single points of failure (MRC 9.2)."""
    found = by_kind(eight(131_072))
    total = interruptions_per_day(list(found.values()))
    alone = found["NIC"].per_day + found["transceiver of a NIC"].per_day
    assert total == pytest.approx(alone, rel=1e-9)


def test_the_rates_give_what_a_published_run_met_within_a_factor_of_two() -> None:
    """Llama 3: 35 interruptions by switches and cables and 7 by NICs in 54 days, 16,384 GPUs."""
    design = size(16_384, 1, 400 * GBPS, 25_600 * GBPS)
    expected = 54 * interruptions_per_day(failures(design, values_with()))
    assert (35 + 7) / 2 < expected < 2 * (35 + 7)


def test_what_never_fails_never_interrupts() -> None:
    found = failures(single(64), values_with() | NEVER | dict.fromkeys(NEVER, 1e15))
    assert interruptions_per_day([]) == 0
    assert mean_time_between_h(0) is None
    assert mean_time_between_h(2) == 12
    assert all(f.per_day >= 0 for f in found)


@given(st.integers(2, 131_072), st.sampled_from([1, 2, 4, 8]))
def test_probabilities_are_probabilities(nics: int, planes: int) -> None:
    design = size(nics, planes, NIC, SWITCH)
    for failure in failures(design, values_with(["repair_h=1e6"])):
        assert 0 < failure.share <= 1
        assert 0 <= failure.interrupts <= 1
        assert 1 <= failure.nics <= nics
        assert failure.things > 0


@given(st.integers(2, 131_072))
def test_more_planes_never_interrupt_more_often(nics: int) -> None:
    """With these rates: what a NIC has once is there in both."""
    one, many = (
        interruptions_per_day(failures(d, values_with())) for d in (single(nics), eight(nics))
    )
    assert many <= one


# --- prices


def test_power_and_cost_are_counts_times_unit_values() -> None:
    values = {
        "switch_w_per_tbps": 10.0,
        "optics_w_per_tbps": 20.0,
        "switch_usd_per_tbps": 1000.0,
        "optics_usd_per_tbps": 500.0,
        "cable_usd": 7.0,
    }
    costs = bill(eight(131_072), values)
    assert costs.switch_w == pytest.approx(6144 * 512)
    assert costs.optics_w == pytest.approx(4 * 131_072 * 16)
    assert costs.switch_usd == pytest.approx(6144 * 51_200)
    assert costs.optics_usd == pytest.approx(4 * 131_072 * 400)
    assert costs.cable_usd == pytest.approx(2 * 131_072 * 7)
    assert costs.power_w == costs.switch_w + costs.optics_w
    assert costs.cost_usd == costs.switch_usd + costs.optics_usd + costs.cable_usd


@pytest.mark.parametrize("name", list(ASSUMPTIONS))
def test_every_assumption_changes_a_plan(name: str) -> None:
    design = size(2048, 2, NIC, SWITCH, 2)
    usual = values_with(["port_flaps_per_day=0.1", "plane_mtbf_h=1e5"])
    changed = usual | {name: 2 * usual[name]}
    before, after = (
        (bill(design, v), failures(design, v), lost(failures(design, v), v))
        for v in (usual, changed)
    )
    assert before != after
