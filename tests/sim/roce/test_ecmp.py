"""ECMP: which way a flow takes, whom it meets there, and when it takes another."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric.clos import Tier, build, fat_tree
from openmrc.fabric.faults import Fault
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import permutation, stream
from tests.sim.lab import GBPS, MS, NS, US, goodput_gbps, run_until
from tests.sim.roce.lab import (
    ACK,
    FRAME,
    WAY,
    all_complete,
    balanced,
    leaf_spine,
    roce,
    roce_world,
    sender,
    stream_world,
    way,
)

ENDLESS = 10**9
PAYLOAD_GBPS = 4096 / 4178 * 100
AT, TAKES = 100 * US, 300 * US


def two_flows(seed: int, **more: object) -> World:
    """NIC 0 to 4, and 1 to 5: both over a T1."""
    traffic = make_traffic("two", 8, [0, 1], [4, 5], [0, 1], ENDLESS)
    return roce_world(leaf_spine(), traffic, seed=seed, cc="none", **more)  # type: ignore[arg-type]


def uplink(world: World, qp: int = 0) -> int:
    return way(world, qp)[1]


def seed_that(meet: bool) -> int:
    """The first seed whose hashes put the two flows on one uplink, or on two."""
    for seed in range(1, 100):
        world = two_flows(seed)
        world.run(until_ps=0)
        if (uplink(world, 0) == uplink(world, 1)) == meet:
            return seed
    raise AssertionError


def test_two_flows_on_one_link_get_half_of_it_each() -> None:
    world = two_flows(seed_that(meet=True), stop=2 * MS)
    world.run()
    assert goodput_gbps(world, 1 * MS, 2 * MS) == pytest.approx(PAYLOAD_GBPS, abs=0.1)
    packets = [int(sender(world, qp).una) for qp in (0, 1)]
    assert packets[0] / sum(packets) == pytest.approx(0.5, abs=0.02)
    balanced(world)


def test_on_two_links_they_have_one_each() -> None:
    world = two_flows(seed_that(meet=False), stop=2 * MS)
    world.run()
    assert goodput_gbps(world, 1 * MS, 2 * MS) == pytest.approx(2 * PAYLOAD_GBPS, abs=0.2)


def test_a_flow_keeps_its_way_and_its_packets_their_order() -> None:
    fabric = fat_tree(64, 100 * GBPS, 4, 4, 500 * NS, 250 * NS, tiers=3)
    world = all_complete(roce_world(fabric, permutation(64, 200_000, 1), cc="none"))
    assert roce(world)["discarded"] == 0
    assert world.counters()["retransmitted"] == 0


def test_hashes_spread_over_uplinks_and_tiers() -> None:
    fabric = fat_tree(64, 100 * GBPS, 4, 4, 500 * NS, 250 * NS, tiers=3)
    world = roce_world(fabric, permutation(64, 4096, 1), qps=16)
    world.run(until_ps=0)
    src, dst = world.traffic.qp_src, world.traffic.qp_dst
    ways = [
        way(world, qp, k) for qp in range(64) if src[qp] // 16 != dst[qp] // 16 for k in range(16)
    ]
    tops = np.bincount([fabric.port_peer_switch[w[2]] for w in ways])
    tops = tops[tops > 0]
    mean = len(ways) / 16
    assert len(tops) == 16
    assert float(((tops - mean) ** 2 / mean).sum()) < 48  # about 15 at random


def cut(world: World) -> Fault:
    """The link between the T0 and the T1 of a flow's way goes down."""
    name = world.fabric.link_name(uplink(world))
    return Fault(AT, "link-down", name, for_ps=2 * MS)


def broken(**more: object) -> World:
    world = stream_world(1)
    world.run(until_ps=0)
    more = {
        "stop": 4 * MS,
        "cc": "none",
        "ack_every": 1,
        "rto_ps": 130 * US,
        "convergence_ps": (TAKES, TAKES),
    } | more
    return stream_world(200_000, [cut(world)], **more)


