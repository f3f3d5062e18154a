"""RoCEv2 in shards: the same for any number of threads, with pauses and routes that cross."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.fabric.kinds import BEGINS
from openmrc.jit import compiled
from openmrc.sim.net.state import COMPLETED
from openmrc.sim.roce import flow
from openmrc.sim.shards import crew
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import incast, permutation
from tests.sim.lab import MS, US, clos, in_slices
from tests.sim.roce.lab import roce, roce_world, side
from tests.sim.shards.same import different, digest, scenario_of

SEEDS = (6, 9, 15, 17, 18)  # scenarios of the soak, of RoCEv2: of every routing


@pytest.fixture(autouse=True)
def no_window_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all threads have a part in worlds of a few packets."""
    monkeypatch.setattr(crew, "ALONE_EVENTS", 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_number_of_threads_gives_the_same(seed: int) -> None:
    scenario = scenario_of(seed, "roce")
    assert scenario is not None
    n, differs = different(scenario, 2 + seed % 4)
    assert n > 1
    assert differs == []


def full(shards: int = 4, threads: int = 1, faults: list[Fault] | None = None) -> World:
    """Seven NICs send to the first one, through switches with little room."""
    return roce_world(
        clos(nics=8, planes=1, down=2, up=2),
        incast(8, 7, 200_000),
        faults or [],
        cc="none",
        buffer_bytes=300_000,
        convergence_ps=(20 * US, 20 * US),
        local_repair_ps=5 * US,
        shards=shards,
        threads=threads,
        stop=40 * MS,
    )


def abroad(world: World, name: str) -> int:
    """The sum of a field of `pfc.LINK`, over the links from shard to shard."""
    crosses = np.asarray(world.net.port.abroad) > 0
    return int(side(world).state.pause[name][crosses].sum())


def test_pauses_cross_and_nothing_is_lost() -> None:
    came = []
    for threads in (1, 3):
        world = full(threads=threads)
        world.run()
        came.append(digest(world))
        assert abroad(world, "frames_sent") >= abroad(world, "pauses") > 5
        assert roce(world)["pfc_drops"] == 0
        assert (np.asarray(world.net.message.fate) == COMPLETED).all()
    assert came[0] == came[1]


def test_rates_that_follow_round_trips_are_the_same_for_any_number_of_threads() -> None:
    came = []
    for threads in (1, 3):
        world = roce_world(
            clos(nics=8, planes=1, down=2, up=2),
            incast(8, 7, 1_000_000),
            cc="rtt",
            shards=4,
            threads=threads,
        )
        world.run()
        came.append(digest(world))
        assert roce(world)["cnps"] > 0
    assert came[0] == came[1]


def test_an_incast_takes_as_long_as_in_one_shard() -> None:
    """All of it goes over one link; only the order of equal times differs."""
    took = []
    for shards in (1, 4):
        world = full(shards)
        world.run()
        took.append(world.now_ps)
    assert took[1] == pytest.approx(took[0], rel=0.01)


def test_a_dead_link_is_left_by_all_shards_at_one_instant() -> None:
    """Each switch on its own side at once, all when routing has converged; then it is repaired."""
    fault = Fault(10 * US, "link-down", "plane 0 t0 3 - t1 0", for_ps=50 * US)
    came = []
    for threads in (1, 4):
        world = full(threads=threads, faults=[fault])
        broken = []
        for at in (10, 15, 29, 30, 79, 80):
            world.run(until_ps=at * US)
            broken.append(int(world.net.routing[0].broken))
        world.run()
        assert broken == [0, 2, 2, 2, 2, 0]
        came.append(digest(world))
    assert came[0] == came[1]


def test_a_switch_that_dies_resumes_links_of_other_shards() -> None:
    """Its queues are empty at once, and so it holds nobody back."""
    fault = Fault(30 * US, "switch-down", "plane 0 t1 0", for_ps=1 * MS)
    came = []
    for threads in (1, 3):
        world = full(threads=threads, faults=[fault])
        world.run()
        came.append(digest(world))
    assert came[0] == came[1]
    assert came[0]["roce.pauses"] > 0


def eventful(threads: int = 1) -> World:
    """A striped permutation among all kinds of faults."""
    fabric = clos(nics=16, planes=2, down=2, up=4)
    return roce_world(
        fabric,
        permutation(16, 80_000, 5, channels=2),
        draw_faults(fabric, 7, len(BEGINS), 60 * US),
        qps=3,
        seed=6,
        convergence_ps=(20 * US, 30 * US),
        local_repair_ps=5 * US,
        shards=4,
        threads=threads,
        stop=300 * US,
    )


def test_a_run_in_slices_with_samples_is_the_run_in_one_go() -> None:
    whole, sliced = eventful(), eventful(threads=3)
    whole.run()
    sliced.sample(0, 10)
    in_slices(sliced, 3_333_333)
    assert digest(sliced) == digest(whole)


def test_immediates_of_stripes_are_delivered_in_order_across_shards() -> None:
    """Each of twenty messages lets one go at its receiver, there and back."""
    n = 20
    traffic = make_traffic(
        "test",
        8,
        [0, 6],
        [6, 0],
        np.arange(n) % 2,
        20_000,
        recv=(list(range(n - 1)), list(range(1, n))),
        imm=True,
    )
    ends = []
    for shards, threads in ((1, 1), (4, 1), (4, 4)):
        world = roce_world(clos(nics=8, down=2), traffic, qps=3, shards=shards, threads=threads)
        world.run()
        ends.append(world.flows()["done_ps"].tolist())
    assert ends[0] == ends[1] == ends[2]


@compiled
def cross(net: Any, number: int, at: int, now: int) -> None:
    flow._cross(net, 1, number, at, now)


@compiled
def arrive(net: Any, n: int, now: int) -> Any:
    return flow.crossed(net, n, now)


def test_a_frame_may_wait_for_longer_than_the_wheel_reaches() -> None:
    world = full()
    world.run(until_ps=0)
    net = world.nets[0]
    c = net.ctl[0]
    reach = int((c.bucket_mask + 1 - 4) << c.shift)
    n = int(c.free_head)
    cross(net, 42, reach + 1 * US, 0)
    assert (int(net.hop[n].at), int(net.hop[n].rest_ps), int(c.n_frames)) == (reach, 1 * US, 1)
    assert arrive(net, n, reach) == -1
    assert (int(net.hop[n].at), int(net.hop[n].rest_ps)) == (reach + 1 * US, 0)
    assert arrive(net, n, reach + 1 * US) == 42
    assert (int(c.n_frames), int(c.free_head)) == (0, n)
