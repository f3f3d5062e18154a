"""A world in shards is the same for any number of threads, to the last bit; however it is stopped,
looked at or short of room on the way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.fabric.kinds import BEGINS
from openmrc.sim import world as worlds
from openmrc.sim.net import cross, network, room
from openmrc.sim.net.state import FAILED, ORPHAN
from openmrc.sim.shards import crew, split
from openmrc.sim.world import Progress, World
from openmrc.traffic.traffic import Calcs, make_traffic
from openmrc.workload import permutation, ring_all_reduce
from openmrc.workload.patterns import stream
from tests.sim.lab import MS, US, all_complete, clos, conserved, in_slices, world_of
from tests.sim.shards.same import different, digest, scenario_of

SEEDS = (1, 2, 3, 4, 5, 7, 8, 10)  # scenarios of the soak, of MRC


@pytest.fixture(autouse=True)
def no_window_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all threads have a part in worlds of a few packets."""
    monkeypatch.setattr(crew, "ALONE_EVENTS", 0)


def eventful(shards: int = 4, threads: int = 1, **more: Any) -> World:
    """A permutation among all kinds of faults."""
    fabric = clos(nics=16, planes=2, down=2, up=4)
    faults = draw_faults(fabric, 7, len(BEGINS), 60 * US)
    traffic = permutation(16, 80_000, 5, channels=2)
    return world_of(fabric, traffic, faults, seed=6, shards=shards, threads=threads, **more)


def of_one_go() -> dict[str, Any]:
    world = eventful()
    world.run()
    return digest(world)


def apart(came: dict[str, Any], *names: str) -> dict[str, Any]:
    """All but these."""
    return {name: value for name, value in came.items() if name not in names}


@pytest.mark.parametrize("seed", SEEDS)
def test_any_number_of_threads_gives_the_same(seed: int) -> None:
    scenario = scenario_of(seed)
    assert scenario is not None
    n, differs = different(scenario, 2 + seed % 4)
    assert n > 1
    assert differs == []


def test_a_run_in_slices_with_samples_and_in_small_steps_is_the_run_in_one_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worlds, "EVENTS_A_STEP", 100)
    world = eventful(threads=3)
    world.sample(0, 10)
    in_slices(world, 333_333)
    assert digest(world) == of_one_go()


def test_progress_is_told_and_ends_with_everything() -> None:
    told: list[Progress] = []
    eventful(threads=2).run(progress=told.append)
    assert (told[-1].flows_done, told[-1].flows_total) == (32, 32)
    assert [p.link_traversals for p in told] == sorted(p.link_traversals for p in told)


