"""DCQCN and PFC in a whole network: nothing is lost, congestion spreads, and an incast does what
the packet model of one port does (`test_incast.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault
from openmrc.sim.roce import pfc
from openmrc.sim.roce.profiles import Marking
from openmrc.sim.world import World
from openmrc.traffic.traffic import Traffic, make_traffic
from openmrc.workload.patterns import incast, permutation
from tests.sim.lab import ENDLESS, GBPS, MS, NS, US
from tests.sim.roce.lab import all_complete, balanced, leaf_spine, roce, roce_world, side

MB = 1_000_000
LINE = 400 * GBPS
STEP = 10 * MS
FLOWS = 15


def flows(n_nics: int, pairs: list[tuple[int, int]], size: Any, starts: Any = 0) -> Traffic:
    """One message for each (source, destination)."""
    src, dst = zip(*pairs, strict=True)
    return make_traffic("flows", n_nics, src, dst, np.arange(len(pairs)), size, starts)


def charged(world: World) -> list[str]:
    """What each link is charged for is what is queued of it, and switches hold their sum."""
    state = side(world).state
    net = world.net
    held = np.zeros(world.fabric.n_ports, np.int64)
    for port in range(int(net.ctl[0].n_nic_ports), world.fabric.n_ports):
        n = int(net.port[port].head[2])
        while n >= 0:
            held[int(net.hop[n].port)] += int(net.hop[n].frame_bytes)
            n = int(net.hop[n].next)
    pause = state.pause
    said = np.asarray(pause.held_bytes) + np.asarray(pause.headroom_held_bytes)
    wrong = [f"link {p}: {said[p]}, and it is {held[p]}" for p in np.flatnonzero(said != held)]
    into = np.asarray(world.fabric.port_peer_switch)
    served = into >= 0
    sums = np.bincount(into[served], held[served], world.fabric.n_switches)
    buffers = np.asarray(state.buffer.used_bytes) + np.asarray(state.buffer.headroom_used_bytes)
    return wrong + [f"switch {s}: {buffers[s]}" for s in np.flatnonzero(sums != buffers)]


def nothing_left(world: World) -> World:
    """Every buffer is empty, and nobody is paused or wants a pause."""
    state = side(world).state
    assert not np.asarray(state.buffer.used_bytes).any()
    assert not np.asarray(state.buffer.headroom_used_bytes).any()
    assert not np.asarray(state.pause.wants_pause).any()
    return world


def paused_us(world: World) -> npt.NDArray[np.float64]:
    """For how long each port was paused, us."""
    found: npt.NDArray[np.float64] = side(world).paused_ps(int(world.net.ctl[0].now)) / US
    return found


def test_an_incast_at_line_rate_loses_nothing_with_flow_control() -> None:
    """Seven NICs at line rate, no DCQCN: what does not fit waits in the NICs."""
    size = 1 * MB
    world = roce_world(leaf_spine(), incast(8, 7, size), cc="none")
    for at in range(50 * US, 550 * US, 100 * US):
        world.run(at)
        assert charged(world) == []
        balanced(world)
    nothing_left(all_complete(world))
    c, r = world.counters(), roce(world)
    assert (c["dropped_queue"], c["retransmitted"], r["naks"], r["cnps"]) == (0, 0, 0, 0)
    assert r["pauses"] > 10
    assert r["pause_storms"] == 0
    # the last byte comes when 7 MB have gone through the last link, and 1 % later at most
    least = 7 * size * 8 * 1000 / 100 * 4178 / 4096
    assert least < int(world.flows()["done_ps"].max()) < 1.01 * least + 20 * US
    state = side(world).state
    assert (state.buffer.peak_bytes <= 3_200 * 100 * 8).all()  # no switch holds more than it has


def test_the_same_incast_without_flow_control_goes_back_again_and_again() -> None:
    world = all_complete(
        roce_world(leaf_spine(), incast(8, 7, 1 * MB), cc="none", pfc=False, rto_ps=1 * MS)
    )
    c, r = world.counters(), roce(world)
    assert c["dropped_queue"] > 0
    assert c["retransmitted"] > c["dropped_queue"]
    assert (r["naks"] > 0, r["pauses"], r["pfc_drops"]) == (True, 0, 0)
    assert paused_us(world).size == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("cc", ["none", "dcqcn"])
def test_whatever_collides_nothing_is_lost(cc: str, seed: int) -> None:
    """A permutation whose hashed ways collide, over half the uplinks that it needs."""
    fabric = leaf_spine(16, down=4, up=2)
    world = nothing_left(
        all_complete(roce_world(fabric, permutation(16, 2 * MB, seed), cc=cc, seed=seed, qps=2))
    )
    assert (world.counters()["dropped_queue"], roce(world)["naks"]) == (0, 0)
    assert (roce(world)["pauses"] > 0) or cc == "dcqcn"


def test_a_paused_nic_acknowledges_and_sends_no_data() -> None:
    """NIC 7 is paused before it begins: what it receives is acknowledged, what it has stays."""
    world = roce_world(leaf_spine(), flows(8, [(7, 0), (0, 7)], 100_000), cc="none")
    world.run(0)
    link = side(world).state.pause[7]
    pfc.on_pause(link, side(world).state.flow[0], 0)
    world.net.nic[7].free_ports = 0
    sent = int(world.net.port.sent_bytes[7])  # the packet that had begun
    assert sent <= 4194
    world.run(50 * US)
    assert world.flows()["done_ps"][1] > 0
    assert int(world.net.port.sent_bytes[7]) - sent == 7 * 86  # ACKs: 25 packets, every fourth
    assert world.flows()["done_ps"][0] < 0


def victim_world(local_senders: int) -> World:
    """NIC 4 joins an incast to NIC 0; NIC 5 sends to NIC 1, which is idle, over the same uplink."""
    fabric = leaf_spine(8, down=4, up=1)
    pairs = [(5, 1), (4, 0), (2, 0), (3, 0)][: 2 + local_senders]
    return all_complete(roce_world(fabric, flows(8, pairs, 4 * MB), cc="none"))


def test_congestion_spreads_to_a_victim() -> None:
    """Head-of-line blocking: the way to NIC 1 is half empty, and its flow waits all the same."""
    free, blocked = victim_world(0), victim_world(2)
    victim = [int(w.flows()["done_ps"][0]) for w in (free, blocked)]
    alone = 4 * MB * 80 * 4178 / 4096
    assert victim[0] == pytest.approx(2 * alone, rel=0.05)  # two flows share the uplink
    # The T0 below gives each of its three links a third of NIC 0's port, and what comes over the
    # uplink comes in turns: the victim has as little of it as NIC 4's flow.
    assert victim[1] == pytest.approx(3 * alone, rel=0.1)
    assert paused_us(blocked)[5] > 0.4 * victim[1] / US  # its own NIC was paused
    assert paused_us(blocked)[1] == 0


def test_dcqcn_lets_the_victim_go() -> None:
    """With marks the senders of the incast slow down before the buffer is full."""
    fabric = leaf_spine(8, down=4, up=1)
    pairs = [(5, 1), (4, 0), (2, 0), (3, 0)]
    done = {}
    for cc in ("none", "dcqcn"):
        world = all_complete(roce_world(fabric, flows(8, pairs, 40 * MB), cc=cc))
        done[cc] = int(world.flows()["done_ps"][0])
    assert done["dcqcn"] < 0.9 * done["none"]


@pytest.mark.parametrize("where", ["nic 6 plane 0 - t0", "plane 0 t0 1 - t1 0"])
def test_a_link_that_goes_down_while_it_is_paused_is_not_paused_for_ever(where: str) -> None:
    fabric = leaf_spine(8, down=4, up=1)
    fault = Fault(200 * US, "link-down", where, for_ps=150 * US)
    world = roce_world(
        fabric, incast(8, 7, 1 * MB), [fault], cc="none", rto_ps=1 * MS, convergence_ps=(0, 0)
    )
    world.run(199 * US)
    assert np.asarray(side(world).state.pause.paused_until).any()
    world.run(300 * US)
    assert charged(world) == []
    nothing_left(all_complete(world))
    assert world.counters()["dropped_fault"] > 0


class Stairs:
    """15 flows of 400 Gb/s into one port of a T0, one more with each step; figures per number."""

    def __init__(self, profile: str) -> None:
        fabric = multiplane(16, 1, LINE, 16, 1, 500 * NS, 500 * NS)
        pairs = [(k, 0) for k in range(1, FLOWS + 1)]
        starts = np.arange(FLOWS) * STEP
        traffic = flows(16, pairs, 1000 * ENDLESS, starts)
        self.world = world = roce_world(fabric, traffic, profile=profile, stop=FLOWS * STEP)
        last = int(fabric.port_reverse[0])
        self.share, self.queue, self.paused = (np.zeros(FLOWS) for _ in range(3))
        for k in range(FLOWS):
            world.run(k * STEP + STEP * 2 // 5)
            bytes_before, paused_before = world.bytes_verified, paused_us(world).sum()
            for i in range(1, 61):
                world.run(k * STEP + STEP * 2 // 5 + i * STEP // 100)
                self.queue[k] += int(world.net.port.data_queued_bytes[last]) / 60
            moved = (world.bytes_verified - bytes_before) * 4178 / 4096  # on the wire
            self.share[k] = moved * 8 / (LINE * 0.6 * STEP / 1e12)
            self.paused[k] = (paused_us(world).sum() - paused_before) / (0.6 * STEP / US)
        balanced(world)
        c, r = world.counters(), roce(world)
        assert (c["dropped_queue"], c["retransmitted"], r["naks"], r["timeouts"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("profile", ["default", "lenient"])
def test_of_eight_queue_pairs_of_seven_nics_the_default_pauses_nobody_once_they_have_settled(
    profile: str,
) -> None:
    fabric = multiplane(16, 1, LINE, 16, 1, 500 * NS, 500 * NS)
    traffic = flows(16, [(k, 0) for k in range(1, 8)], 1000 * ENDLESS)
    world = roce_world(fabric, traffic, profile=profile, qps=8, stop=15 * MS)
    world.run(5 * MS)
    pauses, placed = roce(world)["pauses"], world.bytes_verified
    world.run(15 * MS)
    balanced(world)
    used = (world.bytes_verified - placed) * 4178 / 4096 * 8 / (LINE * 10 * MS / 1e12)
    assert used > 0.99
    assert (roce(world)["pauses"] == pauses) is (profile == "default")


def test_the_lenient_profile_is_controlled_by_marks_below_ten_flows_then_by_pauses() -> None:
    s = Stairs("lenient")
    assert s.share.min() > 0.995
    assert (s.queue[1:8] > Marking().low_bytes(LINE)).all()
    assert (s.queue[1:8] < 1.1 * Marking().high_bytes(LINE)).all()
    assert (s.paused[:9] == 0).all()
    assert (s.queue[9:] > 2 * Marking().high_bytes(LINE)).all()
    assert s.paused[9] > 0
    assert s.paused[14] > 10


@pytest.mark.parametrize(("profile", "share"), [("aggressive", 0.9), ("most-aggressive", 0.8)])
def test_the_other_profiles_give_up_throughput_for_a_short_queue(
    profile: str, share: float
) -> None:
    s = Stairs(profile)
    assert s.share[1:].mean() == pytest.approx(share, abs=0.03)
    assert s.queue.max() < Marking().low_bytes(LINE)
    assert roce(s.world)["pauses"] == 0
