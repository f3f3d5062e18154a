from __future__ import annotations

from dataclasses import replace
from math import exp
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from openmrc.run.estimate import estimate
from openmrc.run.expected import TRIMS_LATER, UNDER_WAY_BDP, first_trims
from openmrc.run.work import (
    LATER,
    NIC_CHOICE,
    OF_A_THREAD,
    PLANE_CHOICE,
    TRIMMED,
    UNDER_WAY,
    Work,
    left_s,
)
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.world import Progress, World
from openmrc.traffic.traffic import make_traffic

INCAST = '[fabric]\nnics = 4\n[workload]\nkind = "incast"\nn = 3\nsize = "1MB"\n'


def known(**more: Any) -> Work:
    """Ten packets of ten bytes, without trims or faults."""
    values: dict[str, Any] = {
        "payload_bytes": 100,
        "packets": 10,
        "trims": 0,
        "planned_ps": np.zeros(0, np.int64),
        "planned": np.zeros(0),
        "ideal_ps": 50,
        "stop_ps": None,
    }
    return Work(**values | more)


def progress(now_ps: int = 5, sent: int = 0, trimmed: int = 0) -> Progress:
    return Progress(now_ps, 0, 2, 9, 0.1, sent, trimmed)


@pytest.mark.parametrize(
    ("placed", "sent", "trimmed", "packets"),
    [
        (0, 0, 0, 0.0),
        (25, 0, 0, 2.5),
        (0, 4, 0, 4 * UNDER_WAY),
        (25, 6, 0, 2.5 + 3.5 * UNDER_WAY),
        (90, 20, 0, 9 + UNDER_WAY),  # copies
        (0, 0, 10, 10 * TRIMMED),
        (100, 10, 10, 10 + 10 * TRIMMED),
    ],
)
def test_work_is_what_is_placed_in_the_network_or_trimmed(
    placed: int, sent: int, trimmed: int, packets: float
) -> None:
    share = known().share(progress(sent=sent, trimmed=trimmed), placed)
    assert share == pytest.approx(packets / (10 + TRIMMED * trimmed))


@pytest.mark.parametrize(("now_ps", "stop_ps", "share"), [(5, 10, 0.5), (2, 10, 0.25), (20, 10, 1)])
def test_the_time_until_the_stop_counts_if_more_of_it_is_over(
    now_ps: int, stop_ps: int, share: float
) -> None:
    assert known(stop_ps=stop_ps).share(progress(now_ps), 25) == share


@pytest.mark.parametrize(("trimmed", "expected"), [(0, 4), (3, 4), (4, 4), (5, 5)])
def test_the_trims_of_first_windows_are_expected(trimmed: int, expected: int) -> None:
    done = 2.5 + TRIMMED * trimmed
    share = known(trims=4).share(progress(trimmed=trimmed), 25)
    assert share == pytest.approx(done / (10 + TRIMMED * expected))


@pytest.mark.parametrize(
    ("now_ps", "over", "expected"),
    [(0, 0, 5), (9, 0, 5), (10, 2, 5), (59, 5, 5), (60, 9, 9), (900, 14, 14)],
)
def test_what_is_planned_is_expected_as_long_as_every_run_lasts(
    now_ps: int, over: int, expected: int
) -> None:
    work = known(planned_ps=np.array([10, 50, 60, 70]), planned=np.array([2.0, 3.0, 4.0, 5.0]))
    assert work.share(progress(now_ps), 25) == pytest.approx((2.5 + over) / (10 + expected))


def test_a_workload_without_bytes_has_done_nothing() -> None:
    assert known(payload_bytes=0, packets=0).share(progress(), 0) == 0


def test_the_work_of_a_world() -> None:
    # windows of 50 B: five packets from NIC 0, four from NIC 1, of which NIC 2 receives five
    traffic = make_traffic(
        "incast", 3, qp_src=[0, 1], qp_dst=[2, 2], msg_qp=[0, 1], msg_bytes=[60, 35]
    )
    world: Any = SimpleNamespace(
        traffic=traffic,
        transport=SimpleNamespace(pmtu=10),
        derived=lambda: {"max_window_bytes": 50, "bdp_bytes": 100},
        fabric=SimpleNamespace(n_nics=3, n_planes=4),
        side=SimpleNamespace(
            choices_at=np.array([7, 40]),
            in_vain=lambda traffic: (np.array([6, 30]), np.array([1.5, 2.5])),
        ),
        stop_ps=9,
    )
    work = Work.of(world, 8)
    later = int(
        TRIMS_LATER * 2 * 10 / 10
    )  # two senders, windows of ten packets, ten packets in all
    assert (work.payload_bytes, work.packets, work.trims) == (95, 10, 4 + later)
    # the run lasts until all that is known to be sent in vain has been
    assert (work.planned_ps.tolist(), work.ideal_ps, work.stop_ps) == ([6, 7, 30, 40], 30, 9)
    choice = 3 * NIC_CHOICE + 4 * 4 * PLANE_CHOICE
    assert work.planned.tolist() == pytest.approx([1.5, choice, 2.5, choice])


