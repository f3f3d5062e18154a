"""Curves of collectives, from figures made up here."""

from __future__ import annotations

import math
from typing import Any

from openmrc.paper.experiments import collectives
from openmrc.paper.experiments.collectives import ALL_REDUCE, ALL_TO_ALL, LOSSES, MRC, QPS, roce

MB = 1_000_000


def row(
    last_us: float, completed: int = 10, kind: str = "ring-all-reduce", size: int = 64 * MB
) -> dict[str, Any]:
    figures = {"flows.completed": completed, "flows.total": 10, "workload.kind": kind}
    figures |= {"workload.size": size, "workload.steps": 1260}
    return figures | {"slowdown_p100": 2.0, "ideal_us": last_us / 2}


def test_what_a_nic_sent_a_second() -> None:
    # 64 MB in an all-reduce of 64: 126 MB leave each NIC; 3 ms: 42 GB/s
    assert math.isclose(collectives.gbps(row(3000)), 336)
    assert math.isclose(collectives.gbps(row(1000, kind="all-to-all")), 504)


def test_all_reduces_on_end_are_their_steps() -> None:
    # ten of 64 MB, 126 steps of 1 MB each
    assert math.isclose(collectives.gbps(row(30_000, kind="send-recv", size=MB)), 336)


def test_a_collective_that_did_not_end_had_no_rate() -> None:
    assert collectives.gbps(row(3000, completed=9)) == 0


def test_ratios_of_medians_and_of_seeds() -> None:
    over = {4: [10.0, 30.0, 20.0], 16: [40.0], 64: [1.0]}
    under = {4: [10.0, 10.0, 40.0], 16: [0.0]}
    assert collectives.ratios(over, under, [4, 16, 64]) == [2.0, math.inf]
    assert collectives.by_seed(over, under, 4) == [1.0, 3.0, 0.5]
    assert collectives.by_seed(over, under, 64) == []
    assert collectives.by_seed(None, under, 4) == []


def test_the_best_roce_is_chosen_size_by_size() -> None:
    found = {
        (MRC, "0"): {4: [99.0], 16: [99.0]},
        (roce(1), "0"): {4: [30.0], 16: [40.0]},
        (roce(8), "0"): {4: [20.0], 16: [60.0]},
        (roce(8), "1 %"): {4: [90.0]},
    }
    assert collectives.best_roce(found, "0") == {4: [30.0], 16: [60.0]}
    assert collectives.best_roce({}, "0") is None


def test_cases_stop_at_the_largest_size_of_their_curve_and_loss() -> None:
    cases = collectives.cases(ALL_TO_ALL, {(MRC, "1 %"): 16, (roce(16), "0"): 4})
    assert [case.tag for case in cases] == [
        "MRC, 4 ports, loss 1 %, 4 MB",
        "MRC, 4 ports, loss 1 %, 16 MB",
        "RoCEv2, 16 QPs, loss 0, 4 MB",
    ]
    assert cases[-1].change["transport.qps"] == 16
    assert cases[-1].file == "B16_all_to_all_roce"
    assert cases[0].change["fault[0].rate"] == LOSSES["1 %"]
    assert roce(QPS[0]) == "RoCEv2, 1 QP"


def test_small_all_reduces_are_run_on_end() -> None:
    case, whole = collectives.cases(ALL_REDUCE, {(MRC, "0"): 64})[::2]
    _, traffic, _ = case.runs(quick=False)[0].scenario.build()
    assert traffic.n_sends == 64 * 126 * 20
    assert set(traffic.msg_bytes) == {62_500}
    assert whole.change["workload.size"] == "64MB"
