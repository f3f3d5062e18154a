"""Series among messages and computations: gates, and jobs that end with their first error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.world import World
from openmrc.traffic.earliest import earliest_ps, no_cost
from openmrc.traffic.ideal import costs
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic, unroll
from openmrc.workload.layout import make_layout
from openmrc.workload.model import Sizes
from openmrc.workload.phases import REDUCE_SCATTER, Work
from openmrc.workload.training import training
from tests.sim.lab import FRAME, MS, NS, US, clos, conserved, world_of
from tests.sim.worlds import LOSSY, same_run

WORK = Work(
    steps=2,
    microbatches=2,
    layers=2,
    forward_ps=20 * US,
    backward_ps=40 * US,
    optimizer_ps=5 * US,
    jitter=0.3,
    sizes=Sizes(tp=60_003, pp=30_000, ep=40_000, dp=100_001, expert=50_000),
    bucket_bytes=100_000,
)


def two_ends(gate_ps: int, count: int = 3, compute_ps: int = 0) -> Traffic:
    """A series that its receiver's passes on, behind a gate at the sender and one at the receiver;
    a computation waits for all of it.
    """
    return make_traffic(
        "two ends",
        4,
        qp_src=[0, 1],
        qp_dst=[1, 2],
        msg_qp=[0, 1],
        msg_bytes=4096,
        # entries 2 and 3 are the gates, 4 is the end
        recv=([2, 3, 0, 1], [0, 1, 1, 4]),
        deps=[1 - count, 1],
        imm=True,
        count=count,
        compute_ps=[0, compute_ps],
        calcs=Calcs([10 * US, gate_ps, 7 * US]),
    )


def ended_ps(world: World) -> list[int]:
    world.run()
    conserved(world)
    return world.calcs_ended_ps().tolist()  # type: ignore[no-any-return]


SEND = (4096 + FRAME + 4) * 80  # ps at 100 Gb/s, with its immediate
ACROSS = 2 * SEND + 2 * 500 * NS + 250 * NS  # one packet through one T0
ACK = 178 * 80  # may be on a port when a packet comes


def test_nothing_of_a_series_leaves_before_its_gate_opens() -> None:
    """Gate at 10 us: three packets on two planes, stored and forwarded, each passed on at once."""
    world = world_of(clos(nics=4, planes=1), two_ends(0))
    first, second, end = ended_ps(world)
    assert (first, second) == (10 * US, 0)
    # the third packet waits for two before it, then crosses twice
    expected = 10 * US + 2 * SEND + 2 * ACROSS + 7 * US
    assert expected <= end <= expected + 6 * ACK
    starts = world.flows()["start_ps"].tolist()
    assert starts == [10 * US, 10 * US + ACROSS]  # no acknowledgement is in the way yet


def test_what_came_before_the_gate_opened_goes_on_at_once() -> None:
    world = world_of(clos(nics=4, planes=1), two_ends(500 * US, compute_ps=3 * US))
    *_, end = ended_ps(world)
    assert world.flows()["start_ps"].tolist() == [10 * US, 503 * US]
    expected = 503 * US + 2 * SEND + ACROSS + 7 * US
    assert expected <= end <= expected + ACK


@pytest.mark.parametrize("gate_ps", [0, 12 * US, 500 * US])
@pytest.mark.parametrize("count", [2, 90])
def test_a_gated_series_runs_as_its_messages_do(gate_ps: int, count: int) -> None:
    traffic = two_ends(gate_ps, count, compute_ps=2 * US)
    fabric = clos(nics=4, planes=2)
    world, listed = (world_of(fabric, t) for t in (traffic, unroll(traffic)))
    assert ended_ps(world) == ended_ps(listed)
    same_run(world, listed)


@pytest.mark.parametrize("kind", ["all-reduce", REDUCE_SCATTER])
def test_training_runs_as_its_messages_do_through_loss_and_cuts(kind: str) -> None:
    layout = make_layout(16, tp=4, pp=2, ep=2)
    work = replace(WORK, tp_collective=kind, dp_collective=kind)
    traffic = training(16, layout, work, seed=4)
    fabric = clos(nics=16, planes=2, down=2, up=4)
    world, listed = (world_of(fabric, t, LOSSY) for t in (traffic, unroll(traffic)))
    assert world.net.message.nbytes < listed.net.message.nbytes
    assert ended_ps(world) == ended_ps(listed)
    same_run(world, listed)
    assert world.counters()["retransmitted"] > 0
    compute, _ = earliest_ps(traffic, no_cost(traffic), 2)
    ends = np.array(ended_ps(world))
    assert (ends >= compute[traffic.n_msgs :] + traffic.calc_ps).all()


def one_layer(tp: int, size: int) -> Traffic:
    work = Work(
        steps=3,
        microbatches=1,
        layers=1,
        forward_ps=20 * US,
        backward_ps=40 * US,
        optimizer_ps=5 * US,
        jitter=0.0,
        sizes=Sizes(tp=size, pp=0, ep=0, dp=0, expert=0),
        bucket_bytes=1,
    )
    return training(tp, make_layout(tp, tp=tp, pp=1), work)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_time_of_a_step_is_what_arithmetic_says(ranks: int) -> None:
    """Four all-reduces of one packet a block: each 2(n - 1) packets one after the other."""
    fabric, traffic = clos(nics=4, planes=2), one_layer(ranks, 4096 * ranks)
    packets = 4 * 2 * (ranks - 1)
    step = 20 * US + 40 * US + 5 * US + packets * ACROSS
    perfect = costs(fabric, traffic, lambda payload: payload + FRAME + 4, 4096, 178)
    begin, _ = earliest_ps(traffic, perfect, fabric.n_planes)
    ideal = (begin[traffic.n_msgs :] + traffic.calc_ps)[traffic.step_ends]
    assert ideal.tolist() == [[step] * ranks, [2 * step] * ranks, [3 * step] * ranks]
    world = world_of(fabric, traffic)
    ends = np.array(ended_ps(world))[traffic.step_ends]
    assert (ends >= ideal).all()
    assert (ends <= ideal + np.arange(1, 4)[:, None] * packets * ACK).all()


def test_the_first_error_ends_a_job() -> None:
    """A NIC falls silent in the second step; its partners' queue pairs give up, and all is over."""
    traffic = one_layer(4, 4096 * 4)
    fabric = clos(nics=4, planes=2)
    cut = [Fault(150 * US, "port-down", f"nic 2 plane {plane}") for plane in (0, 1)]
    quick: dict[str, Any] = {"rto_exponent": 0, "linear_cnt": 2, "exp_cnt": 1}
    world = world_of(fabric, traffic, cut, **quick)
    assert world.run()
    assert world.died_ps == world.now_ps
    assert 150 * US < world.now_ps < MS
    assert len(world.qp_errors()) == 1
    assert world.flows()["failed"].sum() >= 1
    ends = world.calcs_ended_ps()[traffic.step_ends]
    assert (ends >= 0).all(axis=1).tolist() == [True, False, False]
    assert ends.max() <= world.now_ps
    # a workload that is no such job goes on for as long as anything can
    other = world_of(fabric, replace(traffic, ends_on_error=False), cut, **quick)
    other.run()
    assert other.died_ps is None
    assert other.now_ps > world.now_ps


def test_a_series_behind_a_gate_that_never_opens_is_orphaned() -> None:
    """The gate is a message of a queue pair that fails."""
    traffic = make_traffic(
        "gated",
        4,
        qp_src=[0, 1],
        qp_dst=[1, 2],
        msg_qp=[0, 1],
        msg_bytes=4096,
        recv=([0], [1]),
        deps=[0, -4],
        imm=True,
        count=[1, 5],
    )
    fabric = clos(nics=4, planes=1)
    cut = [Fault(0, "port-down", "nic 1 plane 0")]
    world = world_of(fabric, traffic, cut, rto_exponent=0, linear_cnt=1, exp_cnt=0)
    world.run()
    conserved(world)
    assert world.flows()["failed"].tolist() == [True, False]
    assert world.net.ctl[0].messages_orphaned == 1
    assert world.net.ctl[0].messages_open == 0
