"""Egress queues, the same in the simulator and in a live switch: how much each port holds, when it
marks, and what happens to a packet that arrives (MRC 4.6, row 15).

A queue is a list of packets, linked through their records. A port's record has `head` and `tail` of
each class and the queued bytes (`data_queued_bytes`, of data and retransmissions;
`control_queued_bytes`); a packet's has `next`, `klass`, `trimmable`, and `frame_bytes`, all that it
occupies on the wire. Unused packet indices form a list too: `free_head` of a control record, which
counts them in `n_free`. The limits are four fields, of the port itself or of a record that many
ports share: `queue_bytes`, `control_queue_bytes`, `ecn_low_bytes`, `ecn_high_bytes`. They are named
after the keys of `[fabric]` from which they follow.

Limits of data are times: a port holds as many bytes as its own rate sends in that time, so a slow
link delays no longer than a fast one. This also holds for a link that a fault slows down. A limit
stated in bytes is that many bytes at every rate; so is the limit of the control class, whose
headers do not become fewer on a slow link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import bits
from openmrc.engine import packet as pk
from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA
from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.rtt import port_rate_bps
from openmrc.jit import inlined, inner
from openmrc.units import PS_BITS

CLASSES = 3  # in strict priority: control, retransmissions, data
CONTROL_BYTES = 64 * 1024  # row 15
CONTROL_BYTES_PER_SENDER = 256
CONTROL_BYTES_OF_HEADERS = 2 * 1024 * 1024  # at most
HEADER_BYTES = 256  # of a trimmed packet (166 on the wire), and of the control packets about it
# What a port keeps however slow it is: with less, any packet behind another is trimmed or marked.
QUEUE_PACKETS_MIN, ECN_LOW_PACKETS_MIN, ECN_HIGH_PACKETS_MIN = 4, 1, 3
START_BDP = 1.5  # what a sender may have in flight before the first feedback (MRC 4.6)
LAST_HOP_BDP = 1.5
UNLIMITED = 2**31 - 1  # bytes that no queue holds

QUEUE, TRIM, TRIM_LAST, DROP = range(4)  # what `admit` returns


@dataclass(frozen=True)
class Queues:
    """Egress queues of every switch port, and how it forwards. `None` means the default in the
    comment. The size of a queue is given in bytes, or as a time at the port's rate, not both.
    """

    trim: bool = True
    queue_bytes: int | None = None  # data and retransmissions: 1 BDP of a port
    queue_ps: int | None = None
    queue_last_hop_bytes: int | None = None  # 1.5 BDP
    queue_last_hop_ps: int | None = None
    # None: the first windows of all senders, as headers, 64 KiB to 2 MiB; or 256 B x fan-in if that
    # is more (row 15)
    control_queue_bytes: int | None = None
    ecn_low: float = 0.2  # of BDP
    ecn_high: float = 0.8
    ecn_last_hop: bool = False
    by_usid: bool = False  # forward by carriers and tables, not by arithmetic: same result, slower

    def sizes(self, default: Sizes, rate_bps: int, packet_bytes: int) -> Sizes:
        """Return the stated sizes for a port of this rate, and those of `default` where none is
        stated.
        """
        queue = self.queue_bytes or in_packets(self.queue_ps, rate_bps, packet_bytes)
        last_hop = self.queue_last_hop_bytes or in_packets(
            self.queue_last_hop_ps, rate_bps, packet_bytes
        )
        return default._replace(
            queue_bytes=queue or default.queue_bytes,
            queue_last_hop_bytes=last_hop or default.queue_last_hop_bytes,
            control_queue_bytes=self.control_queue_bytes or default.control_queue_bytes,
        )


class Sizes(NamedTuple):
    """Limits at the rate of a NIC's port, in bytes on the wire; those not stated in bytes scale
    with the rate of slower ports.
    """

    queue_bytes: int
    queue_last_hop_bytes: int
    control_queue_bytes: int
    ecn_low_bytes: int
    ecn_high_bytes: int


class Limits(NamedTuple):
    """By directed port, in bytes on the wire; int64 [n_ports]. `UNLIMITED` where there is none."""

    queue_bytes: LongArray  # data and retransmissions: beyond it packets are trimmed, or dropped
    control_queue_bytes: LongArray
    ecn_low_bytes: LongArray  # marks begin
    ecn_high_bytes: LongArray  # everything is marked


class Bounds(NamedTuple):
    """The limits of the queues of all ports."""

    limits: Limits  # at the rate that each port was built with
    least: Limits  # the least that remains when a fault slows the port down: `slowed`


def whole_packets(size: float, packet_bytes: int) -> int:
    """Return `size` rounded up to whole packets."""
    return -int(-size // packet_bytes) * packet_bytes


def in_packets(time_ps: int | None, rate_bps: int, packet_bytes: int) -> int | None:
    """Return the bytes that a rate sends in a time, in whole packets; `None` for `None`."""
    return None if time_ps is None else whole_packets(time_ps * rate_bps / PS_BITS, packet_bytes)


def control_queue_bytes(senders: int, start_packets: int = 0) -> int:
    """Return the default limit of the control class, bytes, if this many QPs send to one NIC and
    each starts with so many packets that a switch may trim (row 15).

    Nobody is notified of a dropped header.
    """
    headers = min(HEADER_BYTES * senders * start_packets, CONTROL_BYTES_OF_HEADERS)
    return max(CONTROL_BYTES, CONTROL_BYTES_PER_SENDER * senders, headers)


def start_headers_bytes(queues: Queues, bdp_bytes: float, packet_bytes: int, senders: int) -> int:
    """Return the default limit of the control class, bytes, if this many QPs send to one NIC, each
    from the start at the rate of a port with this BDP.
    """
    start_packets = -int(-START_BDP * bdp_bytes // packet_bytes) if queues.trim else 0
    return control_queue_bytes(senders, start_packets)


def sizes_of(queues: Queues, rate_bps: int, rtt_ps: int, packet_bytes: int, senders: int) -> Sizes:
    """Return the sizes for a port of this rate at this base round trip, in whole packets."""
    bdp_bytes = rate_bps * rtt_ps / PS_BITS
    default = Sizes(
        queue_bytes=whole_packets(bdp_bytes, packet_bytes),
        queue_last_hop_bytes=whole_packets(LAST_HOP_BDP * bdp_bytes, packet_bytes),
        control_queue_bytes=start_headers_bytes(queues, bdp_bytes, packet_bytes, senders),
        ecn_low_bytes=whole_packets(queues.ecn_low * bdp_bytes, packet_bytes),
        ecn_high_bytes=whole_packets(queues.ecn_high * bdp_bytes, packet_bytes),
    )
    return queues.sizes(default, rate_bps, packet_bytes)


def sizes_at(
    fabric: Fabric, queues: Queues, rtt_ps: int, packet_bytes: int, senders: int | None = None
) -> Sizes:
    """Return the sizes at a base round trip; `senders`, the largest number of QPs that send to one
    NIC, is one per other NIC if it is not known.
    """
    if senders is None:
        senders = fabric.n_nics - 1
    return sizes_of(queues, port_rate_bps(fabric), rtt_ps, packet_bytes, senders)


def bounds_of(fabric: Fabric, sizes: Sizes, queues: Queues, packet_bytes: int) -> Bounds:
    """Return the limits of the queues of all ports, for full packets of this size.

    A NIC keeps packets that it has not sent yet, so its own ports have no limit.
    """
    from_nic, last = fabric.port_switch < 0, fabric.port_last_hop
    scale = fabric.port_rate_bps / port_rate_bps(fabric)
    marks = ~from_nic & (~last | queues.ecn_last_hop)  # MRC 6.5
    stated = np.where(last, queues.queue_last_hop_bytes is not None, queues.queue_bytes is not None)
    high = max(sizes.ecn_high_bytes, sizes.ecn_low_bytes + 1)
    of_all = (
        (sizes.control_queue_bytes, True, 0, ~from_nic),
        (sizes.ecn_low_bytes, False, ECN_LOW_PACKETS_MIN, marks),
        (high, False, ECN_HIGH_PACKETS_MIN, marks),
    )
    queue = np.where(last, sizes.queue_last_hop_bytes, sizes.queue_bytes)
    pairs = [
        _bound(size, in_bytes, scale, packets * packet_bytes, where)
        for size, in_bytes, packets, where in (
            (queue, stated, QUEUE_PACKETS_MIN, ~from_nic),
            *of_all,
        )
    ]
    return Bounds(Limits(*(limit for limit, _ in pairs)), Limits(*(least for _, least in pairs)))


def _bound(
    size: Any, in_bytes: Any, scale: Any, floor_bytes: int, where: Any
) -> tuple[LongArray, LongArray]:
    """One limit of all ports, and its lower bound when slowed; unlimited except `where`."""
    in_bytes = in_bytes | (np.asarray(size) >= UNLIMITED - 1)
    of_rate = np.maximum(size * scale, np.minimum(size, floor_bytes))
    limit = np.where(in_bytes, size, of_rate)
    least = np.where(in_bytes, size, np.minimum(limit, floor_bytes))
    return _bounded(where, limit), _bounded(where, least)


def _bounded(where: Any, size: Any) -> LongArray:
    found: LongArray = np.minimum(np.where(where, size, UNLIMITED), UNLIMITED).astype(np.int64)
    return found


def slowed(bounds: Bounds, ports: Any, shares: Any) -> Limits:
    """Return the limits of these ports while faults leave them these shares of their rates."""
    return Limits(
        *(
            np.maximum((limit[ports] * shares).astype(np.int64), least[ports])
            for limit, least in zip(bounds.limits, bounds.least, strict=True)
        )
    )


@inlined
def take_free(ctl, packets):
    """Take an unused packet index; the caller makes sure that there is one."""
    n = int(ctl.free_head)
    ctl.free_head = packets[n].next
    ctl.n_free -= 1
    return n


@inlined
def give_back(ctl, packets, n):
    """Return a packet index to the free list."""
    packets[n].next = ctl.free_head
    ctl.free_head = n
    ctl.n_free += 1


@inlined
def admit(packets, port, limits, streams, port_no, n):
    """Decide what happens to packet `n` at a busy port: `QUEUE` it; `TRIM` it, or `TRIM_LAST`: put
    it in the place of the last one queued, and trim that; or `DROP` it.

    `streams[port_no]` is the port's own stream of random numbers: the draws depend only on this
    port and the packets that arrived at it.
    """
    packet = packets[n]
    if packet.klass == CLASS_CONTROL:
        fits = port.control_queued_bytes + packet.frame_bytes <= limits.control_queue_bytes
        return QUEUE if fits else DROP
    if port.data_queued_bytes + packet.frame_bytes <= limits.queue_bytes:
        return QUEUE
    return _overflow(packets, port, limits, streams, port_no, packet)


@inner
def _overflow(packets, port, limits, streams, port_no, packet):
    """The data queue is full: trim the arriving packet or the last queued one, chosen at random;
    drop packets that may not be trimmed.
    """
    last = int(port.tail[CLASS_DATA]) if port.head[CLASS_DATA] >= 0 else -1
    if last >= 0 and packet.klass == CLASS_DATA and packets[last].trimmable:
        grown = packet.frame_bytes - packets[last].frame_bytes
        fits = port.data_queued_bytes + grown <= limits.queue_bytes
        if fits and bits.draw_below(streams, port_no, 2) == 0:
            return TRIM_LAST
    return TRIM if packet.trimmable else DROP


@inlined
def append(packets, port, n):
    """Put a packet at the end of the queue of its class."""
    packet = packets[n]
    klass = int(packet.klass)
    if klass == CLASS_CONTROL:
        port.control_queued_bytes += packet.frame_bytes
    else:
        port.data_queued_bytes += packet.frame_bytes
    packet.next = -1
    if port.head[klass] < 0:
        port.head[klass] = n
    else:
        packets[port.tail[klass]].next = n
    port.tail[klass] = n


@inlined
def replace_last(packets, port, n):
    """Return the last packet of the data queue, which packet `n` is about to replace; count `n` as
    queued in its place.
    """
    last = int(port.tail[CLASS_DATA])
    port.data_queued_bytes += packets[n].frame_bytes - packets[last].frame_bytes
    return last


@inlined
def take(packets, port):
    """Remove the next packet by priority, and return it; -1 if none is queued."""
    klass = CLASS_CONTROL
    while port.head[klass] < 0:
        klass += 1
        if klass > CLASS_DATA:
            return -1
    n = int(port.head[klass])
    packet = packets[n]
    port.head[klass] = packet.next
    if klass == CLASS_CONTROL:
        port.control_queued_bytes -= packet.frame_bytes
    else:
        port.data_queued_bytes -= packet.frame_bytes
    return n


@inlined
def holds_any(port):
    """Whether anything is queued at a port."""
    return (
        port.head[CLASS_CONTROL] >= 0
        or port.head[pk.CLASS_RETRANSMIT] >= 0
        or port.head[CLASS_DATA] >= 0
    )


@inlined
def marks(port, limits, streams, port_no, p_max):
    """Whether a packet that has left a port's data queue is marked, by the bytes still queued: at
    random between the two thresholds, with a probability that grows to `p_max`; always above.
    """
    over = port.data_queued_bytes - limits.ecn_low_bytes
    span = limits.ecn_high_bytes - limits.ecn_low_bytes
    return over > 0 and _drawn(streams, port_no, over, span, p_max)


@inner
def _drawn(streams, port_no, over, span, p_max):
    return over >= span or bits.draw_below(streams, port_no, int(span / p_max)) < over