def test_until_routing_has_converged_all_is_lost_and_from_then_on_it_flows_elsewhere() -> None:
    world = broken()
    world.run(until_ps=AT)
    before = way(world)
    world.run(until_ps=AT + TAKES - 1)
    assert way(world) == before
    world.run(until_ps=AT + TAKES)
    assert before[1] not in way(world)
    # The NIC sends all the time, and again from the start each 130 us. The first packet that comes
    # to its T0 now arrives, behind a gap; its NAK goes back, and what that names comes.
    placed = world.bytes_verified
    soonest = AT + TAKES + (3 * FRAME + WAY - 750 * NS) + (4 * ACK + WAY) + (4 * FRAME + WAY)
    found = run_until(world, lambda: world.bytes_verified > placed, FRAME // 8, 1 * MS)
    assert soonest <= found <= soonest + 2 * FRAME + FRAME // 8
    assert (roce(world)["timeouts"], roce(world)["naks"]) == (2, 1)
    world.run(until_ps=1 * MS)
    lost = world.timeline()["lost"]
    assert lost[:10].sum() == 0
    assert lost[40:].sum() == 0
    balanced(world)


# --- local repair ---------------------------------------------------------------------------------

SOON, LATE = 50 * US, 1 * MS


def test_a_switch_leaves_its_own_dead_link_long_before_routing_has_converged() -> None:
    world = broken(local_repair_ps=SOON, convergence_ps=(LATE, LATE))
    world.run(until_ps=AT + SOON - 1)
    before = way(world)
    assert any("t0 0 > t1" in world.fabric.port_name(port) for port in before)
    world.run(until_ps=AT + SOON)
    assert before[1] not in way(world)
    assert side_broken(world) == 2  # both ends of the link
    world.run(until_ps=AT + LATE)
    assert before[1] not in way(world)
    assert side_broken(world) == 2
    # the repair is at 2 ms, and it takes routing as long again
    world.run(until_ps=AT + 2 * MS + LATE - 1)
    assert before[1] not in way(world)
    world.run(until_ps=AT + 2 * MS + LATE)
    assert way(world) == before
    assert side_broken(world) == 0


def test_what_lies_beyond_a_switch_it_learns_from_routing() -> None:
    """The T1 has no other link down; the T0 goes on sending to it until routing has converged."""
    world = stream_world(1)
    world.run(until_ps=0)
    down = world.fabric.link_name(way(world)[2])
    more = {"cc": "none", "local_repair_ps": SOON, "convergence_ps": (LATE, LATE)}
    world = stream_world(200_000, [Fault(AT, "link-down", down)], stop=2 * MS, **more)
    world.run(until_ps=AT + SOON - 1)
    before = way(world)
    assert roce(world)["no_route"] == 0
    world.run(until_ps=AT + LATE - 1)
    assert way(world) == []
    assert roce(world)["no_route"] > 0
    world.run(until_ps=AT + LATE)
    assert way(world)[1] != before[1]
    balanced(world)


def test_a_link_that_is_back_before_local_repair_is_never_left() -> None:
    world = stream_world(1)
    world.run(until_ps=0)
    name = world.fabric.link_name(uplink(world))
    for lasts, left in ((SOON - 1, False), (SOON + 1, True)):
        fault = Fault(AT, "link-down", name, for_ps=lasts)
        more = {"local_repair_ps": SOON, "convergence_ps": (LATE, LATE)}
        world = stream_world(200_000, [fault], stop=2 * LATE, **more)
        world.run(until_ps=0)
        before = way(world)
        world.run(until_ps=AT + SOON)
        assert (way(world) != before) is left
        world.run(until_ps=AT + lasts + LATE)
        assert way(world) == before


def test_routing_that_is_faster_repairs_a_switch_too() -> None:
    """Both at 300 us, though local repair is said to take 1 ms."""
    world = broken(local_repair_ps=1 * MS)
    world.run(until_ps=AT + TAKES - 1)
    before = way(world)
    world.run(until_ps=AT + TAKES)
    assert before[1] not in way(world)


def test_by_default_a_queue_pair_outlives_the_convergence() -> None:
    """A link beyond its own switch is down from the start: timers of 8 ms and longer run out until
    routing, 50 ms to 1 s later, goes around it.
    """
    world = stream_world(1)
    world.run(until_ps=0)
    down = world.fabric.link_name(way(world)[2])
    world = all_complete(stream_world(100, [Fault(0, "link-down", down)]))
    assert world.errors() == [""]
    assert roce(world)["timeouts"] >= 3
    assert 50 * MS < int(world.flows()["done_ps"][0]) < 2100 * MS


def test_instant_convergence_loses_what_was_on_the_link() -> None:
    world = broken(convergence_ps=(0, 0))
    world.run(until_ps=AT)
    assert roce(world)["no_route"] == 0
    world.run(until_ps=AT + 50 * US)
    assert world.counters()["dropped_fault"] <= 3  # 500 ns of it, and what stood at the port
    assert goodput_gbps(world, AT + 20 * US, AT + 50 * US) == pytest.approx(PAYLOAD_GBPS, abs=0.5)


def test_after_the_repair_the_old_sets_are_back_when_routing_has_converged() -> None:
    world = broken()
    world.run(until_ps=AT)
    before = way(world)
    world.run(until_ps=AT + 2 * MS + TAKES - 1)
    assert way(world) != before
    world.run(until_ps=AT + 2 * MS + TAKES)
    assert way(world) == before
    assert side_broken(world) == 0
    world.run(until_ps=4 * MS)
    assert goodput_gbps(world, 3 * MS, 4 * MS) == pytest.approx(PAYLOAD_GBPS, abs=0.1)


def side_broken(world: World) -> int:
    return int(world.net.routing[0].broken)


def test_convergence_is_drawn_between_its_two_times() -> None:
    found = set()
    for seed in range(1, 21):
        world = broken(convergence_ps=(1 * MS, 3 * MS), seed=seed)
        change = world.net.change
        delay = int(change.at[change.who == 0].min()) - AT
        assert 1 * MS <= delay < 3 * MS
        found.add(delay)
    assert len(found) == 20
    assert max(found) - min(found) > 1 * MS


def test_flows_that_had_no_trouble_may_move_too() -> None:
    """The hash is taken modulo a smaller number."""
    fault = Fault(AT, "link-down", "plane 0 t0 0 - t1 2")
    world = roce_world(
        leaf_spine(),
        permutation(8, ENDLESS, 3),
        [fault],
        qps=16,
        convergence_ps=(0, 0),
        stop=1 * MS,
    )
    world.run(until_ps=AT - 1)
    src, dst = world.traffic.qp_src, world.traffic.qp_dst
    crossing = [qp for qp in range(8) if src[qp] < 4 <= dst[qp]]
    before = {(qp, k): way(world, qp, k) for qp in crossing for k in range(16)}
    world.run(until_ps=AT)
    gone = world.fabric.port_name
    assert not any("t0 0 > t1 2" in gone(way(world, *key)[1]) for key in before)
    moved = [key for key, old in before.items() if way(world, *key) != old]
    hit = [key for key, old in before.items() if "t1 2" in gone(old[1])]
    assert set(hit) < set(moved)


def test_only_destinations_behind_a_link_lose_its_member() -> None:
    """The T1 has lost its link to T0 1 alone; flows to T0 2 stay, whatever they hash to."""
    fabric = leaf_spine(nics=12)
    fault = Fault(AT, "link-down", "plane 0 t0 1 - t1 2")
    traffic = make_traffic("two", 12, [0, 0], [4, 8], [0, 1], ENDLESS)
    world = roce_world(fabric, traffic, [fault], qps=16, convergence_ps=(0, 0), stop=1 * MS)
    world.run(until_ps=AT - 1)
    before = [[way(world, qp, k) for k in range(16)] for qp in (0, 1)]
    world.run(until_ps=AT)
    after = [[way(world, qp, k) for k in range(16)] for qp in (0, 1)]
    assert after[1] == before[1]
    assert after[0] != before[0]
    assert not any("t1 2" in fabric.port_name(w[1]) for w in after[0])


@pytest.mark.parametrize(
    ("kind", "where"),
    [("switch-silent", "plane 0 t1 *"), ("link-loss", "plane 0 t0 0 > t1 *")],
)
def test_what_routing_does_not_see_changes_no_way(kind: str, where: str) -> None:
    fault = Fault(AT, kind, where, rate=1.0 if kind == "link-loss" else None)
    world = stream_world(200_000, [fault], stop=1 * MS, convergence_ps=(0, 0))
    world.run(until_ps=0)
    before = way(world)
    world.run()
    assert way(world) == before
    assert roce(world)["timeouts"] == 0  # the first takes 8 ms
    assert goodput_gbps(world, AT + 10 * US, 1 * MS) == 0


def test_what_is_denied_is_drained_without_a_loss() -> None:
    world = stream_world(1)
    world.run(until_ps=0)
    place = world.fabric.switch_name(int(world.fabric.port_peer_switch[uplink(world)]))
    fault = Fault(AT, "deny", place)
    world = stream_world(1000, [fault], cc="none", convergence_ps=(0, 0))
    world.run(until_ps=AT)
    assert (
        world.fabric.port_peer_switch[uplink(world)]
        not in world.fabric.port_peer_switch[way(world)[2:]]
    )
    all_complete(world)
    assert world.counters()["dropped_fault"] == 0


# --- several planes: the bond of a NIC ------------------------------------------------------------


def bonded(faults: list[Fault], **more: object) -> World:
    fabric = leaf_spine(planes=4)
    traffic = stream(0, 7, 20_000_000)
    more = {"rto_ps": 100 * US, "convergence_ps": (TAKES, TAKES)} | more
    return roce_world(fabric, traffic, faults, **more)


def test_a_flow_has_one_plane_and_several_flows_have_several() -> None:
    world = bonded([], qps=32)
    world.run(until_ps=0)
    ports = [way(world, 0, k)[0] for k in range(32)]
    assert set(ports) == {0, 1, 2, 3}
    one = all_complete(bonded([]))
    assert 20_000_000 * 8 / 1e3 / int(one.flows()["done_ps"][0] / 1e6) < 100


def test_a_nic_leaves_its_dead_port_at_once() -> None:
    probe = bonded([])
    probe.run(until_ps=0)
    port = way(probe)[0]
    fault = Fault(AT, "port-down", f"nic 0 plane {port}")
    world = bonded([fault])
    world.run(until_ps=AT)
    assert way(world)[0] != port
    all_complete(world)


def test_a_dead_port_of_the_peer_is_left_when_routing_has_converged() -> None:
    probe = bonded([])
    probe.run(until_ps=0)
    port = way(probe)[0]
    fault = Fault(AT, "port-down", f"nic 7 plane {port}")
    world = bonded([fault])
    world.run(until_ps=AT + TAKES - 1)
    assert way(world)[0] == port
    world.run(until_ps=AT + TAKES)
    assert way(world)[0] != port
    all_complete(world)
    assert roce(world)["timeouts"] > 0


# --- parallel links -------------------------------------------------------------------------------


def test_parallel_links_are_members_each_by_itself() -> None:
    """Two T0s, one T1, two links to each: one of the two downwards goes, and one of those up."""
    fabric = build(
        "fat-tree",
        8,
        1,
        [
            Tier(4, 2, 100 * GBPS, 500 * NS, 250 * NS),
            Tier(0, 0, 100 * GBPS, 500 * NS, 250 * NS, bundle=2),
        ],
    )
    faults = [
        Fault(AT, "link-down", "plane 0 t0 1 - t1 0 link 0"),
        Fault(2 * AT, "link-down", "plane 0 t0 0 - t1 0 link 1"),
    ]
    traffic = stream(0, 7, 10_000_000)
    world = roce_world(
        fabric, traffic, faults, qps=16, cc="none", rto_ps=50 * US, convergence_ps=(0, 0)
    )
    name = fabric.port_name

    def used(hop: int) -> set[str]:
        return {name(way(world, 0, k)[hop])[-6:] for k in range(16)}

    world.run(until_ps=0)
    assert used(1) == used(2) == {"link 0", "link 1"}
    world.run(until_ps=AT)
    assert (used(1), used(2)) == ({"link 0", "link 1"}, {"link 1"})
    world.run(until_ps=2 * AT)
    assert (used(1), used(2)) == ({"link 0"}, {"link 1"})
    all_complete(world)
