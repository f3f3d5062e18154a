"""Series: what is generated runs as what is listed does, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault
from openmrc.sim.net import state as ss
from openmrc.sim.world import Progress, World
from openmrc.traffic.traffic import Traffic, make_traffic, unroll
from openmrc.workload import (
    all_gather,
    broadcast,
    reduce_scatter,
    ring_all_reduce,
    send_recv,
    stream,
)
from tests.sim.lab import GBPS, NS, US, all_complete, clos, conserved, world_of
from tests.sim.worlds import LOSSY, same_run

# a rank that is cut off: the others run ahead until its predecessor's send queue is full
CUT_OFF = [
    Fault(5 * US, "port-down", "nic 2 plane 0", for_ps=150 * US),
    Fault(5 * US, "port-down", "nic 2 plane 1", for_ps=150 * US),
]


SERIES = {
    "ring": (ring_all_reduce(8, 800_003), ()),
    "ring, lanes": (ring_all_reduce(8, 900_001, channels=2, chunks=3), LOSSY),
    "ring, computing": (
        ring_all_reduce(8, 300_007, compute_ps=np.arange(8) * 3 * US + 100 * NS),
        LOSSY,
    ),
    "ring, stalled": (ring_all_reduce(8, 100_000), CUT_OFF),
    "reduce-scatter": (reduce_scatter(8, 400_000, chunks=2), LOSSY),
    "all-gather": (all_gather(8, 400_000, channels=2), ()),
    "neighbours": (send_recv(8, 60_000, steps=20), LOSSY),
    "chain": (broadcast(8, 1_000_000, chunks=200), LOSSY),
    "tree": (broadcast(8, 1_000_000, chunks=150, channels=2, shape="tree"), CUT_OFF),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_series_runs_as_its_messages_do(name: str) -> None:
    traffic, faults = SERIES[name]
    fabric = clos(nics=8, planes=2, down=2, up=4)
    world, listed = (world_of(fabric, t, faults) for t in (traffic, unroll(traffic)))
    assert world.net.message.nbytes < listed.net.message.nbytes
    all_complete(world)
    all_complete(listed)
    same_run(world, listed)
    if faults:
        assert world.counters()["retransmitted"] > 0


def test_more_messages_than_a_send_queue_holds_wait_their_turn() -> None:
    """200 chunks at the first rank: 64 in the queue, the others behind them, in order."""
    world = world_of(clos(nics=8, planes=2), broadcast(2, 1_000_000, chunks=200))
    world.run(until_ps=0)
    (series,) = world.net.series
    assert (series.n_posted, series.n_waiting) == (64, 136)
    all_complete(world)
    assert (series.n_posted, series.n_waiting, series.n_done) == (200, 0, 200)
    assert world.bytes_verified == 1_000_000


def test_a_run_in_slices_shows_how_far_a_series_is() -> None:
    world = world_of(clos(nics=8, planes=2), ring_all_reduce(8, 80_000))
    done = []
    for until_us in (0, 10, 20, 1000):
        seen: list[Progress] = []
        world.run(until_ps=until_us * US, progress=seen.append)
        done.append(seen[-1].flows_done)
        flows = world.flows()
        assert (
            (flows["done_ps"] >= 0).all() == (flows["delivered_ps"] >= 0).all() == (done[-1] == 112)
        )
    assert seen[-1].flows_total == 112
    assert done[0] == 0
    assert 0 < done[1] < done[2] < 112
    assert done[3] == 112


@pytest.mark.parametrize("more_ps", [1, 5 * US])
def test_computing_delays_every_step_but_the_first(more_ps: int) -> None:
    """14 steps below one T0; 7 us apart no acknowledgement is in the way of the next message."""
    fabric = multiplane(8, 1, 100 * GBPS, 8, 1, 500 * NS, 250 * NS)
    quick, slow = (
        all_complete(world_of(fabric, ring_all_reduce(8, 8 * 4096, compute_ps=time)))
        for time in (7 * US, 7 * US + more_ps)
    )
    assert slow.now_ps - quick.now_ps == 13 * more_ps


def test_a_job_starts_when_it_starts_and_computes_besides() -> None:
    """`start` is a time, `compute` a pause after an arrival."""
    late = make_traffic(
        "late", 8, [0, 1], [1, 0], [0, 1], 4096, [5 * US, 100 * US],
        recv=([0], [1]), imm=True, compute_ps=[0, 3 * US],
    )  # fmt: skip
    flows = all_complete(world_of(clos(), late)).flows()
    assert flows["start_ps"].tolist() == [5 * US, 100 * US]
    soon = make_traffic(
        "soon", 8, [0, 1], [1, 0], [0, 1], 4096, [5 * US, 6 * US],
        recv=([0], [1]), imm=True, compute_ps=[7 * US, 3 * US],
    )  # fmt: skip
    flows = all_complete(world_of(clos(), soon)).flows()
    assert flows["start_ps"].tolist() == [5 * US, int(flows["delivered_ps"][0]) + 3 * US]


def released_after(imm: bool) -> tuple[int, int, int]:
    """Two messages of one QP, the first larger and lossy: arrivals, and when 2 goes that waits for
    the second.
    """
    traffic = make_traffic(
        "two", 8, [0, 7], [7, 0], [0, 0, 1], [400_000, 100, 100], recv=([1], [2]), imm=imm
    )
    faults = [Fault(0, "link-loss", "plane 0 t0 0 - t1 *", rate=0.3)]
    flows = all_complete(world_of(clos(nics=8, planes=2), traffic, faults)).flows()
    first, second = flows["delivered_ps"][:2].tolist()
    assert second < first  # it overtook
    return first, second, int(flows["start_ps"][2])


def test_an_immediate_releases_in_order_and_a_plain_write_does_not() -> None:
    """MRC 1.3: the receiver learns of an immediate when all before it is there."""
    first, _, released = released_after(imm=True)
    assert released == first
    _, second, released = released_after(imm=False)
    assert released == second


def test_when_one_rank_dies_its_ring_is_over() -> None:
    fabric = clos(nics=8, planes=2)
    faults = [Fault(5 * US, "port-down", f"nic 3 plane {plane}") for plane in range(2)]
    ring = ring_all_reduce(8, 800_000)
    world = world_of(fabric, ring, faults, linear_cnt=1, exp_cnt=1)
    world.run()
    conserved(world)
    fate = np.asarray(world.net.message.fate)
    failed = np.flatnonzero(fate == ss.FAILED)
    assert len(failed) > 0
    assert set(failed.tolist()) <= {2, 3}  # from nic 2 to nic 3, and from there to nic 4
    assert (np.delete(fate, failed) == ss.ORPHAN).all()
    assert (world.flows()["done_ps"] == -1).all()
    assert all(world.errors()[m] for m in failed)
    assert world.net.ctl[0].messages_open == 0


def test_what_arrived_in_time_is_not_orphaned_by_an_error_after_it() -> None:
    """Message 0 is there, message 1 computes; that 0's acknowledgement never comes stops nobody."""
    traffic = make_traffic(
        "late ack", 8, [0, 7], [7, 6], [0, 1], 100, recv=([0], [1]), imm=True,
        compute_ps=[0, 1_000_000 * US],
    )  # fmt: skip
    faults = [Fault(3 * US, "port-down", f"nic 0 plane {plane}") for plane in range(2)]
    world = world_of(clos(nics=8, planes=2), traffic, faults, linear_cnt=1, exp_cnt=1)
    world.run()
    assert np.asarray(world.net.message.fate).tolist() == [ss.FAILED, ss.COMPLETED]


