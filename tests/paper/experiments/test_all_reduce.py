"""The steps and the fabrics of B15, from figures made up here."""

from __future__ import annotations

from openmrc.paper.experiments import all_reduce
from openmrc.paper.experiments.collectives import MRC, roce
from openmrc.paper.verdict import Verdict


def test_single_steps_move_what_a_step_of_the_ring_moves() -> None:
    (case, *_) = all_reduce.stepped()
    (run,) = case.runs(quick=False)
    _, traffic, _ = run.scenario.build()
    assert traffic.n_sends == 64 * 4
    assert set(traffic.msg_bytes) == {250_000_000}


def test_each_fabric_has_room_for_all_and_the_uplinks_it_is_named_for() -> None:
    for case in all_reduce.on_fabrics():
        scenario = case.runs(quick=False)[0].scenario
        uplinks = int(case.tag.split(", ")[-1].split()[0])
        t0s = int(case.tag.split(" T0s")[0].split()[-1])
        fabric, _, _ = scenario.build()
        assert fabric.tier_counts[0] == t0s
        assert set(fabric.sw_n_up[fabric.sw_tier == 0]) == {uplinks}


def test_mrc_may_win_the_mean_and_lose_the_slowest_draw() -> None:
    rates = {MRC: [380.0, 200.0], roce(1): [190.0, 190.0], roce(8): [300.0, 210.0]}
    drawn = {curve: {1: rates.get(curve, [100.0, 100.0])} for curve in all_reduce.DRAWN}
    mean, slowest = all_reduce.fabric_checks(drawn)
    assert "4 T0s, 32" in mean.what
    assert mean.verdict is Verdict.HOLDS
    assert round(mean.values[0], 3) == 1.061  # 262.1 over 247.1, the harmonic means
    assert slowest.verdict is Verdict.FAILS
    assert slowest.values == [200 / 210]
