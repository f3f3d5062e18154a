"""Egress queues, the same in every world: how much each port holds, from where on it marks, and
what becomes of a packet that comes to it (MRC 4.6, row 15).

A queue is a list of packets, linked through their records. A port's record has `head` and `tail` of
each class and what is queued (`data_queued_bytes`, of data and retransmissions;
`control_queued_bytes`); a packet's has `next`, `klass`, `trimmable`, and `frame_bytes`, which is
all that it occupies on the wire. Indices without a packet are a list too: `free_head` of a control
record, which counts them in `n_free`. The limits are four fields, of the port itself or of what
many ports have in common: `queue_bytes`, `control_queue_bytes`, `ecn_low_bytes`, `ecn_high_bytes`.
They are called as the keys of `[fabric]` from which they follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import bits
from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA, CLASS_RETRANSMIT
from openmrc.fabric.model import Fabric, LongArray
from openmrc.fabric.rtt import port_rate_bps
from openmrc.jit import inlined, inner
from openmrc.units import PS_BITS

CLASSES = 3  # in strict priority: control, retransmissions, data
CONTROL_BYTES = 64 * 1024  # row 15
CONTROL_BYTES_PER_SENDER = 256
CONTROL_BYTES_OF_HEADERS = 2 * 1024 * 1024  # at most
HEADER_BYTES = 256  # of a trimmed packet (166 on the wire), and of what is said about it meanwhile
START_BDP = 1.5  # what a sender may have in flight before it hears anything (MRC 4.6)
LAST_HOP_BDP = 1.5
UNLIMITED = 2**31 - 1  # bytes that no queue holds

QUEUE, TRIM, TRIM_LAST, DROP = range(4)  # what `admit` says


@dataclass(frozen=True)
class Queues:
    """Egress queues of every switch port, and how it forwards. `None` means the default in the
    comment.
    """

    trim: bool = True
    queue_bytes: int | None = None  # data and retransmissions: 1 BDP of a port
    queue_last_hop_bytes: int | None = None  # 1.5 BDP
    # None: what all senders' first windows are as headers, 64 KiB to 2 MiB; or 256 B x fan-in if
    # that is more (row 15)
    control_queue_bytes: int | None = None
    ecn_low: float = 0.2  # of BDP
    ecn_high: float = 0.8
    ecn_last_hop: bool = False
    by_usid: bool = False  # forward by carriers and tables, not by arithmetic: the same, slower

    def sizes(self, default: Sizes) -> Sizes:
        """Return the sizes that these say, and those of `default` where they say nothing."""
        return default._replace(
            queue_bytes=self.queue_bytes or default.queue_bytes,
            queue_last_hop_bytes=self.queue_last_hop_bytes or default.queue_last_hop_bytes,
            control_queue_bytes=self.control_queue_bytes or default.control_queue_bytes,
        )


class Sizes(NamedTuple):
    """Of a NIC port's rate, in bytes on the wire; slower ports have less in proportion."""

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


