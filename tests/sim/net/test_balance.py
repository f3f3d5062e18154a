"""Switches that balance, in exact figures: which port a packet takes, and what is lost until they
know better.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.sim.net import balance
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import permutation, stream
from tests.sim.lab import MS, NS, US, fct, goodput_gbps
from tests.sim.roce.lab import (
    FRAME,
    all_complete,
    every_message_ends,
    leaf_spine,
    roce,
    roce_world,
    side,
    start_of,
)
from tests.sim.roce.test_connection import DATA_TRIP, SHADOW
from tests.sim.roce.test_ecmp import PAYLOAD_GBPS

N = 100  # packets of a message
HOP = 500 * NS + 250 * NS  # of light, and of the switch at its end
AT = 20 * US


def uplinks(world: World, nic: int = 0, plane: int = 0) -> range:
    """The ports by which a NIC's T0 sends up."""
    t0 = int(world.fabric.port_peer_switch[world.fabric.nic_port(nic, plane)])
    first = int(world.fabric.sw_first_up[t0])
    return range(first, first + int(world.fabric.sw_n_up[t0]))


def test_two_flows_over_two_ports_never_wait_for_each_other() -> None:
    """They arrive at the same instants, and take turns: each is as fast as alone."""
    traffic = make_traffic("two", 4, [0, 1], [2, 3], [0, 1], N * 4096)
    fabric = leaf_spine(nics=4, down=2, up=2)
    world = all_complete(
        roce_world(fabric, traffic, cc="none", routing="adaptive", ties="rotation")
    )
    assert set(world.flows()["delivered_ps"]) == {start_of(N - 1) + DATA_TRIP + SHADOW}
    assert list(world.net.port.sent_packets[uplinks(world)]) == [N, N]


def taken(world: World, times: int = 400) -> Counter[int]:
    """Which of its uplinks the first T0 gives to packets for the last NIC."""
    net = world.net
    here = int(world.fabric.port_peer_switch[0])
    net.hop.dst[0], net.packet.src[0] = world.fabric.n_nics - 1, 0
    first = uplinks(world)[0]
    return Counter(int(balance.egress(net, here, 0)) - first for _ in range(times))


def queue(world: World, uplink: int, queued_bytes: int) -> None:
    """Have so much data wait at an uplink of the first T0."""
    port = uplinks(world)[uplink]
    world.net.port.data_queued_bytes[port] = queued_bytes
    balance.shelve(world.net, port)


