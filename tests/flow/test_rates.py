"""Flows over pools in cases that a hand can compute: to the picosecond, without latencies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import compile_faults
from openmrc.fabric.kinds import Fault
from openmrc.fabric.model import Fabric
from openmrc.flow.crowded import SPREAD
from openmrc.flow.state import DATA
from openmrc.flow.world import FlowWorld
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RoceTransport
from openmrc.traffic.earliest import no_cost
from openmrc.traffic.traffic import Traffic, make_traffic
from openmrc.units import MS
from openmrc.wire.framing import MRC_FRAMING
from openmrc.wire.roce.framing import ROCE_FRAMING
from openmrc.workload.collectives import ring_all_reduce

PACKETS = 1000
SIZE = PACKETS * 4096
# answers that take next to nothing, and no headers of trimmed packets
TRANSPORT = Transport(sack_bytes=1 << 20, trim=False)
BYTE_PS = 80  # at 100 Gb/s
# alone on one port; on two planes half of it
ONE_PORT_PS = PACKETS * MRC_FRAMING.data_bytes(4096) * BYTE_PS
PACKET_PS = ONE_PORT_PS // PACKETS


def fabric(t0_up: int = 2) -> Fabric:
    """Four NICs with two planes of 100 Gb/s, two below each T0; nothing takes time but bytes."""
    return multiplane(4, 2, 100 * 10**9, 2, t0_up, 0, 0)


def sends(*pairs: tuple[int, int], size: Any = SIZE, start_ps: Any = 0) -> Traffic:
    src, dst = zip(*pairs, strict=True)
    n = np.arange(len(pairs))
    return make_traffic("test", 4, src, dst, n, size, start_ps)


def done_ps(
    built: Fabric, traffic: Traffic, *faults: Fault, transport: Any = TRANSPORT
) -> list[int]:
    """When each message is done."""
    schedule = compile_faults(faults, built)
    world = FlowWorld(built, traffic, transport, schedule, cost=no_cost(traffic))
    assert world.run()
    found: list[int] = world.flows()["done_ps"].tolist()
    return found


def test_a_message_alone_has_all_planes() -> None:
    assert done_ps(fabric(), sends((0, 2))) == [ONE_PORT_PS // 2]


def test_two_flows_share_the_port_of_their_receiver() -> None:
    assert done_ps(fabric(), sends((0, 2), (1, 2))) == [ONE_PORT_PS, ONE_PORT_PS]


def test_who_is_left_alone_has_the_whole_port() -> None:
    """The first has half until it is done; the second has half of its own left then."""
    found = done_ps(fabric(), sends((0, 2), (1, 2), size=[SIZE, 2 * SIZE]))
    assert found == [ONE_PORT_PS, ONE_PORT_PS + ONE_PORT_PS // 2]


def test_a_flow_takes_what_another_cannot_use() -> None:
    """Three senders to NIC 3 have a third each; NIC 0's other flow has the rest of its port, and
    stands behind the first one's packets.
    """
    found = done_ps(
        fabric(), sends((0, 3), (1, 3), (2, 3), (0, 1), size=[SIZE, SIZE, SIZE, 2 * SIZE])
    )
    assert found[:3] == pytest.approx([3 * ONE_PORT_PS // 2] * 3, abs=3 * PACKET_PS)
    assert found[0] < found[2] < found[1]
    assert found[3] == pytest.approx(3 * ONE_PORT_PS // 2, abs=PACKET_PS)


def test_who_begins_first_at_a_nic_is_ahead_by_the_turns_of_its_ports() -> None:
    """Each port sends two packets of the first flow before the second one has its turn."""
    assert done_ps(fabric(), sends((0, 1), (0, 2))) == [ONE_PORT_PS - 2 * PACKET_PS, ONE_PORT_PS]


def test_mpr_lets_a_message_go_on_in_rounds() -> None:
    """128 packets a round trip; 7 rounds later 104 are left."""
    round_ps = MS
    traffic = sends((0, 2))
    cost = no_cost(traffic)._replace(ack=np.array([round_ps]))
    world = FlowWorld(fabric(), traffic, replace(TRANSPORT, mpr=128), cost=cost)
    world.run()
    assert world.flows()["done_ps"] == pytest.approx(7 * MS + 104 * PACKET_PS // 2 + MS, abs=9)


def test_rounds_wait_for_paths_that_are_checked_first() -> None:
    """Two round trips of questions before the first packet may leave; 7 rounds of data behind."""
    traffic = sends((0, 2))
    cost = no_cost(traffic)._replace(ack=np.array([MS]))
    checks = replace(TRANSPORT, mpr=128, check_paths=True)
    world = FlowWorld(fabric(), traffic, checks, cost=cost)
    assert world.run()
    assert 9 * MS < world.flows()["done_ps"][0] < 11 * MS


def test_what_is_under_way_to_a_port_that_fails_is_sent_again_when_it_is_overdue() -> None:
    built, traffic, way_ps = fabric(), sends((0, 2)), MS
    sent_ps = ONE_PORT_PS // 2
    cost = no_cost(traffic)._replace(behind=np.array([way_ps]))
    down = [
        Fault(sent_ps + at_ps, kind, f"nic 2 plane {plane}")
        for plane in (0, 1)
        for kind, at_ps in (("link-down", way_ps // 2), ("link-up", way_ps // 2 + 1))
    ]
    found = []
    for schedule in (None, compile_faults(down, built)):
        world = FlowWorld(built, traffic, TRANSPORT, schedule, cost=cost)
        world.run()
        found.append(int(world.flows()["done_ps"][0]))
    again_ps = world.values.overdue_after_ps + way_ps
    assert found == [sent_ps + way_ps, sent_ps + again_ps]


def test_a_ring_has_all_of_every_port() -> None:
    found = done_ps(fabric(), sends((0, 1), (1, 2), (2, 3), (3, 0)))
    assert found == [ONE_PORT_PS // 2] * 4


def test_uplinks_that_are_too_few_are_shared() -> None:
    even = replace(TRANSPORT, cc="none")
    found = done_ps(fabric(t0_up=1), sends((0, 2), (1, 3)), transport=even)
    assert found == [ONE_PORT_PS, ONE_PORT_PS]
    assert done_ps(fabric(t0_up=1), sends((0, 1), (1, 0))) == [ONE_PORT_PS // 2] * 2


def test_congestion_control_shares_uplinks_unevenly_and_fills_them() -> None:
    """Who is served better is done first; then the other one has all of them."""
    found = sorted(done_ps(fabric(t0_up=1), sends((0, 2), (1, 3))))
    assert (1 - SPREAD) * ONE_PORT_PS < found[0] < found[1]
    assert found[1] == pytest.approx(ONE_PORT_PS, rel=0.002)


def test_a_pool_counts_where_those_who_use_it_can_fill_it() -> None:
    """An uplink in each plane carries what one NIC sends, and not what two do."""
    for pairs, pools in ((((0, 2),), 0), (((0, 2), (1, 3)), 2)):
        traffic = sends(*pairs)
        world = FlowWorld(fabric(t0_up=1), traffic, TRANSPORT, cost=no_cost(traffic))
        assert ((world.fluid.way[:, 2:DATA] >= 0).sum(axis=1) == pools).all()


@pytest.mark.parametrize("planes", [2, 4])
def test_as_many_uplinks_as_nics_limit_nobody(planes: int) -> None:
    """A sum of rates is rounded: it counts as what it stands for."""
    nic = np.arange(8)
    traffic = make_traffic("full", 8, nic, (nic + 4) % 8, nic, SIZE)
    built = multiplane(8, planes, 100 * 10**9, 4, 4, 0, 0)
    world = FlowWorld(built, traffic, TRANSPORT, cost=no_cost(traffic))
    assert (world.fluid.way[:, 2:DATA] < 0).all()


def test_a_plane_that_is_down_is_missing() -> None:
    down = Fault(0, "link-down", "nic 0 plane 1")
    assert done_ps(fabric(), sends((0, 2), (1, 3)), down) == [ONE_PORT_PS, ONE_PORT_PS // 2]


def test_planes_that_the_two_ends_have_lost_are_of_no_use() -> None:
    down = (Fault(0, "link-down", "nic 0 plane 1"), Fault(0, "link-down", "nic 2 plane 0"))
    world_ends = sends((0, 2), (0, 3), start_ps=[10**12, 0])
    built = fabric()
    schedule = compile_faults(down, built)
    cost = no_cost(world_ends)
    world = FlowWorld(built, world_ends, TRANSPORT, schedule, cost=cost, stop_ps=10**13)
    world.run()
    assert world.flows()["done_ps"].tolist() == [-1, ONE_PORT_PS]


def test_a_slow_link_carries_its_share() -> None:
    slow = Fault(0, "link-slow", "nic 0 plane 1", factor=0.5)
    assert done_ps(fabric(), sends((0, 2)), slow) == [-(-ONE_PORT_PS * 2 // 3)]


def test_a_rate_changes_while_a_message_is_sent() -> None:
    """Half of the message is sent at the rate of two ports, half at that of one and a half."""
    slow = Fault(ONE_PORT_PS // 4, "link-slow", "nic 0 plane 1", factor=0.5)
    assert done_ps(fabric(), sends((0, 2)), slow) == [-(-ONE_PORT_PS * 7 // 12)]


def test_other_transports_are_refused_by_name() -> None:
    traffic = sends((0, 2))
    lossy = RoceTransport(pfc=False)
    with pytest.raises(InputError, match=r"pfc of 'roce': false is not known"):
        FlowWorld(fabric(), traffic, lossy, cost=no_cost(traffic))


def test_a_collective_runs_in_order() -> None:
    """Each step of a ring waits for the one before."""
    traffic = ring_all_reduce(4, SIZE * 4)
    world = FlowWorld(fabric(), traffic, TRANSPORT, cost=no_cost(traffic))
    assert world.run()
    assert world.now_ps == 6 * ONE_PORT_PS // 2


ROCE = RoceTransport(ack_every=1 << 20)
ONE_ROCE_PS = PACKETS * ROCE_FRAMING.data_bytes(4096) * BYTE_PS
SINGLE = Transport(sack_bytes=1 << 20, trim=False, paths="single", convergence_ps=10**9)


def test_a_single_path_has_one_port() -> None:
    assert done_ps(fabric(), sends((0, 2)), transport=SINGLE) == [ONE_PORT_PS]


def test_a_single_path_waits_for_routing_and_its_timer() -> None:
    """All T1s of plane 0 are down from a quarter on: who was there goes on in the other plane when
    routing has converged and the next timer fires.
    """
    down = Fault(ONE_PORT_PS // 4, "switch-down", "plane 0 t1 *")
    found = [
        done_ps(fabric(), sends((0, 2), start_ps=seed), down, transport=SINGLE) for seed in range(2)
    ]
    assert found[0] == [ONE_PORT_PS] or found[0][0] > ONE_PORT_PS + 10**9


def test_rocev2_hashes_a_pair_to_one_plane_and_stripes_over_several() -> None:
    assert done_ps(fabric(), sends((0, 2)), transport=ROCE) == [ONE_ROCE_PS]
    several = replace(ROCE, qps=16)
    (striped,) = done_ps(fabric(), sends((0, 2)), transport=several)
    assert ONE_ROCE_PS / 2 < striped < ONE_ROCE_PS


def test_rocev2_waits_for_routing_and_its_timer_or_ends_in_error() -> None:
    """Both T1s of the planes are down: nothing leads there until they are back."""
    down = Fault(ONE_ROCE_PS // 2, "switch-down", "plane * t1 *", for_ps=10 * MS)
    patient = replace(ROCE, rto_ps=4 * MS, rto_first_ps=1 * MS, convergence_ps=(0, 0))
    (late,) = done_ps(fabric(), sends((0, 2)), down, transport=patient)
    # timers fire 1, 3, 7 and 11 ms after the fault
    assert late == pytest.approx(ONE_ROCE_PS + 11 * MS, rel=0.001)
    built, traffic = fabric(), sends((0, 2))
    hasty = replace(patient, retry_cnt=1)
    schedule = compile_faults([down], built)
    world = FlowWorld(built, traffic, hasty, schedule, cost=no_cost(traffic))
    world.run()
    assert world.flows()["failed"].tolist() == [True]
    assert world.errors() == ["retry counter exceeded"]
    assert "nic 0 to nic 2: retry counter exceeded" in world.qp_errors()[0]