# --- thousands of ranks ------------------------------------------------------------------------


def arrays_mb(world: World, names: Sequence[str]) -> float:
    return sum(int(getattr(world.net, name).nbytes) for name in names) / 1e6


def test_a_ring_of_8192_takes_its_first_steps() -> None:
    """134 million messages to come: 128 B of records a rank say which."""
    fabric = multiplane(8192, 1, 100 * GBPS, 64, 64, 500 * NS, 250 * NS)
    ring = ring_all_reduce(8192, 8192 * 2048)
    assert ring.n_sends == 134_201_344
    world = world_of(fabric, ring, stop=40 * US, evs_active=4, evs_backup=0, mpr=128, pmtu=2048)
    kept = arrays_mb(world, ["message", "series", "roster", "release"])
    assert kept == pytest.approx(8192 * 128 / 1e6)
    assert arrays_mb(world, ["unit"]) == pytest.approx(8192 * 128 * 2 / 1e6)
    assert world.run()
    assert world.now_ps == 40 * US
    assert world.bytes_wrong == 0
    done = np.asarray(world.net.series.n_done)
    assert done.min() >= 4  # steps of one packet: a few microseconds each
    assert world.bytes_verified >= done.sum() * 2048


def test_a_long_series_needs_no_more_than_a_short_one() -> None:
    def allocated(traffic: Traffic) -> dict[str, Any]:
        world = world_of(clos(nics=8, planes=2), traffic)
        return {
            f"{type(state).__name__}.{name}": array.nbytes
            for state in (world.net, world.engine)
            for name, array in state._asdict().items()
        }

    short, long = (send_recv(8, 1_000_000, steps=steps) for steps in (100, 10_000_000))
    assert allocated(short) == allocated(long)
    # and where there is no series there is one record of them
    assert allocated(stream(0, 7, 10**9))["Net.series"] == ss.SERIES.itemsize