@pytest.mark.parametrize("ties", ["rotation", "random"])
def test_a_port_is_left_when_its_queue_crosses_a_step(ties: str) -> None:
    world = roce_world(
        leaf_spine(), stream(0, 7, 1), routing="adaptive", load_steps=(0.5, 1.0), ties=ties
    )
    half, whole = side(world).values.load_step_bytes  # type: ignore[attr-defined]  # RoCEv2
    bdp = world.derived()["bdp_bytes"]
    assert (half, whole) == (bdp // 2, bdp)
    spread = 0 if ties == "rotation" else 30

    derived = world.derived()
    assert (derived["load_step_1_bytes"], derived["load_step_2_bytes"]) == (half, whole)
    assert {type(value) for value in derived.values()} == {int}

    def are_even(chosen: Counter[int], *ports: int) -> bool:
        share = 400 / len(ports)
        return set(chosen) == {*ports} and all(
            abs(n - share) <= max(spread, 1) for n in chosen.values()
        )

    queue(world, 1, half - 1)
    assert are_even(taken(world), 0, 1, 2, 3)
    queue(world, 1, half)
    assert are_even(taken(world), 0, 2, 3)
    for uplink in (0, 2, 3):
        queue(world, uplink, half)
    assert are_even(taken(world), 0, 1, 2, 3)
    queue(world, 2, whole)
    assert are_even(taken(world), 0, 1, 3)
    queue(world, 3, 0)
    assert are_even(taken(world), 3)


def test_oblivious_switches_do_not_look() -> None:
    world = roce_world(leaf_spine(), stream(0, 7, 1), routing="spray", ties="rotation")
    queue(world, 1, 1 << 30)
    assert taken(world) == dict.fromkeys(range(4), 100)


def test_a_dead_port_beyond_the_next_switch_costs_its_share_until_routing_has_converged() -> None:
    n, converges = 400, 50 * US
    world = roce_world(
        leaf_spine(nics=4, down=2, up=2),
        stream(0, 3, n * 4096),
        [Fault(AT, "link-down", "plane 0 t0 1 - t1 0")],
        cc="none",
        routing="adaptive",
        ties="rotation",
        convergence_ps=(converges, converges),
    )
    turn = int(world.net.turn[int(world.fabric.port_peer_switch[0])])
    all_complete(world)
    # the NIC never stops, and each second packet that leaves it takes the T1 with the dead port
    mine = [k for k in range(2 * n) if (turn + 1 + k) % 2 == 0]
    at_t0 = {k: start_of(k) + FRAME + HOP for k in mine}
    lost = [k for k in mine if at_t0[k] + 2 * (FRAME + HOP) > AT and at_t0[k] < AT + converges]
    c = world.counters()
    assert c["dropped_fault"] == c["retransmitted"] == len(lost)
    assert c["duplicates"] == c["timeouts"] == 0


def test_its_own_dead_port_is_left_at_once() -> None:
    world = roce_world(
        leaf_spine(nics=4, down=2, up=2),
        stream(0, 3, 400 * 4096),
        [Fault(AT, "link-down", "plane 0 t0 0 - t1 0", for_ps=20 * US)],
        cc="none",
        routing="adaptive",
        ties="rotation",
        convergence_ps=(1 * MS, 1 * MS),
    )
    all_complete(world)
    # what is in flight to the T1 and no more: it gets a packet every two frames
    assert world.counters()["retransmitted"] <= 2
    assert world.net.port.sent_packets[uplinks(world)[0]] > 100  # before, and after the repair


def test_a_lost_plane_is_left_after_the_failover() -> None:
    failover = 50 * US
    n = 2000
    world = roce_world(
        leaf_spine(nics=4, planes=2, down=2, up=2),
        stream(0, 3, n * 4096),
        [Fault(AT, "switch-down", "plane 1 t1 *")],
        cc="none",
        routing="adaptive",
        failover_ps=failover,
        convergence_ps=(0, 0),
    )
    all_complete(world)
    # its port never stops: the first packet leaves on plane 1
    leaves = [start_of(k) for k in range(n) if start_of(k) < AT + failover]
    lost = [at for at in leaves if at + 3 * (FRAME + HOP) > AT]
    c = world.counters()
    assert c["retransmitted"] - c["duplicates"] == pytest.approx(len(lost), abs=1)
    assert roce(world)["no_route"] > 0.9 * len(lost)
    lasts = int(world.flows()["delivered_ps"][0])
    assert lasts < AT + failover + (n - AT // FRAME) * FRAME
    assert goodput_gbps(world, 150 * US, 350 * US) == pytest.approx(PAYLOAD_GBPS, abs=0.5)


def test_a_lost_plane_costs_what_was_on_it_until_it_is_left() -> None:
    """So soon that nothing sent again takes it: exactly those packets."""
    failover = 4 * US
    world = roce_world(
        leaf_spine(nics=4, planes=2, down=2, up=2),
        stream(0, 3, 400 * 4096),
        [Fault(AT, "switch-down", "plane 1 t1 *")],
        cc="none",
        routing="adaptive",
        failover_ps=failover,
        convergence_ps=(0, 0),
    )
    all_complete(world)
    # by hand: at 20 us a packet that left after 16.747 us has not reached the other T0, and one
    # leaves every 334.24 ns until 24 us
    first, end = AT - 3 * (FRAME + HOP), AT + failover
    lost = [k for k in range(400) if first < start_of(k) < end]
    assert len(lost) == (end - first) // FRAME == 21
    c = world.counters()
    assert c["retransmitted"] == 21
    assert c["duplicates"] == c["timeouts"] == 0


def test_weights_are_paths_beyond() -> None:
    """Three tiers: an uplink whose T1 has lost one of two ways up gets half of another's share."""
    from tests.sim.lab import tree

    world = roce_world(
        tree(16, 2, 2),
        stream(0, 15, 4096),
        [Fault(0, "link-down", "plane 0 t1 0 - t2 0")],
        routing="adaptive",
        convergence_ps=(0, 0),
        stop=1 * US,
    )
    world.run()
    chosen = taken(world, 3000)
    assert chosen[0] / chosen[1] == pytest.approx(1 / 2, rel=0.1)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_breaks_the_books_balance(seed: int) -> None:
    """Every kind of fault; each byte is placed once, and all ends well or with an error."""
    fabric = leaf_spine(planes=1 if seed % 2 else 4)
    more: dict[str, Any] = {"recovery": "timer"} if seed % 4 == 3 else {}
    world = roce_world(
        fabric,
        permutation(8, 400_000, seed, channels=2),
        draw_faults(fabric, seed, 15, 300 * US),
        seed=seed + 1,
        stop=100 * MS,
        qps=1 + seed % 3,
        pfc=seed % 4 < 2,
        rto_ps=200 * US,
        rto_first_ps=30 * US,
        convergence_ps=(0, 100 * US),
        routing="spray" if seed % 3 == 0 else "adaptive",
        ties=("random", "rotation")[seed // 2 % 2],
        failover_ps=40 * US,
        **more,
    )
    every_message_ends(world, look_us=14)


def test_looking_changes_nothing() -> None:
    def run(sampled: bool) -> World:
        world = roce_world(leaf_spine(planes=2), permutation(8, 200_000, 1), routing="adaptive")
        if sampled:
            world.sample(None, 50)
        return all_complete(world)

    assert np.array_equal(fct(run(sampled=True)), fct(run(sampled=False)))
