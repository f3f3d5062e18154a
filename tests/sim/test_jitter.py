"""Links whose packets are late: by how much, in which order, and what MRC makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.rtt import base_rtt_ps
from openmrc.workload.patterns import permutation
from tests.sim import bench
from tests.sim.lab import MS, US, Ints, all_complete, clos, conserved, fct, stream_world, world_of
from tests.sim.worlds import silent_plane, slow_planes

JITTER = 5 * US
KIB = 1024
CUT = 60 * MS
LASTS = 150 * MS


def late(fabric: Fabric, jitter_ps: int = JITTER) -> Fabric:
    """The same fabric; each packet is up to so late at the end of each link."""
    return replace(fabric, jitter_ps=jitter_ps)


def lateness(due: Ints) -> Ints:
    found = np.zeros_like(due)
    bench.lateness(stream_world(late(clos(nics=2, down=1))).net, 3, due, found)
    return found


def test_a_packet_is_late_by_a_time_that_is_drawn_up_to_the_jitter() -> None:
    found = lateness(np.arange(1000) * 2 * JITTER)
    assert found.min() >= 0
    assert 0.98 * JITTER < found.max() <= JITTER
    assert found.mean() == pytest.approx(JITTER / 2, rel=0.1)


def test_packets_of_a_link_keep_their_order_and_arrive_in_bursts() -> None:
    due = np.arange(1000) * US
    found = lateness(due)
    assert (np.diff(due + found) >= 0).all()
    assert (np.diff(due + found) == 0).any()
    assert found.max() <= JITTER


def test_each_link_adds_its_own_and_without_jitter_nothing_is_late() -> None:
    """One packet over four links has nothing to wait for."""

    def delivered(fabric: Fabric, seed: int) -> int:
        world = all_complete(stream_world(fabric, size=1000, seed=seed))
        return int(world.flows()["delivered_ps"][0])

    fabric = clos(nics=2, planes=1, down=1, up=1)
    on_time = {delivered(fabric, seed) for seed in (1, 2, 3)}
    assert len(on_time) == 1
    found = np.array([delivered(late(fabric), seed) for seed in range(1, 31)]) - on_time.pop()
    assert 0 < found.min() < found.max() <= 4 * JITTER
    assert found.mean() == pytest.approx(2 * JITTER, rel=0.2)


def test_the_base_round_trip_has_the_mean_jitter_of_its_links() -> None:
    """Four links each way."""
    plain, fabric = clos(), late(clos())
    assert base_rtt_ps(fabric, 4262, 100) - base_rtt_ps(plain, 4262, 100) == 4 * JITTER


def test_a_run_is_a_function_of_its_seed_and_nothing_is_lost_track_of() -> None:
    def times(seed: int) -> Ints:
        fault = Fault(10 * US, "link-loss", "plane 0 t0 * - t1 *", rate=0.01, for_ps=50 * US)
        return fct(
            all_complete(world_of(late(clos()), permutation(8, 500_000, 1), [fault], seed=seed))
        )

    assert times(1).tolist() == times(1).tolist() != times(2).tolist()


# --- a plane falls silent where packets overtake each other by more than a round trip


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("jitter_ps", [0, 300 * US])
def test_a_silent_plane_costs_two_round_trips_and_its_share_of_the_rate(
    jitter_ps: int, seed: int
) -> None:
    world = silent_plane(jitter_ps, seed, CUT, 5 * MS)  # T as two hosts there measure it
    world.run()
    conserved(world)
    counters = world.counters()
    # the plane was in use; answers left it soon, so there were not many more than a window's part
    assert 20 < counters["dropped_fault"] < 100
    assert counters["timeouts"] == 0
    assert counters["false_alarms"] <= (3 if jitter_ps else 0)  # so late is a packet now and then
    done = np.sort(world.flows()["done_ps"])
    after = done[done > CUT]
    assert np.diff(after, prepend=CUT).max() < 10 * MS
    messages = (after > CUT + 50 * MS).sum()
    three_planes = 3 * 100e6 / 8 * 50e-3 * 4096 / 4262 / (16 * KIB)
    assert messages >= 0.97 * three_planes - 1  # one may just not be complete


# --- and where planes lose some packets, come and go, or all but one fall silent


def after_faults(faults: list[Fault], seed: int, planes_left: int) -> tuple[float, float]:
    """Stall in ms: the longest time without a completion after the cut, less that before it; and
    goodput from 50 ms after the cut on, of what so many planes carry.
    """
    world = slow_planes(faults, 300 * US, seed, CUT + LASTS)
    world.run()
    done = np.sort(world.flows()["done_ps"])
    calm = done[(done > 20 * MS) & (done < CUT)]
    after = done[done > CUT]
    stall = np.diff(after, prepend=CUT).max() - np.diff(calm).max()
    carried = planes_left * 100e6 / 8 * (LASTS - 50 * MS) / 1e12 * 4096 / 4262
    return float(stall) / MS, float((after > CUT + 50 * MS).sum()) * 16 * KIB / carried


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
def test_a_lossy_plane_costs_no_more_than_its_own_rate(rate: float) -> None:
    """Its losses are not congestion, so they leave the window to the other three."""
    for seed in range(1, 6):
        faults = [Fault(CUT, "link-loss", "plane 0 t0 * - t1 *", rate=rate)]
        stall_ms, goodput = after_faults(faults, seed, planes_left=3)
        assert stall_ms < 10
        assert goodput >= 0.97


@pytest.mark.parametrize("half_ps", [50 * MS, 5 * MS, 500 * US])
def test_a_flapping_plane_costs_little_more_than_its_own_rate(half_ps: int) -> None:
    flaps = range(CUT, CUT + LASTS, 2 * half_ps)
    faults = [Fault(at, "link-down", "plane 0 t0 * - t1 *", for_ps=half_ps) for at in flaps]
    for seed in range(1, 4):
        stall_ms, goodput = after_faults(faults, seed, planes_left=3)
        assert stall_ms < 10
        assert goodput >= 0.95


def test_one_plane_is_left_and_carries_on() -> None:
    """Three planes of four fall silent in the same instant, and lose three of four answers."""
    faults = [Fault(CUT, "switch-silent", f"plane {k} t1 *") for k in range(3)]
    stalls = []
    for seed in range(1, 11):
        stall_ms, goodput = after_faults(faults, seed, planes_left=1)
        stalls.append(stall_ms)
        assert goodput >= 0.97
    assert np.median(stalls) < 13
    assert max(stalls) < 21
