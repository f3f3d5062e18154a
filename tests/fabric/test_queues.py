"""Egress queues: what is admitted, trimmed, dropped and marked, to the byte."""

from __future__ import annotations

from collections import Counter
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
    limits_of,
    sizes_at,
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


def test_limits_scale_with_the_rate_and_a_nic_has_none() -> None:
    fabric = multiplane(8, 2, 10 * GBPS, 2, 2, US, US // 2)
    up, down = int(fabric.sw_first_up[0]), int(fabric.sw_first_down[0])
    fabric.port_rate_bps[up] //= 2
    queues = Queues(queue_bytes=10_000, control_queue_bytes=700, ecn_low=0.0, ecn_high=0.0)
    sizes = sizes_at(fabric, queues, 8 * US, 1000)  # a BDP of 10,000 B
    assert sizes == (10_000, 15_000, 700, 0, 0)
    limits = limits_of(fabric, sizes, ecn_last_hop=False)
    assert [int(of_port[up]) for of_port in limits] == [5000, 700, 0, 0]
    assert [int(of_port[down]) for of_port in limits] == [15_000, 700, UNLIMITED, UNLIMITED]
    assert [int(of_port[0]) for of_port in limits] == [UNLIMITED] * 4
