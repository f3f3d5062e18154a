"""Egress queues: what is admitted, trimmed, dropped and marked, to the byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.engine import bits
from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA, CLASS_RETRANSMIT
from openmrc.fabric import queues
from openmrc.fabric.clos import multiplane
from openmrc.fabric.queues import (
    CLASSES,
    DROP,
    QUEUE,
    TRIM,
    TRIM_LAST,
    UNLIMITED,
    Queues,
    bounds_of,
    sizes_at,
    slowed,
)
from openmrc.jit import records
from tests.exposed import exposed

admit, append, holds_any, marks, replace_last, take = map(
    exposed,
    (
        queues.admit,
        queues.append,
        queues.holds_any,
        queues.marks,
        queues.replace_last,
        queues.take,
    ),
)
give_back, take_free = exposed(queues.give_back), exposed(queues.take_free)

GBPS, US = 10**9, 10**6
FULL = 1000
PACKET = np.dtype(
    [("next", "i4"), ("frame_bytes", "i4"), ("klass", "i1"), ("trimmable", "i1")], align=True
)
PORT = np.dtype(
    [
        ("data_queued_bytes", "i4"),
        ("control_queued_bytes", "i4"),
        ("head", "i4", (CLASSES,)),
        ("tail", "i4", (CLASSES,)),
        ("queue_bytes", "i4"),
        ("control_queue_bytes", "i4"),
        ("ecn_low_bytes", "i4"),
        ("ecn_high_bytes", "i4"),
    ],
    align=True,
)
CONTROL = np.dtype([("free_head", "i4"), ("n_free", "i4")], align=True)


class Port:
    """A port that is busy: 3000 B of data, 200 B of control; marks from 1000 B to 2000 B."""

    def __init__(self) -> None:
        self.packets = records(64, PACKET)
        self.record = records(1, PORT)[0]
        self.record.head[:] = -1
        self.record.queue_bytes, self.record.control_queue_bytes = 3000, 200
        self.record.ecn_low_bytes, self.record.ecn_high_bytes = 1000, 2000
        self.stream = bits.seed_streams(1, 2, 2)
        self.n = 0

    def packet(self, klass: int, n_bytes: int, trimmable: bool = False) -> int:
        """Make a packet, and return its index."""
        self.n += 1
        p = self.packets[self.n]
        p.klass, p.frame_bytes, p.trimmable = klass, n_bytes, trimmable
        return self.n

    def offer(self, klass: int, n_bytes: int, trimmable: bool = False) -> int:
        """Let a packet come, and queue it if it may be; what `admit` said."""
        n = self.packet(klass, n_bytes, trimmable)
        verdict = int(admit(self.packets, self.record, self.record, self.stream, 1, n))
        if verdict == QUEUE:
            append(self.packets, self.record, n)
        return verdict

    def taken(self) -> list[int]:
        """Take everything."""
        found = []
        while holds_any(self.record):
            found.append(int(take(self.packets, self.record)))
        return found

    @property
    def queued(self) -> tuple[int, int]:
        return int(self.record.control_queued_bytes), int(self.record.data_queued_bytes)


def test_queues_fill_to_the_last_byte_and_each_class_has_its_own() -> None:
    port = Port()
    assert [port.offer(CLASS_CONTROL, 100) for _ in range(3)] == [QUEUE, QUEUE, DROP]
    assert port.offer(CLASS_DATA, 2000) == QUEUE
    assert port.offer(CLASS_RETRANSMIT, 1001) == DROP, "retransmissions share the room of data"
    assert port.offer(CLASS_RETRANSMIT, 1000) == QUEUE
    assert port.queued == (200, 3000)


def test_control_goes_first_then_retransmissions_then_data_each_in_its_order() -> None:
    port = Port()
    for klass in (CLASS_DATA, CLASS_RETRANSMIT, CLASS_DATA, CLASS_CONTROL, CLASS_RETRANSMIT):
        assert port.offer(klass, 100) == QUEUE
    assert port.taken() == [4, 2, 5, 1, 3]
    assert port.queued == (0, 0)
    assert take(port.packets, port.record) == -1


def verdicts(last: tuple[int, bool], arriving: tuple[int, bool], klass: int = CLASS_DATA) -> Any:
    """What becomes of a packet that finds the queue full, behind one like `last`, in 100 tries."""
    port = Port()
    port.record.queue_bytes = 2 * FULL + last[0]
    for n_bytes, trimmable in ((FULL, True), (FULL, True), last):
        port.offer(CLASS_DATA, n_bytes, trimmable)
    n = port.packet(klass, *arriving)
    return Counter(
        int(admit(port.packets, port.record, port.record, port.stream, 1, n)) for _ in range(100)
    )


def test_a_coin_says_which_of_two_packets_is_trimmed() -> None:
    found = verdicts((FULL, True), (FULL, True))
    assert set(found) == {TRIM, TRIM_LAST}
    assert 35 < found[TRIM] < 65


def test_what_may_not_be_cut_may_still_take_the_place_of_what_may() -> None:
    assert set(verdicts((FULL, True), (FULL, False))) == {DROP, TRIM_LAST}
    assert verdicts((FULL, False), (FULL, True)) == {TRIM: 100}
    assert verdicts((FULL, False), (FULL, False)) == {DROP: 100}


def test_a_longer_packet_or_one_of_another_class_takes_nobodys_place() -> None:
    assert verdicts((FULL - 1, True), (FULL, True)) == {TRIM: 100}
    assert verdicts((FULL, True), (FULL, True), CLASS_RETRANSMIT) == {TRIM: 100}


def test_whoever_takes_a_place_is_counted_in_it() -> None:
    port = Port()
    for _ in range(3):
        port.offer(CLASS_DATA, FULL, True)
    n = port.packet(CLASS_DATA, 400)
    assert replace_last(port.packets, port.record, n) == 3
    assert port.queued == (0, 2400)


@pytest.mark.parametrize(
    ("left", "p_max", "share"), [(1000, 1.0, 0), (1500, 1.0, 0.5), (1500, 0.2, 0.1), (2000, 0.2, 1)]
)
def test_marks_grow_between_the_thresholds_and_are_certain_above(
    left: int, p_max: float, share: float
) -> None:
    port = Port()
    port.record.data_queued_bytes = left
    marked = sum(bool(marks(port.record, port.record, port.stream, 1, p_max)) for _ in range(2000))
    assert marked / 2000 == pytest.approx(share, abs=0.04 if 0 < share < 1 else 0)


def test_free_indices_come_back_last_in_first_out() -> None:
    packets, ctl = records(3, PACKET), records(1, CONTROL)[0]
    packets.next = (1, 2, -1)
    ctl.n_free = 3
    assert [int(take_free(ctl, packets)) for _ in range(2)] == [0, 1]
    give_back(ctl, packets, 0)
    assert (int(ctl.free_head), int(packets[0].next), int(ctl.n_free)) == (0, 2, 2)


PACKET_BYTES = 1000


def limits_at(share: float, queues: Queues, bdp_packets: int = 100) -> tuple[list[int], list[int]]:
    """What an uplink holds, control holds, and where marks begin and are certain: if it was built
    with this share of the rate, and if a fault leaves it that.
    """
    fabric = multiplane(8, 2, 10 * GBPS, 2, 2, US, US // 2)
    up = int(fabric.sw_first_up[0])
    rtt_ps = bdp_packets * PACKET_BYTES * 800
    sizes = sizes_at(fabric, queues, rtt_ps, PACKET_BYTES)
    whole = bounds_of(fabric, sizes, queues, PACKET_BYTES)
    fabric.port_rate_bps[up] = int(10 * GBPS * share)
    built = bounds_of(fabric, sizes, queues, PACKET_BYTES).limits
    by_fault = slowed(whole, np.array([up]), np.array([share]))
    return [int(of_port[up]) for of_port in built], [int(of_port[0]) for of_port in by_fault]


CONTROL_BYTES = 7 * 150 * 256  # seven others send 1.5 BDP of 100 packets each


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1.0, [100_000, CONTROL_BYTES, 20_000, 80_000]),
        (0.25, [25_000, CONTROL_BYTES, 5_000, 20_000]),
        (0.04, [4_000, CONTROL_BYTES, 1_000, 3_200]),
        (0.03, [4_000, CONTROL_BYTES, 1_000, 3_000]),
        (0.001, [4_000, CONTROL_BYTES, 1_000, 3_000]),
    ],
)
def test_limits_are_times_of_a_ports_own_rate_and_never_below_a_few_packets(
    share: float, expected: list[int]
) -> None:
    """Whether a port was built slow or a fault makes it so. Headers are as many at any rate."""
    built, by_fault = limits_at(share, Queues())
    assert built == by_fault == expected


def test_what_is_stated_in_bytes_is_that_at_every_rate() -> None:
    queues = Queues(queue_bytes=9_999, control_queue_bytes=700)
    for share in (1.0, 0.25, 0.001):
        built, by_fault = limits_at(share, queues)
        assert built == by_fault
        assert built[:2] == [9_999, 700]


def test_what_is_stated_as_a_time_is_whole_packets_of_the_nics_rate() -> None:
    """20 us at 10 Gb/s are 25,000 B; 20.1 us are a packet more."""
    assert limits_at(1.0, Queues(queue_ps=20 * US))[0][0] == 25_000
    assert limits_at(1.0, Queues(queue_ps=20 * US + 1))[0][0] == 26_000
    built, by_fault = limits_at(0.5, Queues(queue_ps=20 * US))
    assert built[0] == by_fault[0] == 12_500


def test_a_queue_of_fewer_packets_than_the_least_stays_as_it_is() -> None:
    for share in (1.0, 0.5, 0.001):
        built, by_fault = limits_at(share, Queues(), bdp_packets=2)
        assert built == by_fault
        assert built[0] == 2_000


def test_a_faster_port_has_more_in_proportion() -> None:
    assert limits_at(4.0, Queues())[0] == [400_000, CONTROL_BYTES, 80_000, 320_000]


def test_the_last_hop_has_a_size_of_its_own_and_a_nic_has_none() -> None:
    fabric = multiplane(8, 2, 10 * GBPS, 2, 2, US, US // 2)
    up, down = int(fabric.sw_first_up[0]), int(fabric.sw_first_down[0])
    for port in (up, down):
        fabric.port_rate_bps[port] //= 2
    queues = Queues(queue_last_hop_bytes=15_000, ecn_low=0.0, ecn_high=0.0)
    sizes = sizes_at(fabric, queues, 8 * US, 1000)  # a BDP of 10,000 B
    assert sizes == (10_000, 15_000, 65_536, 0, 0)
    limits = bounds_of(fabric, sizes, queues, 1000).limits
    assert [int(of_port[up]) for of_port in limits] == [5000, 65_536, 0, 1]
    assert [int(of_port[down]) for of_port in limits] == [15_000, 65_536, UNLIMITED, UNLIMITED]
    assert [int(of_port[0]) for of_port in limits] == [UNLIMITED] * 4
    marking = bounds_of(fabric, sizes, replace(queues, ecn_last_hop=True), 1000)
    assert [int(of_port[down]) for of_port in marking.limits] == [15_000, 65_536, 0, 1]