@pytest.mark.parametrize(
    ("at_s", "share", "left"),
    [
        ([3], [0.2], None),  # a single step
        ([3, 5], [0.2, 0.4], 6),
        ([0, 1, 2], [0, 0.1, 0.2], 8),
        ([0, 1, 2], [0, 0.1, 0.5], 1.25),  # 0.4 a second lately
        ([0, 1, 2], [0, 0.4, 0.5], 5),
        ([0, 2, 4], [0, 0.2, 0.2], None),  # nothing lately
        ([0, 1, 4], [0, 0.2, 0.5], 5),  # from step to step it grows evenly
        ([10, 14], [0.5, 1.0], 0),
    ],
)
def test_the_rest_takes_a_tenth_longer_than_at_the_rate_of_the_second_half(
    at_s: list[float], share: list[float], left: float | None
) -> None:
    assert left_s(at_s, share) == (None if left is None else pytest.approx(LATER * left))


def test_how_long_a_long_run_took_to_begin_is_forgotten() -> None:
    steady = [(i, i / 100) for i in range(21)]
    slow = [(2 * i, i / 100) for i in range(11)] + [(10 + i, i / 100) for i in range(11, 31)]
    for steps, left in ((steady, 80), (slow, 70)):
        at_s, share = zip(*steps, strict=True)
        assert left_s(at_s, share) == pytest.approx(LATER * left)


@pytest.mark.parametrize(
    ("share", "settled", "left"),
    [
        ([0, 0.1, 0.2], 1.0, LATER * 8),  # the rate alone
        ([0, 0.1, 0.2], 0.0, 40),  # the model alone
        ([0, 0.1, 0.2], 0.25, 0.25 * LATER * 8 + 0.75 * 40),
        ([0, 0.2, 0.2], 1.0, 40),  # nothing was done lately
    ],
)
def test_a_model_counts_until_the_rate_has_settled(
    share: list[float], settled: float, left: float
) -> None:
    assert left_s([0, 1, 2], share, 40, settled) == pytest.approx(left)


def test_a_model_tells_after_a_single_step() -> None:
    assert left_s([3], [0.2], 40, 0.0) == pytest.approx(40)


@pytest.mark.parametrize(
    ("spent_s", "share", "left"),
    [(10, 0.2, 40), (30, 0.2, 20), (31, 0.2, 20), (99, 0.2, 20), (99, 1.0, 0)],
)
def test_by_the_model_at_least_half_of_what_is_left_takes_time(
    spent_s: float, share: float, left: float
) -> None:
    assert known(model_s=50).model_left_s(spent_s, share) == pytest.approx(left)
    assert known().model_left_s(spent_s, share) is None


def test_ends_of_messages_are_work() -> None:
    now = Progress(5, 1, 4, 9, 0.1, 0, 0)
    assert known(end=2.0).share(now, 25) == pytest.approx((2.5 + 2) / (10 + 8))


@pytest.mark.parametrize(("placed", "settled"), [(0, 0.0), (40, 1 - exp(-1)), (80, 1 - exp(-2))])
def test_a_rate_has_settled_when_what_the_network_holds_was_placed(
    placed: int, settled: float
) -> None:
    assert known(held=4, model_s=1.0).settled(placed) == pytest.approx(settled)
    assert known(held=4).settled(placed) == 1


@pytest.mark.parametrize(
    ("threads", "uncut", "model_s"), [(1, "", 8), (4, "", 8 / 4**OF_A_THREAD), (4, "small", 8)]
)
def test_a_model_of_one_core_is_of_as_many_as_run(threads: int, uncut: str, model_s: float) -> None:
    scenario = parse_scenario(INCAST)
    fabric, traffic, schedule = scenario.build()
    world = World(fabric, traffic, scenario.transport(0), schedule)
    world.threads, world.uncut = threads, uncut
    model = estimate(scenario, (fabric, traffic, schedule), world.transport)
    work = Work.of(world, 1, replace(model, loop_s=8.0, ends_s=2.0))
    assert work.model_s == pytest.approx(model_s)
    bdp_packets = UNDER_WAY_BDP * world.values.bdp_bytes / world.transport.pmtu
    trims = first_trims(traffic, world.transport.pmtu, world.values.max_window_bytes).sum()
    assert work.held == int(bdp_packets) + int(trims) > int(trims) > 0  # three send, one receives
    assert work.end * 3 / work.packets == pytest.approx(2 / 6)
