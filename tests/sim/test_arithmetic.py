"""Times and sizes that can be worked out on paper, exact to the picosecond."""

from __future__ import annotations

import pytest

from openmrc.engine import packet as pk
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.sim.mrc.transport import Transport
from openmrc.wire.framing import framing
from openmrc.workload.patterns import stream
from tests.sim.lab import (
    FRAME,
    MS,
    NS,
    STEADY_FROM,
    US,
    all_complete,
    clos,
    fct,
    goodput_gbps,
    stream_world,
    tree,
    world_of,
)

LINK = 500 * NS
SWITCH = 250 * NS
BYTE = 80  # ps at 100 Gb/s
SACK = 178  # bytes on the wire
ACK = 146


def way(links: int) -> int:
    """Latency of a path: its links and the switches between them."""
    return links * LINK + (links - 1) * SWITCH


# --- sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "headers"),
    [
        (pk.WRITE_FIRST, 4 + 4 + 16),  # METH, TSETH, RETH
        (pk.WRITE_MIDDLE, 4 + 4 + 16),
        (pk.WRITE_LAST, 4 + 4 + 16),
        (pk.WRITE_ONLY, 4 + 4 + 16),
        (pk.WRITE_LAST_IMM, 4 + 4 + 16 + 4),
        (pk.WRITE_ONLY_IMM, 4 + 4 + 16 + 4),
        (pk.ACKNOWLEDGE, 4),
        (pk.SACK, 28 + 8),
        (pk.NACK, 20),
        (pk.PROBE, 16),
        (pk.ENDPOINT_REQUEST, 16),
        (pk.ENDPOINT_RESPONSE, 36),
    ],
)
def test_wire_sizes_are_those_of_reference_2(opcode: int, headers: int) -> None:
    ethernet, ipv6, udp, bth, icrc, fcs, gap = 14, 40, 8, 12, 4, 4, 20
    assert framing("mrc").header_bytes[opcode] == (
        ethernet + 2 * ipv6 + udp + bth + headers + icrc + fcs + gap
    )


def test_the_sizes_that_the_reference_adds_up_itself() -> None:
    sizes = framing("mrc")
    assert sizes.data_bytes(4096) == 4262  # 2.1
    assert sizes.data_bytes(1) == 1 + FRAME
    assert sizes.sack_bytes == 158 + 20 == SACK  # 2.7
    assert sizes.header_bytes[pk.ACKNOWLEDGE] == ACK
    assert sizes.trimmed_bytes == 14 + 128 + 4 + 20  # row 21
    assert sizes.nominal_overhead == 8 + 12 + 24 + 4 + 40  # 4.1: UDP length + 40


def test_a_peer_run_charges_64_bytes_of_header_and_nothing_else() -> None:
    sizes = framing("peer")
    assert sizes.data_bytes(4086) == 4150
    assert set(sizes.header_bytes) == {64}
    assert sizes.trimmed_bytes == sizes.nominal_overhead == 64


# --- values derived at the start --------------------------------------------------------------


def test_base_round_trip_and_what_follows_from_it() -> None:
    d = stream_world().derived()
    t = 2 * way(4) + 4 * (4262 + SACK) * BYTE
    assert t == 6_920_800
    assert d["base_rtt_ps"] == t
    assert d["bdp_bytes"] == 692_080  # 100 B each ns
    assert d["max_window_bytes"] == 1_038_120
    assert d["target_delay_ps"] == 3 * t // 4
    assert d["queue_bytes"] == 21 * 4262  # 86,510 B of a port, in whole packets
    assert d["queue_last_hop_bytes"] == 31 * 4262  # 129,765 B
    assert d["ecn_low_bytes"] == 5 * 4262  # 17,302 B
    assert d["ecn_high_bytes"] == 17 * 4262  # 69,208 B
    assert d["control_queue_bytes"] == 65_536
    assert d["rto_ps"] == 262_144_000  # row 9: 1.024 us x 2^8
    assert d["mpr_packets"] == 768  # row 16: 4 BDP are 661 packets
    assert (d["evs_per_plane_active"], d["evs_per_plane_backup"]) == (16, 8)


@pytest.mark.parametrize(
    ("gbps", "tiers", "round_trip_us"), [(100, 3, 14.02), (400, 3, 12.51), (400, 2, 8.34)]
)
def test_base_round_trips_of_the_peer(gbps: int, tiers: int, round_trip_us: float) -> None:
    from openmrc.fabric.clos import fat_tree

    fabric = fat_tree(64, gbps * 10**9, 4, 4, 1 * US, 0, tiers=tiers)
    world = stream_world(fabric, rules="peer", pmtu=4086)
    assert world.derived()["base_rtt_ps"] / US == pytest.approx(round_trip_us, abs=0.006)


def test_the_peers_queue_is_its_bdp_in_whole_packets() -> None:
    from openmrc.fabric.clos import fat_tree

    fabric = fat_tree(128, 100 * 10**9, 4, 4, 1 * US, 0, tiers=3)
    d = stream_world(fabric, rules="peer", pmtu=4086).derived()
    assert d["queue_bytes"] == d["queue_last_hop_bytes"] == 43 * 4150 == 178_450
    assert d["control_queue_bytes"] == 2 * 178_450
    assert d["max_window_bytes"] == 3 * d["bdp_bytes"] // 2


