"""Lower bounds, checked against arithmetic done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.traffic.ideal import costs, ideal_ps
from openmrc.traffic.traffic import Traffic, make_traffic, unroll
from openmrc.workload import broadcast, incast, ring_all_reduce, send_recv, stream

GBPS = 10**9
US = 10**6
PEER = {"pmtu": 4086, "control_wire_bytes": 64}


def whole_packets(_payload: int) -> int:
    return 4150


def with_header(payload: int) -> int:
    return payload + 64


def peer_fabric() -> Fabric:
    return fat_tree(128, 100 * GBPS, 4, 4, US, 0, tiers=3)


def test_two_megabytes_over_the_longest_path() -> None:
    # 490 packets of 332 ns, 5 more hops of one, 6 us of light; back 6 us and 6 x 5.12 ns.
    one = stream(0, 127, 2_000_000)
    whole = 490 * 332_000 + 5 * 332_000 + 6 * US + 6 * US + 6 * 5_120
    assert ideal_ps(peer_fabric(), one, whole_packets, **PEER) == whole == 176_370_720
    # The last packet has 1946 B; by a way of its own it need not queue behind the last full one.
    exact = 489 * 332_000 + 5 * 332_000 + 12 * US + 6 * 5_120
    assert ideal_ps(peer_fabric(), one, with_header, **PEER) == exact == 176_038_720


def test_a_short_message_is_one_short_packet() -> None:
    one = stream(0, 127, 36)  # 100 B on the wire: 8 ns
    assert ideal_ps(peer_fabric(), one, with_header, **PEER) == 6 * 8_000 + 12 * US + 6 * 5_120


@pytest.mark.parametrize(
    ("dst", "links"), [(1, 2), (4, 4), (16, 6)], ids=["one T0", "one pod", "across"]
)
def test_a_nearer_destination_is_sooner(dst: int, links: int) -> None:
    one = stream(0, dst, 4086)
    expected = links * (332_000 + US + US + 5_120)
    assert ideal_ps(peer_fabric(), one, with_header, **PEER) == expected


def test_a_message_in_eight_parts_is_as_fast_as_its_short_packets() -> None:
    # 512 B and 64 of headers are 46.08 ns: two on each of four planes, the last over four links.
    fabric = multiplane(64, 4, 100 * GBPS, 8, 8, US, 500_000)
    one = stream(0, 63, 4096)
    parts, whole = (
        ideal_ps(fabric, one, with_header, **PEER | {"pmtu": 4096}, parts=n) for n in (8, 1)
    )
    ways = 8 * US + 6 * 500_000 + 4 * 5_120
    assert parts == (2 + 3) * 46_080 + ways
    assert whole == 4 * 332_800 + ways


@pytest.mark.parametrize(("packets", "rounds"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_n_packets_over_eight_planes_take_their_rounds(packets: int, rounds: int) -> None:
    fabric = multiplane(64, 8, 100 * GBPS, 8, 8, US, 500_000)
    one = stream(0, 63, packets * 4096)
    there = (rounds + 3) * 4262 * 80 + 4 * US + 3 * 500_000
    back = 4 * 178 * 80 + 4 * US + 3 * 500_000
    found = ideal_ps(fabric, one, lambda payload: payload + 166, 4096, 178)
    assert found == there + back


def test_an_incast_takes_as_long_as_the_last_link_needs() -> None:
    # 64 times 490 packets through one port, behind one packet's way there.
    sixty_four = incast(128, 64, 2_000_000)
    expected = 64 * 490 * 332_000 + 5 * 332_000 + 6 * US + 6 * US + 6 * 5_120
    assert ideal_ps(peer_fabric(), sixty_four, whole_packets, **PEER) == expected
    assert round(expected / US) == 10_425


def test_a_sender_of_many_messages_is_limited_by_its_own_port() -> None:
    out = make_traffic("out", 128, [0] * 3, [16, 32, 64], [0, 1, 2], 4086 * 100)
    expected = 300 * 332_000 + 5 * 332_000 + 12 * US + 6 * 5_120
    assert ideal_ps(peer_fabric(), out, with_header, **PEER) == expected


def chain(kind: str) -> Traffic:
    edges = ([0], [1])
    ends: dict[str, Any] = {"recv": edges} if kind == "recv" else {"sent": edges}
    return make_traffic("chain", 128, [0, 16], [16, 0], [0, 1], 4086, [5 * US, 0], **ends)


def test_a_chain_waits_for_the_arrival_or_for_the_acknowledgement() -> None:
    there, back = 6 * 332_000 + 6 * US, 6 * US + 6 * 5_120
    after_arrival = ideal_ps(peer_fabric(), chain("recv"), with_header, **PEER)
    after_ack = ideal_ps(peer_fabric(), chain("sent"), with_header, **PEER)
    assert after_arrival == 5 * US + there + there + back
    assert after_ack == 5 * US + there + back + there + back


def test_a_ring_takes_its_steps_one_after_the_other() -> None:
    fabric = multiplane(8, 1, 100 * GBPS, 8, 1, US, 0)
    ring = ring_all_reduce(8, 8 * 1000)
    arrive, back = 2 * 1064 * 80 + 2 * US, 2 * US + 2 * 5_120
    assert ideal_ps(fabric, ring, with_header, **PEER) == 14 * arrive + back


@pytest.mark.parametrize(
    "series",
    [
        ring_all_reduce(8, 8 * 6000, channels=2, chunks=3, compute_ps=3 * US),
        send_recv(6, 5 * 4096, chunks=5, steps=9, compute_ps=np.arange(6) * US),
        broadcast(7, 4 * 3000, chunks=4, compute_ps=np.arange(7) * US),
        broadcast(13, 4 * 3000, chunks=4, shape="tree"),
    ],
    ids=["ring", "send-recv", "chain", "tree"],
)
def test_a_series_is_bounded_as_its_messages_are(series: Traffic) -> None:
    fabric = multiplane(16, 2, 100 * GBPS, 4, 4, US, 0)
    found = ideal_ps(fabric, series, with_header, **PEER)
    assert found == ideal_ps(fabric, unroll(series), with_header, **PEER)


def test_the_pause_before_a_step_is_part_of_the_ideal() -> None:
    fabric = multiplane(8, 1, 100 * GBPS, 8, 1, US, 0)
    quick, slow = (ring_all_reduce(8, 8000, compute_ps=us * US) for us in (0, 50))
    times = [ideal_ps(fabric, ring, with_header, **PEER) for ring in (quick, slow)]
    assert times[1] - times[0] == 13 * 50 * US


def test_a_ring_of_thousands_is_bounded_without_listing_it() -> None:
    fabric = multiplane(4096, 1, 100 * GBPS, 64, 64, US, 0)
    ring = ring_all_reduce(4096, 4096 * 1000)
    within, across, back = 2 * 1064 * 80 + 2 * US, 4 * 1064 * 80 + 4 * US, 4 * US + 4 * 5_120
    # 8190 messages in a row, every 64th of which crosses; the last one does, so 128 of them
    found = ideal_ps(fabric, ring, with_header, **PEER)
    assert found == 8190 * within + 128 * (across - within) + back


def test_what_needs_only_some_releases_is_bounded_by_its_start() -> None:
    # Message 2 goes when either of the others is done: too early is still a bound.
    either = make_traffic(
        "either", 128, [0, 1, 4], [16, 17, 8], [0, 1, 2], [40_860, 4086, 4086],
        sent=([0, 1], [2, 2]), deps=[0, 0, 1],
    )  # fmt: skip
    alone = make_traffic("alone", 128, [0], [16], [0], 40_860)
    assert ideal_ps(peer_fabric(), either, with_header, **PEER) == ideal_ps(
        peer_fabric(), alone, with_header, **PEER
    )


def test_each_message_has_its_own_ideal() -> None:
    two = make_traffic("two", 128, [0, 0], [1, 16], [0, 1], [4086, 4086])
    cost = costs(peer_fabric(), two, with_header, **PEER)
    assert (cost.arrive + cost.ack).tolist() == [
        2 * (332_000 + 2 * US + 5_120),
        6 * (332_000 + 2 * US + 5_120),
    ]


def test_a_slower_core_delays_by_its_own_serialisation() -> None:
    fabric = fat_tree(4, 200 * GBPS, 2, 1, 0, 0)
    core = fabric.port_switch[fabric.port_reverse] >= 0
    fabric.port_rate_bps[core & (fabric.port_switch >= 0)] = 100 * GBPS
    one = stream(0, 3, 936)  # 1000 B: 40 ns on the links of the NICs, 80 ns between the switches
    expected = 40_000 + 80_000 + 80_000 + 40_000 + 2 * (2_560 + 5_120)
    assert ideal_ps(fabric, one, with_header, **PEER) == expected
