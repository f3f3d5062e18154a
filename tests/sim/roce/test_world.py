"""Whole RoCE worlds: bit for bit the same, conserved, whatever breaks, compiled or plain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.sim.roce import build
from openmrc.sim.world import World
from openmrc.workload import incast, permutation
from tests.sim import plain
from tests.sim.lab import MS, US, in_slices
from tests.sim.roce import worlds
from tests.sim.roce.lab import all_complete, balanced, every_message_ends, leaf_spine, roce_world


def eventful(seed: int = 1) -> World:
    """Marks, pauses, losses, cuts and repairs."""
    faults = [
        Fault(20 * US, "link-down", "plane 0 t0 0 - t1 1", for_ps=100 * US),
        Fault(30 * US, "link-loss", "plane 0 t0 * - t1 *", rate=0.01),
    ]
    more: dict[str, Any] = {"rto_ps": 100 * US, "convergence_ps": (5 * US, 50 * US), "qps": 2}
    traffic = incast(16, 8, 1_000_000, victim=True)
    return roce_world(leaf_spine(nics=16), traffic, faults, seed=seed, **more)


def test_more_packets_in_flight_get_room_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKETS_AT_START", 128)
    world = roce_world(leaf_spine(), permutation(8, 400_000, 1))
    before = world.net.hop
    all_complete(world)
    assert world.net.ctl[0].n_packets > 128
    assert np.shares_memory(world.net.hop, before)


def test_two_runs_of_a_seed_agree_in_every_byte() -> None:
    first, second = eventful(), eventful()
    first.run()
    second.run()
    assert worlds.outcome(first) == worlds.outcome(second)
    balanced(first)
    other = eventful(2)
    other.run()
    assert other.flows()["done_ps"].tolist() != first.flows()["done_ps"].tolist()


@pytest.mark.parametrize("slice_ps", [3_333_333, 7 * US])
def test_a_run_in_slices_is_the_run_in_one_go(slice_ps: int) -> None:
    whole, sliced = eventful(), in_slices(eventful(), slice_ps, balanced)
    whole.run()
    for part in ("flows", "counters", "timeline", "errors", "verified", "roce"):
        assert worlds.outcome(sliced)[part] == worlds.outcome(whole)[part], part


def test_looking_changes_nothing() -> None:
    whole, sampled = eventful(), eventful()
    sampled.sample(None, 50)
    whole.run()
    sampled.run()
    assert worlds.outcome(sampled)["flows"] == worlds.outcome(whole)["flows"]
    samples = sampled.samples()
    assert samples is not None
    assert samples.qp.values["used"].sum() > 0
    assert all(name.startswith("over plane 0 t1") for name in samples.qp.names.values())


@pytest.mark.parametrize("seed", range(12))
def test_whatever_breaks_the_books_balance(seed: int) -> None:
    """Every kind of fault, on one plane or four; all ends well or with an error that says why."""
    fabric = leaf_spine(planes=1 if seed % 2 else 4)
    faults = draw_faults(fabric, seed, 15, 300 * US)
    world = roce_world(
        fabric,
        permutation(8, 400_000, seed, channels=2),
        faults,
        seed=seed + 1,
        stop=100 * MS,
        qps=1 + seed % 3,
        pfc=seed % 4 < 2,
        rto_ps=200 * US,
        rto_first_ps=30 * US,
        local_repair_ps=20 * US,
        convergence_ps=(0, 100 * US),
    )
    every_message_ends(world, look_us=7)


def test_random_loss_at_all_nics_is_survived() -> None:
    fault = Fault(0, "link-loss", "nic * plane 0 - t0", rate=0.01)
    world = roce_world(leaf_spine(), permutation(8, 1_000_000, 1), [fault], rto_ps=500 * US)
    all_complete(world)
    assert world.counters()["dropped_fault"] > 10


@pytest.mark.timeout(300)
def test_plain_python_and_compiled_code_say_the_same() -> None:
    interpreted = plain.run_plain("tests.sim.roce.worlds")
    total: dict[str, int] = {}
    for name, world in worlds.worlds().items():
        world.run()
        compiled = json.loads(json.dumps(worlds.outcome(world)))
        for part, value in compiled.items():
            assert interpreted[name][part] == value, f"{name}: {part}"
        for key, value in compiled["counters"].items():
            total[key] = total.get(key, 0) + value
    seen = ("naks", "cnps", "go_backs", "timeouts", "discarded", "no_route", "pauses")
    for key in ("ecn_marked", "dropped_fault", "dropped_queue", *(f"roce.{k}" for k in seen)):
        assert total[key] > 0, key