# --- one packet, one message ------------------------------------------------------------------


def paths_of_all_lengths() -> list[tuple[str, Fabric, int, int]]:
    return [
        ("T0-local, eight planes", clos(), 1, 2),
        ("cross-T1, eight planes", clos(), 7, 4),
        ("cross-T1, two planes", clos(planes=2), 7, 4),
        ("T0-local, one plane", tree(), 3, 2),
        ("pod-local, three tiers", tree(), 4, 4),
        ("through the top of three tiers", tree(), 63, 6),
    ]


@pytest.mark.parametrize("size", [1, 4095, 4096])
@pytest.mark.parametrize(("name", "fabric", "dst", "links"), paths_of_all_lengths())
def test_one_packet_takes_its_bits_and_its_way(
    name: str, fabric: Fabric, dst: int, links: int, size: int
) -> None:
    world = all_complete(world_of(fabric, stream(0, dst, size)))
    there = links * (size + FRAME) * BYTE + way(links)
    # the transport ACK leaves with the SACK: beside it on another plane, or behind it on the same
    sack_first = links * SACK * BYTE if fabric.n_planes == 1 else (links - 1) * ACK * BYTE
    back = sack_first + ACK * BYTE + way(links)
    assert world.flows()["delivered_ps"].tolist() == [there]
    assert fct(world).tolist() == [there + back]
    c = world.counters()
    packets = 3 if fabric.n_planes == 1 else 4  # the last ACK leaves on two planes (row 17)
    found = (c["data"], c["sack"], c["injected"], c["link_traversals"])
    assert found == (1, 1, packets, packets * links)


@pytest.mark.parametrize("rounds", [2, 20])
@pytest.mark.parametrize(("name", "fabric", "dst", "links"), paths_of_all_lengths())
def test_a_message_leaves_packet_behind_packet_on_every_plane(
    name: str, fabric: Fabric, dst: int, links: int, rounds: int
) -> None:
    packets = rounds * fabric.n_planes
    if fabric.n_planes == 1:
        packets = rounds = rounds - rounds % 4  # so that the last SACK comes with the last packet
    if packets == 0:
        packets = rounds = 4
    world = all_complete(world_of(fabric, stream(0, dst, packets * 4096)))
    there = (rounds - 1 + links) * 4262 * BYTE + way(links)
    assert world.flows()["delivered_ps"].tolist() == [there]
    sack_first = links * SACK * BYTE if fabric.n_planes == 1 else (links - 1) * ACK * BYTE
    assert fct(world).tolist() == [there + sack_first + ACK * BYTE + way(links)]
    c = world.counters()
    assert (c["data"], c["retransmitted"]) == (packets, 0)
    assert c["sack"] == -(-packets // 4)  # one each 16,384 B (row 5)


def test_a_short_last_packet_is_charged_its_own_bytes() -> None:
    world = all_complete(world_of(clos(planes=1, up=1), stream(0, 1, 2 * 4096 + 100)))
    there = 2 * 4262 * BYTE + 4262 * BYTE + (100 + FRAME) * BYTE + way(2)
    # at the T0 the short one waits for the packet before it
    assert world.flows()["delivered_ps"].tolist() == [there]


def test_an_immediate_costs_its_four_bytes() -> None:
    from openmrc.traffic.traffic import make_traffic

    traffic = make_traffic("one", 8, [0], [7], [0], 1000, imm=True)
    world = all_complete(world_of(clos(), traffic))
    assert world.flows()["delivered_ps"].tolist() == [4 * (1004 + FRAME) * BYTE + way(4)]


# --- steady rates -----------------------------------------------------------------------------


def test_one_stream_on_eight_planes_carries_768_8() -> None:
    world = stream_world(stop=2 * MS)
    world.run()
    steady = goodput_gbps(world, STEADY_FROM, 2 * MS)
    assert steady == pytest.approx(768.8, abs=0.5)
    assert steady <= 800 * 4096 / 4262  # what the line can carry


def test_the_same_through_three_tiers_is_one_eighth() -> None:
    world = stream_world(tree(), stop=2 * MS)
    world.run()
    assert goodput_gbps(world, STEADY_FROM, 2 * MS) == pytest.approx(96.1, abs=0.1)


@pytest.mark.parametrize("pmtu", [1024, 2048, 8192])
def test_a_stream_carries_its_payloads_share_of_the_line(pmtu: int) -> None:
    world = stream_world(stop=1 * MS, pmtu=pmtu)
    world.run()
    expected = 800 * pmtu / (pmtu + FRAME)
    assert goodput_gbps(world, STEADY_FROM, 1 * MS) == pytest.approx(expected, rel=0.001)


def test_defaults_are_those_of_section_11() -> None:
    t, q = Transport(), Queues()
    assert (t.evs_active, t.evs_backup, t.pmtu, t.sack_bytes) == (128, 64, 4096, 16_384)
    assert (t.rto_exponent, t.linear_cnt, t.exp_cnt) == (8, 7, 10)
    assert (q.trim, q.ecn_low, q.ecn_high, q.ecn_last_hop) == (True, 0.2, 0.8, False)