def whole_packets(size: float, packet_bytes: int) -> int:
    """Return `size` rounded up to whole packets."""
    return -int(-size // packet_bytes) * packet_bytes


def control_queue_bytes(senders: int, start_packets: int = 0) -> int:
    """Return the default of the control class, for as many QPs that send to one NIC, each so many
    packets at once that a switch may trim (row 15).

    A header that is dropped is a loss that nobody is told of.
    """
    headers = min(HEADER_BYTES * senders * start_packets, CONTROL_BYTES_OF_HEADERS)
    return max(CONTROL_BYTES, CONTROL_BYTES_PER_SENDER * senders, headers)


def sizes_of(queues: Queues, bdp_bytes: float, packet_bytes: int, senders: int) -> Sizes:
    """Return the sizes for a port with this BDP, in whole packets."""
    start_packets = -int(-START_BDP * bdp_bytes // packet_bytes) if queues.trim else 0
    default = Sizes(
        queue_bytes=whole_packets(bdp_bytes, packet_bytes),
        queue_last_hop_bytes=whole_packets(LAST_HOP_BDP * bdp_bytes, packet_bytes),
        control_queue_bytes=control_queue_bytes(senders, start_packets),
        ecn_low_bytes=whole_packets(queues.ecn_low * bdp_bytes, packet_bytes),
        ecn_high_bytes=whole_packets(queues.ecn_high * bdp_bytes, packet_bytes),
    )
    return queues.sizes(default)


def sizes_at(
    fabric: Fabric, queues: Queues, rtt_ps: int, packet_bytes: int, senders: int | None = None
) -> Sizes:
    """Return the sizes at a base round trip; `senders`, the largest number of QPs that send to one
    NIC, is one per other NIC if it is not known.
    """
    bdp = port_rate_bps(fabric) * rtt_ps / PS_BITS
    return sizes_of(queues, bdp, packet_bytes, fabric.n_nics - 1 if senders is None else senders)


def limits_of(fabric: Fabric, sizes: Any, ecn_last_hop: bool) -> Limits:
    """Return the limits of all ports, from `Sizes` or what has its fields.

    What a NIC has not sent yet it holds itself.
    """
    from_nic, last = fabric.port_switch < 0, fabric.port_last_hop
    scale = fabric.port_rate_bps / port_rate_bps(fabric)
    marks = ~from_nic & (~last | ecn_last_hop)  # MRC 6.5
    queue = np.where(last, sizes.queue_last_hop_bytes, sizes.queue_bytes) * scale
    high = max(sizes.ecn_high_bytes, sizes.ecn_low_bytes + 1)
    return Limits(
        queue_bytes=_bounded(~from_nic, queue),
        control_queue_bytes=_bounded(~from_nic, sizes.control_queue_bytes),
        ecn_low_bytes=_bounded(marks, sizes.ecn_low_bytes * scale),
        ecn_high_bytes=_bounded(marks, high * scale),
    )


def _bounded(where: Any, size: Any) -> LongArray:
    found: LongArray = np.minimum(np.where(where, size, UNLIMITED), UNLIMITED).astype(np.int64)
    return found


@inlined
def take_free(ctl, packets):
    """An index that no packet has; the caller has seen to it that there is one."""
    n = int(ctl.free_head)
    ctl.free_head = packets[n].next
    ctl.n_free -= 1
    return n


@inlined
def give_back(ctl, packets, n):
    """No packet has this index any more."""
    packets[n].next = ctl.free_head
    ctl.free_head = n
    ctl.n_free += 1


@inlined
def admit(packets, port, limits, streams, port_no, n):
    """What becomes of packet `n` at a port that is busy: `QUEUE` it; `TRIM` it, or `TRIM_LAST`: put
    it in the place of the last one queued, and trim that; or `DROP` it.

    `streams[port_no]` is the port's own stream of random numbers: what is drawn here is a matter of
    this port and of what came to it, whatever happens elsewhere meanwhile.
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
    """The data queue is full: trim the arriving packet or the last queued one, by a coin; drop what
    may not be cut.
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
    """The last packet of the data queue, whose place packet `n` is about to take."""
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
        or port.head[CLASS_RETRANSMIT] >= 0
        or port.head[CLASS_DATA] >= 0
    )


@inlined
def marks(port, limits, streams, port_no, p_max):
    """Whether a packet that has left a port's data queue is marked, by what it leaves behind: at
    random between the two thresholds, with a probability that grows to `p_max`; always above.
    """
    over = port.data_queued_bytes - limits.ecn_low_bytes
    span = limits.ecn_high_bytes - limits.ecn_low_bytes
    return over > 0 and _drawn(streams, port_no, over, span, p_max)


@inner
def _drawn(streams, port_no, over, span, p_max):
    return over >= span or bits.draw_below(streams, port_no, int(span / p_max)) < over
