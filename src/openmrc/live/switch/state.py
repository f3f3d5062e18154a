"""State of all switches of a live fabric: ports, frames, wires, and their counters.

Arrays of records, passed to compiled code as one pointer. A directed port of the fabric has one
`PORT`, the NICs' own ports included: the loop also plays the NIC's end of the link, so that a link
has a rate in both directions. A *wire* is a descriptor, one for each port of a NIC; its number is
that of the NIC's directed port.

A frame stays in the buffer into which the kernel wrote it: `FRAME` names the buffer of the pool,
and queues and wires link FRAME records. The MTU determines the size of buffers; nothing is
allocated while the loop runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import bits
from openmrc.fabric.actions import EVENT, PORT_HEALTH
from openmrc.fabric.dscp import TRIM_LENGTHS
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import CLASSES, Limits, Queues, Sizes, bounds_of
from openmrc.fabric.rtt import port_rate_bps
from openmrc.jit import CACHE_LINE, heap, records
from openmrc.jit.byref import by_reference
from openmrc.live.syscalls import EPOLL, IOVEC, MESSAGE, POLL
from openmrc.wire import addresses, srv6
from openmrc.wire.layout import ETHERNET

RECEIVE_BATCH = 32  # frames per call; more bring no measurable gain
SEND_BATCH = 32
ORDERS = 4096  # fault actions that may wait for the loop
WIRE_FRAMES_MAX = 512  # waiting for a NIC's full socket; more are lost: the NIC is too slow
WIRE_FRAMES_MIN = 4
LATE_BINS = 32  # bins of lateness, each twice as wide as the one before it; bin 0 is below 1 us
SEED_SWITCHES = 200  # separates the random streams drawn here from others

# Why a frame is not delivered. The first five happen at an egress port, the others on arrival.
(
    DROP_QUEUE,
    DROP_CONTROL,
    DROP_LINK,
    DROP_LOSS,
    DROP_RECEIVER,
    DROP_SEND,
    DROP_SWITCH,
    DROP_BLOCK,
    DROP_CARRIER_END,
    DROP_NO_ROUTE,
    DROP_HOP_LIMIT,
    DROP_BAD_FRAME,
    DROP_TOO_LONG,
) = range(13)
DROPS = (
    "queue_full",  # the data classes' limit, and the frame may not be trimmed
    "control_full",
    "link_down",  # queued at or in flight from a port that went down, or sent to one that is
    "loss",  # drawn by a loss rate
    "receiver_full",  # the NIC does not read its socket
    "send_error",  # the socket refused it for another reason
    "switch_down",  # arrived at a switch that is silent or down
    "not_mine",  # not a carrier of this fabric
    "end_of_carrier",
    "no_route",
    "hop_limit",
    "bad_frame",
    "too_long",  # longer than the MTU
)
# Limits of a port that change with its rate; the control class holds headers at any rate.
FOLLOW_THE_RATE = tuple(name for name in Limits._fields if name != "control_queue_bytes")
AT_EGRESS = DROP_SEND + 1  # reasons below it belong to the port's own switch, others to the next

PORT = np.dtype(
    [
        ("rate_bps", "i8"),  # currently
        ("delay_ps", "i8"),  # to the peer, with the peer's switch delay
        ("free_at", "i8"),  # when its transmission is over
        ("data_queued_bytes", "i8"),
        ("control_queued_bytes", "i8"),
        ("queue_bytes", "i8"),
        ("control_queue_bytes", "i8"),
        ("ecn_low_bytes", "i8"),
        ("ecn_high_bytes", "i8"),
        ("pause_bytes", "i8"),  # of a NIC's port: queued bytes above which its wire is not read
        ("cut_until", "i8"),  # frames sent up to this time that have not arrived are lost
        ("full_rate_bps", "i8"),
        # at the full rate, and the least that remains however slow the port is
        *((f"{which}_{name}", "i8") for which in ("full", "least") for name in FOLLOW_THE_RATE),
        ("head", "i4", (CLASSES,)),  # queues of FRAME, -1: empty
        ("tail", "i4", (CLASSES,)),
        ("peer_switch", "i4"),  # or -1
        ("wire", "i4"),  # of a port to a NIC: where its frames go; of a NIC's: where they come from
        *PORT_HEALTH,
        ("up", "i1"),
        ("armed", "i1"),  # the event for the end of its transmission is pending
        ("faulty", "i1"),  # losing or damaging
        ("last_hop", "i1"),
        ("paused", "i1"),  # of a NIC's port: its wire is not read
        ("tapped", "i1"),
    ],
    align=True,
)
COUNT = np.dtype(  # of a port
    [
        ("received", "i8"),  # by a NIC's port: frames read from its wire
        ("packets", "i8"),  # put on the wire
        ("wire_bytes", "i8"),  # of these, with preamble, gap and FCS
        ("delivered", "i8"),  # by a port to a NIC: accepted by the NIC's socket
        ("ecn_marked", "i8"),
        ("trimmed", "i8"),
        ("damaged", "i8"),
        ("paused", "i8"),  # times that the wire was not read because the NIC's queue was full
        ("dropped", "i8", (len(DROPS),)),
    ]
)
FRAME = np.dtype(
    [
        ("left_at", "i8"),  # when its last bit left the port that sent it
        ("next", "i4"),
        ("room", "i4"),  # number of its buffer
        ("length", "i4"),  # bytes of the frame
        ("frame_bytes", "i4"),  # on the wire, preamble, gap and FCS included
        ("port", "i4"),  # that sent it last, or at which it waits
        ("klass", "i1"),
        ("trimmable", "i1"),
    ],
    align=True,
)
SWITCH = np.dtype([("state", "i4")])  # 0 up, 1 silent, 2 down
WIRE = np.dtype(
    [
        ("fd", "i4"),
        ("head", "i4"),  # frames for the NIC
        ("tail", "i4"),
        ("n", "i4"),
        ("port", "i4"),  # the port to the NIC
        ("dirty", "i1"),  # in the list of wires to send on
        ("full", "i1"),  # the socket is full for now
        ("closed", "i1"),  # the other end is gone
    ],
    align=True,
)
TAPPED = np.dtype([("at", "i8"), ("port", "i4"), ("length", "i4"), ("kept", "i4")], align=True)
CONTROL = np.dtype(
    [
        ("started_ns", "i8"),  # of the monotonic clock: time 0
        ("wall", "i8"),  # ps since then, at the start of the current step
        ("now", "i8"),  # due time of the event being handled
        ("pool_at", "u8"),  # address of the pool
        ("room_bytes", "i8"),
        ("frame_bytes_max", "i8"),
        ("wire_frames_max", "i8"),
        ("grain_ns", "i8"),  # while frames are inside, the time between two turns; 0: none
        ("spin_ns", "i8"),  # without a grain, waits shorter than this are spun
        ("free_head", "i4"),
        ("n_free", "i4"),
        ("n_armed", "i4"),  # buffers given to the next receive
        ("heap_n", "i4"),
        ("n_dirty", "i4"),
        ("n_paused", "i4"),  # NICs' ports whose wires are not read
        ("n_blocked", "i4"),  # wires whose sockets are full for now
        ("next_event", "i8"),  # next entry of the schedule
        ("orders_done", "i8"),  # both count up, modulo ORDERS
        ("orders_given", "i8"),
        ("leave", "i4"),  # the loop returns to its thread
        ("dscps", "i8"),  # its table of DSCPs, see `wire.classes`
        ("trims", "i4"),  # whether this fabric trims
        ("trim_lengths", "i4"),  # a place in `TRIM_LENGTHS`
        ("kick_fd", "i4"),  # written to when the loop's attention is requested
        ("done_fd", "i4"),  # the loop has carried out orders
        ("epoll_fd", "i4"),
        ("tap_snap", "i4"),  # bytes kept of a tapped frame
        ("tap_written", "i8"),  # both count up, modulo the ring
        ("tap_read", "i8"),
        ("tap_lost", "i8"),
        ("no_room", "i8"),  # times that nothing was read because every buffer was in use
        ("turns", "i8"),  # of the loop
        ("late_max", "i8"),  # ps
    ],
    align=True,
)


@by_reference
class Net(NamedTuple):
    """All state of the switches; made by `build`."""

    ctl: Any  # CONTROL, one
    port: Any  # PORT
    count: Any  # COUNT, by port
    frame: Any  # FRAME
    pool: Any  # uint8 [n_frames, room_bytes]
    switch: Any  # SWITCH
    table: Any  # srv6.TABLE
    slots: Any  # of the tables
    macs: Any  # uint8 [n_ports, 12]: Ethernet addresses of frames on this link
    heap: Any  # ENTRY of jit.heap; what: a frame, or n_frames + a port
    stream: Any  # uint64, random streams, one for each of `port`
    wire: Any  # WIRE
    dirty: Any  # int32: wires to send on
    armed: Any  # int32 [RECEIVE_BATCH]: frames whose buffers the next receive fills
    message: Any  # MESSAGE [RECEIVE_BATCH]
    iov: Any  # IOVEC
    out_message: Any  # MESSAGE [SEND_BATCH]
    out_iov: Any
    ready: Any  # EPOLL: what has happened
    change: Any  # EPOLL, one: what to wait for from now on
    poll: Any  # POLL, one: the epoll descriptor, for waits shorter than its milliseconds
    word: Any  # int64 [2]: room for a timespec
    schedule: Any  # EVENT, by time
    order: Any  # EVENT [ORDERS]
    late: Any  # int64 [LATE_BINS]: frames by their lateness
    tapped: Any  # TAPPED, a ring
    tap_bytes: Any  # uint8 [ring, snap]


def build(
    fabric: Fabric,
    queues: Queues,
    sizes: Sizes,
    fds: Any,
    seed: int,
    frame_bytes_max: int,
    n_frames: int,
    packet_bytes: int,
) -> Net:
    """Return the state of a fabric at rest, without the descriptors of epoll and events.

    A full data packet has `packet_bytes` on the wire, the longest frame `frame_bytes_max`.
    """
    tables, _ = srv6.of_fabric(fabric)
    room_bytes = -(-frame_bytes_max // CACHE_LINE) * CACHE_LINE
    pool = np.zeros((n_frames, room_bytes), np.uint8)
    frame = records(n_frames, FRAME)
    frame.room = np.arange(n_frames)
    frame.next = np.arange(1, n_frames + 1)
    frame.next[-1] = -1
    ctl = records(1, CONTROL)
    c = ctl[0]
    c.pool_at, c.room_bytes, c.frame_bytes_max = pool.ctypes.data, room_bytes, frame_bytes_max
    c.n_free, c.trims, c.dscps = n_frames, queues.trim, fabric.dscps.packed
    c.trim_lengths = TRIM_LENGTHS.index(fabric.trim_lengths)
    n_wires = fabric.n_nics * fabric.n_planes
    # all of them together leave half of the buffers to NICs that do read
    c.wire_frames_max = min(max(n_frames // (2 * n_wires), WIRE_FRAMES_MIN), WIRE_FRAMES_MAX)
    wire = records(n_wires, WIRE)
    wire.fd, wire.head, wire.tail, wire.port = fds, -1, -1, fabric.port_reverse[:n_wires]
    message, iov = _batch(RECEIVE_BATCH)
    iov.length = room_bytes
    out_message, out_iov = _batch(SEND_BATCH)
    return Net(
        ctl=ctl,
        port=_ports(fabric, queues, sizes, packet_bytes),
        count=records(fabric.n_ports, COUNT),
        frame=frame,
        pool=pool,
        switch=records(fabric.n_switches, SWITCH),
        table=tables.switch,
        slots=tables.slots,
        macs=_macs(fabric),
        heap=records(n_frames + fabric.n_ports + 1, heap.ENTRY),
        stream=bits.seed_streams(seed, SEED_SWITCHES, fabric.n_ports),
        wire=wire,
        dirty=np.zeros(n_wires, np.int32),
        armed=np.zeros(RECEIVE_BATCH, np.int32),
        message=message,
        iov=iov,
        out_message=out_message,
        out_iov=out_iov,
        ready=records(n_wires + 1, EPOLL),
        change=records(1, EPOLL),
        poll=records(1, POLL),
        word=np.zeros(2, np.int64),
        schedule=records(0, EVENT),
        order=records(ORDERS, EVENT),
        late=np.zeros(LATE_BINS, np.int64),
        tapped=records(1, TAPPED),
        tap_bytes=np.zeros((1, 1), np.uint8),
    )


def _batch(n: int) -> tuple[Any, Any]:
    message, iov = records(n, MESSAGE), records(n, IOVEC)
    each = np.arange(n, dtype=np.uint64) * np.uint64(IOVEC.itemsize)
    message.iov = iov.ctypes.data + each
    message.iov_length = 1
    return message, iov


def _ports(fabric: Fabric, queues: Queues, sizes: Sizes, packet_bytes: int) -> Any:
    port = records(fabric.n_ports, PORT)
    n_wires = fabric.n_nics * fabric.n_planes
    into_switch = fabric.port_peer_switch >= 0
    port.rate_bps = port.full_rate_bps = fabric.port_rate_bps
    port.delay_ps = fabric.hop_delays_ps()
    bounds = bounds_of(fabric, sizes, queues, packet_bytes)
    for name, of_ports in bounds.limits._asdict().items():
        port[name] = of_ports
    for name in FOLLOW_THE_RATE:
        port[f"full_{name}"] = getattr(bounds.limits, name)
        port[f"least_{name}"] = getattr(bounds.least, name)
    scale = 1 if queues.queue_bytes else fabric.port_rate_bps / port_rate_bps(fabric)
    port.pause_bytes = sizes.queue_bytes * scale
    port.cut_until = np.iinfo(np.int64).min // 2
    port.head = port.tail = -1
    port.peer_switch = np.where(into_switch, fabric.port_peer_switch, -1)
    port.wire = -1
    port.wire[:n_wires] = np.arange(n_wires)
    port.wire[fabric.port_reverse[:n_wires]] = np.arange(n_wires)
    port.up, port.last_hop = 1, fabric.port_last_hop
    return port


def _macs(fabric: Fabric) -> Any:
    """Return destination and source MAC of the frames on each link."""
    macs = np.zeros((fabric.n_ports, ETHERNET.byte("ethertype")), np.uint8)
    for port in range(fabric.n_ports):
        plane = int(fabric.sw_plane[max(fabric.port_switch[port], fabric.port_peer_switch[port])])
        ends = (
            (int(fabric.port_peer_nic[port]), int(fabric.port_peer_switch[port])),
            (int(fabric.port_nic[port]), int(fabric.port_switch[port])),
        )
        for at, (nic, switch) in zip((0, addresses.MAC_BYTES), ends, strict=True):
            if nic >= 0:
                addresses.write_nic_mac(macs[port], at, nic, plane)
            else:
                addresses.write_switch_mac(macs[port], at, switch)
    return macs
