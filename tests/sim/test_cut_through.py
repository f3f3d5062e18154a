"""Switches that cut through: when a packet is where, to the picosecond, worked out on paper.

A switch begins to send a packet when 64 B of it are in, so of a path's links all but the last cost
64 B each; at 100 Gb/s a byte lasts 80 ps. A link is 500 ns, a switch 250 ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.world import World
from openmrc.traffic.ideal import ideal_ps
from openmrc.traffic.traffic import make_traffic
from openmrc.units import PS_BITS
from openmrc.wire.framing import MRC_FRAMING
from openmrc.workload import incast, permutation, stream
from tests.sim.lab import (
    FRAME,
    GBPS,
    NS,
    US,
    all_complete,
    clos,
    conserved,
    fct,
    in_slices,
    stream_world,
    tree,
    world_of,
)
from tests.sim.roce import lab as roce

BYTE = 80
HEAD = 64 * BYTE
FULL = (4096 + FRAME) * BYTE
SACK, ACK = 178 * BYTE, 146 * BYTE


def way(links: int) -> int:
    """Latency of a path: its links and the switches between them."""
    return links * 500 * NS + (links - 1) * 250 * NS


def through(fabric: Fabric) -> Fabric:
    """The same fabric of switches that cut through."""
    return replace(fabric, cut_through=True)


def one_path(rates_gbps: Sequence[int] = (100, 100, 100, 100)) -> Fabric:
    """NIC 0 and NIC 1 below T0s of their own, one path over one T1 whose links have these rates,
    the same in both directions.
    """
    fabric = through(clos(nics=2, planes=1, down=1, up=1))
    ports = fabric.route(0, 1, fabric.ev(0, 0))
    for port, gbps in zip(ports, rates_gbps, strict=True):
        fabric.port_rate_bps[[port, fabric.port_reverse[port]]] = gbps * GBPS
    return fabric


def delivered(world: World) -> list[int]:
    return [int(at) for at in all_complete(world).flows()["delivered_ps"]]


# --- times ------------------------------------------------------------------------------------


PATHS = [
    ("one switch", clos(), 1, 2),
    ("three switches", clos(), 7, 4),
    ("three switches, one plane", clos(planes=1), 7, 4),
    ("three switches, three tiers", tree(), 4, 4),
    ("five switches", tree(), 63, 6),
]


@pytest.mark.parametrize("size", [1, 4095, 4096])
@pytest.mark.parametrize(("name", "fabric", "dst", "links"), PATHS)
def test_a_packet_costs_one_transmission_and_its_header_at_every_switch(
    name: str, fabric: Fabric, dst: int, links: int, size: int
) -> None:
    world = all_complete(world_of(through(fabric), stream(0, dst, size)))
    there = (size + FRAME) * BYTE + (links - 1) * HEAD + way(links)
    assert delivered(world) == [there]
    # the transport ACK leaves with the SACK: beside it on another plane, or behind it on the same
    behind = SACK if fabric.n_planes == 1 else 0
    assert fct(world).tolist() == [there + behind + (links - 1) * HEAD + ACK + way(links)]


@pytest.mark.parametrize(("name", "fabric", "dst", "links"), PATHS)
def test_packets_follow_each_other_without_a_gap(
    name: str, fabric: Fabric, dst: int, links: int
) -> None:
    packets = 8 * fabric.n_planes
    world = world_of(through(fabric), stream(0, dst, packets * 4096))
    assert delivered(world) == [8 * FULL + (links - 1) * HEAD + way(links)]


def test_the_round_trip_and_what_follows_from_it_are_shorter() -> None:
    """T, and the least time that a workload can take, which a packet alone takes."""
    world = stream_world(through(clos()), size=4096)
    t = 2 * way(4) + FULL + SACK + 6 * HEAD
    assert world.derived()["base_rtt_ps"] == t == 5_885_920
    all_complete(world)
    ack_bytes = ACK // BYTE
    ideal = ideal_ps(world.fabric, world.traffic, MRC_FRAMING.data_bytes, 4096, ack_bytes)
    assert fct(world).tolist() == [ideal]


@pytest.mark.parametrize(
    ("late", "second"),
    [
        (0, HEAD + 2 * FULL),  # both headers come at once: one of them waits for all of the other
        (100 * NS, HEAD + 2 * FULL),
        (FULL, HEAD + 2 * FULL),  # as the last bit of the first leaves
        (FULL + 1, HEAD + 2 * FULL + 1),
    ],
)
def test_a_packet_that_finds_its_port_busy_waits_for_all_of_the_one_before(
    late: int, second: int
) -> None:
    fabric = through(clos(planes=1))
    traffic = make_traffic("two", 8, [0, 1], [2, 2], [0, 1], 4096, [0, late])
    found = delivered(world_of(fabric, traffic))
    assert found == [HEAD + FULL + way(2), second + way(2)]


@pytest.mark.parametrize(
    ("rates_gbps", "switches"),
    [
        ((100, 50, 25, 10), (HEAD, 2 * HEAD, 4 * HEAD)),
        ((100, 400, 400, 100), (FULL, HEAD // 4, HEAD // 4)),  # the rate rises once
        ((50, 50, 100, 100), (2 * HEAD, 2 * FULL, HEAD)),
        ((25, 50, 100, 400), (4 * FULL, 2 * FULL, FULL)),  # at every switch
    ],
)
def test_where_the_rate_rises_a_packet_is_stored(
    rates_gbps: tuple[int, ...], switches: tuple[int, ...]
) -> None:
    last = FULL * 100 // rates_gbps[-1]
    world = world_of(one_path(rates_gbps), stream(0, 1, 4096))
    assert delivered(world) == [sum(switches) + last + way(4)]


def test_a_packet_that_is_stored_for_a_faster_port_waits_behind_nobody_and_passes_nobody() -> None:
    """Four packets over a link four times as fast as those around it: no gap before the last."""
    world = world_of(one_path((100, 400, 400, 100)), stream(0, 1, 4 * 4096))
    assert delivered(world) == [4 * FULL + 2 * (HEAD // 4) + FULL + way(4)]


def test_carriers_lead_the_same_way_through_rates_that_rise() -> None:
    fabric = through(clos(nics=8, planes=2))
    fabric.port_rate_bps[np.asarray(fabric.port_switch) >= 0] *= 4
    ways = [
        all_complete(world_of(fabric, permutation(8, 300_000, 1), queues=Queues(by_usid=by_usid)))
        for by_usid in (False, True)
    ]
    assert fct(ways[0]).tolist() == fct(ways[1]).tolist()
    assert ways[0].counters() == ways[1].counters()


# --- RoCEv2 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("packets", [1, 2, 16])
def test_packets_of_roce_do_as_those_of_mrc(packets: int) -> None:
    world = roce.roce_world(through(roce.leaf_spine()), stream(0, 7, packets * 4096))
    last = roce.FIRST if packets == 1 else roce.start_of(packets - 1) + roce.FRAME
    there = last + 3 * HEAD + roce.WAY
    assert delivered(world) == [there]
    assert fct(world).tolist() == [there + 3 * HEAD + roce.ACK + roce.WAY]


def test_a_packet_of_roce_is_stored_where_the_rate_rises() -> None:
    world = roce.roce_world(one_path((50, 100, 100, 50)), stream(0, 1, 4096))
    assert delivered(world) == [2 * roce.FIRST + 2 * HEAD + 2 * roce.FIRST + way(4)]


# --- faults -----------------------------------------------------------------------------------

UP = "plane 0 t0 0 > t1 0"
AT_T1 = HEAD + 750 * NS + FULL + 750 * NS  # when the last bit of a packet is in at the T1


@pytest.mark.parametrize(
    ("cut_at", "lost"),
    [
        (AT_T1 - FULL + HEAD, 1),  # its header has just come
        (AT_T1 - FULL + HEAD + 1, 1),
        (AT_T1, 1),
        (AT_T1 + 1, 0),
    ],
)
@pytest.mark.parametrize("kind", [Transport, RoceTransport])
def test_a_link_that_is_cut_under_a_packet_loses_it_though_its_header_is_through(
    cut_at: int, lost: int, kind: Any
) -> None:
    if kind is RoceTransport:
        cut_at -= (4096 + FRAME) * BYTE - roce.FIRST  # its packet is shorter
    cut = Fault(cut_at, "link-down", UP, for_ps=1 * US)
    short: dict[str, Any] = {"rto_ps": 30 * US, "convergence_ps": (0, 0)}
    more = short if kind is RoceTransport else {}
    world = world_of(one_path(), stream(0, 1, 4096), [cut], kind=kind, **more)
    all_complete(world)
    c = world.counters()
    assert (c["dropped_fault"], c["retransmitted"]) == (lost, lost)
    of_others = c["link_traversals"] - 4 * c["delivered"] - 2 * lost
    assert 0 <= of_others <= 4 * c["in_flight"], "nothing took another way"


def test_what_breaks_elsewhere_lets_a_packet_go_on_with_its_last_bit() -> None:
    """Nothing is at two places while something changes; before and after, it is as ever."""
    whole = FULL + 3 * HEAD + way(4)
    for at, stored in ((HEAD + 750 * NS, 0), (HEAD + 750 * NS + 1, 1), (AT_T1, 1), (AT_T1 + 1, 0)):
        elsewhere = Fault(at, "link-loss", "nic 1 plane 0 > t0", rate=0.0001, for_ps=S_LATER)
        world = world_of(one_path(), stream(0, 1, 4096), [elsewhere])
        found = delivered(world)
        assert found == [whole + stored * (FULL - HEAD)], at


S_LATER = 1_000 * US


def test_a_switch_that_falls_silent_under_a_packet_loses_it() -> None:
    silent = Fault(AT_T1, "switch-silent", "plane 0 t1 0", for_ps=1 * US)
    world = all_complete(world_of(one_path(), stream(0, 1, 4096), [silent]))
    assert world.counters()["dropped_fault"] == 1


# --- busy worlds ------------------------------------------------------------------------------


def test_no_link_carries_more_than_its_rate_and_trimming_goes_on() -> None:
    queues = Queues(queue_bytes=10 * 4262, queue_last_hop_bytes=10 * 4262)
    world = world_of(through(clos()), incast(8, 7, 500_000), queues=queues)
    rate = np.asarray(world.fabric.port_rate_bps)

    def look(world: World) -> None:
        under_way_ps = FULL  # a transmission is counted when it begins
        sent_ps = np.asarray(world.net.port.sent_bytes) * PS_BITS // rate
        assert (sent_ps <= world.now_ps + under_way_ps).all()
        conserved(world)

    in_slices(world, 5 * US, look)
    c = world.counters()
    assert c["trimmed"] > 100
    assert (c["dropped_queue"], world.bytes_wrong, set(world.errors())) == (0, 0, {""})


def test_pfc_has_enough_headroom() -> None:
    """What comes after a pause was asked for is never more than where packets are stored."""
    fabric = through(roce.leaf_spine())
    world = roce.roce_world(fabric, incast(8, 7, 500_000), cc="none", buffer_bytes=2_000_000)
    roce.balanced(all_complete(world))
    found = roce.roce(world)
    assert found["pauses"] > 0
    assert found["pfc_drops"] == 0


@pytest.mark.parametrize("kind", [Transport, RoceTransport])
def test_an_idle_fabric_is_faster_and_a_full_one_is_as_fast(kind: Any) -> None:
    """A message of a packet, and one of thousands: what is saved is a few transmissions."""
    times = {}
    for size in (4096, 4_000_000):
        for fabric in (clos(), through(clos())):
            world = all_complete(world_of(fabric, stream(0, 7, size), kind=kind))
            times[size, fabric.cut_through] = int(fct(world)[0])
    for size in (4096, 4_000_000):
        saved = times[size, False] - times[size, True]
        assert 3 * (FULL - HEAD) * 0.95 < saved < 2.1 * 3 * (FULL - HEAD)
