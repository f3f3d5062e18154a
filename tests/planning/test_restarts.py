"""What failures cost a job: against figures by hand, and against what a simulated job prints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.planning.assumptions import values_with
from openmrc.planning.reliability import Failure, failures
from openmrc.planning.restarts import Lost, lost
from openmrc.run.training import Restarts
from openmrc.units import S
from tests.planning.designs import eight, single

DAY_S = 86_400


def failure(
    per_day: float,
    interrupts: float,
    share: float = 0.125,
    lasts_days: float = 1.0,
    kind: str = "x",
) -> Failure:
    return Failure(kind, 1, share, 1, per_day, interrupts, lasts_days)


def of(*found: Failure, **values: float) -> Lost:
    return lost(found, values_with() | values)


def test_rare_failures_cost_half_a_checkpoint_and_a_start() -> None:
    """One in a hundred days: 1,800 / 2 + 600 s of 8,640,000."""
    found = of(failure(0.01, 1.0))
    assert found.failures_per_day == 0.01
    assert found.hours_per_day == pytest.approx(0.01 * 1500 / 3600)
    assert found.restarts == pytest.approx(0.01 * 1500 / DAY_S, rel=1e-3)
    assert found.if_each_ended_the_job == found.restarts
    assert (found.stalls, found.bandwidth) == (0, 0)


@pytest.mark.parametrize("per_day", [0.1, 1.0, 24.0, 500.0])
def test_the_share_is_that_which_a_simulated_job_prints(per_day: float) -> None:
    values = values_with()
    job = Restarts(
        int(values["checkpoint_s"]) * S, 0, int(values["restart_s"]) * S, faults_per_day=None
    )
    assert of(failure(per_day, 1.0)).restarts == pytest.approx(1 - job.useful(per_day), rel=1e-9)


def test_what_comes_all_the_time_leaves_nothing() -> None:
    assert of(failure(1e5, 1.0)).restarts == pytest.approx(1.0)
    assert of(failure(1e12, 1.0)).restarts == 1.0


def test_what_mrc_survives_stalls_all_ranks_once() -> None:
    found = of(failure(86_400.0, 0.0, lasts_days=0.0), stall_s=0.01)
    assert found.stalls == pytest.approx(0.01 / 1.01)  # one a second
    assert found.restarts == 0
    assert found.if_each_ended_the_job == pytest.approx(1.0)


def test_switches_that_balance_wait_for_routing_or_stall_at_a_port() -> None:
    """One failure a second: between switches, where for half a second a fifth of a tenth takes 1.25
    times as long; of a port that is hardly ever the last; of a NIC, which ends the job.
    """
    values = {"convergence_s": 0.5, "balance_share": 0.2, "exposed_share": 0.1}
    between_s = 0.5 * 0.025 / 1.025
    for interrupts, stalled in ((0.0, between_s), (1e-9, 0.003), (1.0, 0.0)):
        found = of(failure(86_400.0, interrupts, lasts_days=0.0), **values, balance_port_s=0.003)
        assert found.stalls_of_balance == pytest.approx(stalled / (1 + stalled), rel=1e-6)


def test_hashed_flows_wait_for_routing_whatever_breaks() -> None:
    found = of(failure(86_400.0, 0.0, lasts_days=0.0), convergence_s=0.5)
    assert found.stalls_of_hashing == pytest.approx(0.5 / 1.5)
    assert found.with_hashing == pytest.approx(found.stalls_of_hashing)


def test_all_lose_the_same_to_restarts_and_bandwidth() -> None:
    found = of(failure(3.0, 0.01), stall_s=0.1, balance_port_s=0.1, convergence_s=0.1)
    assert found.with_balance == pytest.approx(found.with_mrc)
    assert found.with_hashing == pytest.approx(found.with_mrc)


def test_missing_bandwidth_makes_what_waits_longer() -> None:
    """An eighth is missing for half of the time: 1/7 of a tenth longer then."""
    there = math.log(2)  # so many at once on average are at least one for half of the time
    found = of(failure(there, 0.0), stall_s=0.0)
    assert found.bandwidth == pytest.approx(0.05 / 7 / (1 + 0.05 / 7))
    assert found.with_mrc == pytest.approx(found.bandwidth)


def test_of_two_failures_the_worse_one_counts() -> None:
    always = 1e9
    worse, better = failure(always, 0.0, share=0.5), failure(always, 0.0, share=0.125)
    assert of(worse, better).bandwidth == pytest.approx(of(worse).bandwidth)
    assert of(better, worse) == of(worse, better)


def test_flaps_are_told_apart() -> None:
    found = of(failure(3.0, 0.0), failure(1e6, 0.0, kind="link T0-T1, flap"))
    assert found.if_each_ended_the_job == pytest.approx(1.0)
    assert found.if_each_but_flaps_did == of(failure(3.0, 1.0)).restarts


def test_nothing_fails_nothing_is_lost() -> None:
    assert of() == Lost(*[0] * len(Lost._fields))
    assert of().with_mrc == 0


def test_the_published_run_lost_less_than_a_tenth() -> None:
    """Llama 3: more than 90 % of its time was effective, at 419 interruptions in 54 days."""
    assert 0.05 < of(failure(419 / 54, 1.0)).restarts < 0.15


@given(st.integers(2, 131_072), st.sampled_from([1, 8]))
def test_shares_are_shares_and_mrc_never_loses_more(nics: int, planes: int) -> None:
    design = single(nics) if planes == 1 else eight(nics)
    values = values_with()
    found = lost(failures(design, values), values)
    shares = found[2:]
    assert all(0 <= share <= 1 for share in (*shares, found.with_mrc))
    assert found.with_mrc <= found.if_each_ended_the_job
    assert found.restarts <= found.if_each_ended_the_job
