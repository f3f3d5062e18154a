"""A run is a function of its arguments, bit for bit: twice, in slices, and without compilation."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim import world as worlds
from openmrc.sim.world import Progress
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import incast, permutation
from tests.sim import plain
from tests.sim.lab import MS, US, clos, fct, in_slices, world_of
from tests.sim.worlds import eventful


def test_two_runs_of_a_seed_agree_in_every_byte() -> None:
    first, second = eventful(), eventful()
    first.run()
    second.run()
    assert plain.outcome(first) == plain.outcome(second)
    c = first.counters()
    assert min(c["trimmed"], c["dropped_fault"], c["retransmitted"], c["assumed_bad"]) > 0


def test_different_seeds_differ() -> None:
    times = set()
    for seed in range(1, 6):
        world = eventful(seed)
        world.run()
        times.add(tuple(fct(world).tolist()))
    assert len(times) == 5


def test_what_is_drawn_at_a_port_is_no_matter_of_what_happens_elsewhere() -> None:
    """Coins, marks and losses of an incast, with and without another below the next T0."""
    fabric = clos(nics=16, down=8, planes=4)
    lossy = [Fault(0, "link-loss", "nic * plane * < t0", rate=0.01)]
    runs = []
    for targets in ((0,), (0, 8)):
        traffic = make_traffic(
            "incasts",
            16,
            qp_src=[target + k for target in targets for k in range(1, 8)],
            qp_dst=[target for target in targets for _ in range(7)],
            msg_qp=np.arange(7 * len(targets)),
            msg_bytes=300_000,
        )
        world = world_of(fabric, traffic, lossy)
        world.run()
        runs.append((fct(world)[:7].tolist(), world.flows()["retransmitted"][:7].tolist()))
        assert min(world.counters()[name] for name in ("trimmed", "dropped_fault")) > 20
    assert runs[0] == runs[1]


@pytest.mark.parametrize("slice_ps", [333_333, 7 * US, 1 * MS])
def test_a_run_in_slices_is_the_run_in_one_go(slice_ps: int) -> None:
    whole, sliced = eventful(), in_slices(eventful(), slice_ps)
    whole.run()
    for part in ("flows", "counters", "timeline", "errors", "verified", "engine"):
        assert plain.outcome(sliced)[part] == plain.outcome(whole)[part], part
    assert sliced.now_ps == whole.now_ps


def test_looking_changes_nothing() -> None:
    whole, watched = eventful(), eventful()
    whole.run()
    seen: list[Progress] = []
    watched.run(progress=seen.append)
    watched.flows(), watched.counters(), watched.timeline(), watched.derived(), watched.errors()
    assert plain.outcome(watched) == plain.outcome(whole)
    assert (seen[-1].flows_done, seen[-1].flows_total) == (9, 9)
    assert seen[-1].link_traversals == whole.counters()["link_traversals"]


def test_the_first_steps_are_short_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stepped = eventful(), eventful()
    whole.run()
    for name, value in (("EVENTS_AT_FIRST", 128), ("STEPS_SO_FAR", 2), ("EVENTS_A_STEP", 512)):
        monkeypatch.setattr(worlds, name, value)
    events: list[int] = []
    stepped.run(progress=lambda _: events.append(int(stepped.net.ctl[0].events)))
    assert events[:6] == [128, 256, 384, 576, 896, 1344]  # whole multiples of 64
    assert max(np.diff(events)) == 512
    assert plain.outcome(stepped) == plain.outcome(whole)


@pytest.mark.parametrize("start_ps", [1 * US, 1 * MS, 1000 * MS, 60_000 * MS])
def test_a_run_does_not_depend_on_when_it_starts(start_ps: int) -> None:
    """Time zero is no special time, and a long silence before the first packet leaves no trace."""
    traffic = incast(16, 8, 1_000_000, victim=True)
    worlds = [
        world_of(clos(nics=16), replace(traffic, msg_start_ps=traffic.msg_start_ps + start))
        for start in (1, start_ps)
    ]
    for world in worlds:
        world.run()
    early, late = worlds
    assert fct(late).tolist() == fct(early).tolist()
    assert late.counters() == early.counters()


def test_the_fabric_and_the_workload_are_not_written_to() -> None:
    fabric, traffic = clos(), permutation(8, 100_000, 1)
    arrays = [a for a in (vars(fabric) | vars(traffic)).values() if isinstance(a, np.ndarray)]
    before = [array.copy() for array in arrays]
    world_of(fabric, traffic, [Fault(5 * US, "switch-down", "plane 0 t1 0")]).run()
    for old, array in zip(before, arrays, strict=True):
        assert (old == array).all()


SAID = {  # of packets in a simulated network, where no stranger writes any and no switch lies
    "taken in",
    "placed",
    "trimmed, and requested again",
    "received before",
    "queue pair is not ready",
}


# --- plain Python -----------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_plain_python_and_compiled_code_say_the_same() -> None:
    """Flows, counters, timelines and every byte of every array; and at every send of the plain run
    the window had room (`plain.watch_every_send`), and no packet that came spoke of what was never
    sent, or was otherwise out of place.
    """
    interpreted = plain.run_plain("tests.sim.plain")
    assert interpreted["sends"] > 1000
    verdicts = interpreted["verdicts"]
    assert verdicts["placed"] > 1000
    assert set(verdicts) <= SAID
    for name, world in plain.worlds().items():
        world.run()
        compiled = json.loads(json.dumps(plain.outcome(world)))
        for part, value in compiled.items():
            assert interpreted["worlds"][name][part] == value, f"{name}: {part}"


def test_those_worlds_see_what_there_is_to_see() -> None:
    """So that the comparison means something."""
    total: dict[str, int] = {}
    for world in plain.worlds().values():
        world.run()
        for key, value in world.counters().items():
            total[key] = total.get(key, 0) + value
    for key in ("trimmed", "ecn_marked", "dropped_fault", "retransmitted", "inferred", "revived"):
        assert total[key] > 0, key