def test_arrays_grow_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets first, for which 64 at a shard are far too few; then the heap."""
    expected = of_one_go()
    monkeypatch.setattr(split, "PACKETS_AT_START", 64)
    world = eventful(threads=2)
    world.net = world.net._replace(heap=world.net.heap[:200].copy())
    world.run()
    assert digest(world) == expected
    assert min(len(net.heap) for net in world.nets) > 200
    assert max(int(net.ctl[0].n_packets) for net in world.nets) > 64


def test_what_one_shard_frees_another_one_uses() -> None:
    """All data goes from the first to the last, more packets than there are records."""
    world = world_of(clos(nics=8, down=2), stream(0, 7, 40_000_000), shards=2, threads=2)
    world.run()
    assert world.counters()["data"] > 2 * split.PACKETS_AT_START
    assert sum(int(net.ctl[0].n_packets) for net in world.nets) == 2 * split.PACKETS_AT_START
    indices = [n for net in world.nets for n in _free(net)]
    assert len(set(indices)) == len(indices)
    assert len(indices) + world.counters()["in_flight"] == 2 * split.PACKETS_AT_START


def _free(net: Any) -> list[int]:
    """The indices of packets that a shard has free."""
    found, n = [], int(net.ctl[0].free_head)
    for _ in range(int(net.ctl[0].n_free)):
        found.append(n)
        n = int(net.hop[n].next)
    return found


def test_lists_of_packets_that_cross_are_longer_than_their_strands() -> None:
    world = world_of(clos(64, 2, 32, 32), permutation(64, 200_000, 5), shards=2)
    longest = 0
    for until in range(2, 20, 2):
        world.run(until * US)
        longest = max(longest, *(int(net.outgoing[:, cross.COUNT].max()) for net in world.nets))
    assert longest > 2 * cross.STRANDS
    all_complete(world)
    conserved(world)


def test_wider_bins_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = of_one_go()
    monkeypatch.setattr(network, "TIMELINE_BINS", 2)
    monkeypatch.setattr(network, "TIMELINE_BIN_PS", US)
    world = eventful(threads=2)
    world.run()
    assert world.bin_ps > US
    coarse = digest(world)
    names = [name for name in fine if name.startswith(("bin", "of each"))]
    assert apart(coarse, *names) == apart(fine, *names)
    assert sum(world.timeline()["goodput_bytes"]) == world.bytes_verified


def test_shards_are_told_of_the_failures_of_each_other() -> None:
    """A NIC dies in a ring: what it carries fails, and what waits for that is orphaned."""
    fabric = clos(nics=16, planes=2, down=1, up=4)
    dead = [Fault(3 * US, "port-down", "nic 5 plane *")]
    fates = []
    for shards, threads in ((1, 1), (8, 1), (8, 3)):
        ring = ring_all_reduce(16, 40_000)
        world = world_of(
            fabric,
            ring,
            dead,
            seed=3,
            rto_exponent=1,
            stop=400 * MS,
            shards=shards,
            threads=threads,
        )
        world.run()
        digest(world)
        fates.append((np.asarray(world.net.message.fate).tolist(), world.qp_errors()))
        assert world.flows()["failed"].any()
    assert fates[1] == fates[2]
    assert set(fates[0][1]) <= set(fates[1][1])  # the same QPs, but to the end of the window
    for fate, _ in fates:  # what fails in the window at whose end it would be an orphan has failed
        assert set(fate) == {FAILED, ORPHAN}


def test_a_job_ends_with_its_first_error_in_whichever_shard() -> None:
    fabric = clos(nics=8, planes=2, down=2, up=2)
    dead = [Fault(1 * US, "port-down", "nic 6 plane *")]
    traffic = replace(
        make_traffic("test", 8, [0, 4], [2, 6], [0, 1], [50_000_000, 50_000]), ends_on_error=True
    )
    died = []
    for threads in (1, 2):
        world = world_of(
            fabric, traffic, dead, rto_exponent=1, shards=4, threads=threads, stop=400 * MS
        )
        assert world.run()
        died.append((world.died_ps, digest(world)))
    one = world_of(fabric, traffic, dead, rto_exponent=1, stop=400 * MS)
    one.run()
    assert died[0] == died[1]
    assert died[0][0] == one.died_ps


def test_computations_and_their_releases_work_across_shards() -> None:
    """There and back, ten times, with a computation at each end: as in one shard, to the ps."""
    n = 20
    calcs = Calcs(np.full(n, 3 * US))
    recv = [(k, n + k) for k in range(n)] + [(n + k, k + 1) for k in range(n - 1)]
    traffic = make_traffic(
        "test",
        8,
        [0, 6],
        [6, 0],
        np.arange(n) % 2,
        20_000,
        recv=([a for a, _ in recv], [b for _, b in recv]),
        calcs=calcs,
    )
    ends = []
    for shards, threads in ((1, 1), (4, 1), (4, 4)):
        world = world_of(clos(nics=8, down=2), traffic, shards=shards, threads=threads)
        world.run()
        assert len(world.nets) == shards
        ends.append((world.calcs_ended_ps().tolist(), world.flows()["done_ps"].tolist()))
    assert ends[0] == ends[1] == ends[2]


def test_a_world_that_is_not_cut_says_why() -> None:
    fabric, traffic = clos(nics=8, down=2), permutation(8, 1000, 1)
    assert world_of(fabric, traffic).uncut == "8 NICs are no more than one core's caches hold"
    assert world_of(fabric, traffic, shards=4).uncut == ""


def test_taps_grow_while_a_window_lasts() -> None:
    net = world_of(clos(), permutation(8, 1000, 1)).net
    net = network.with_taps(net, np.arange(3), 8)
    more = room.more_taps(net)
    assert (len(net.tap), len(more.tap), len(more.tap_packet)) == (16, 32, 32)
