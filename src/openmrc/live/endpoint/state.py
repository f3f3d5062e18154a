"""What a live endpoint has in addition to the engine's state: ports, rings to and from the
application.

An application thread writes into `post` and reads from `cqe` and `event`; the endpoint's loop does
the opposite. Each ring has one writer and one reader: counts that only grow, the writer's raised
after the entry is written (`memory.fence`). The loop is run by the holder of `lock`: the endpoint's
own thread, one that has just posted a request, or one that waits for a completion (`loop`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import verdict
from openmrc.jit import fields, record_type, records
from openmrc.jit.byref import by_reference
from openmrc.live.syscalls import EPOLL, POLL
from openmrc.wire.frame import ENVELOPE

TX_FRAMES = 64  # of a port, at most, between two system calls; a control packet may take the rest
TX_FRAMES_LEAST = 16  # ... if bursts are shorter
TX_CONTROL = 192
TX_SLOTS = TX_FRAMES + TX_CONTROL
RX_FRAMES = 16  # of a port at a time, at most
POSTS = 4096  # requests posted and not yet taken by the loop, of all QPs
EVENTS = 4096

# Plain UDP (`ip.py`): EVs are source ports, from RoCEv2's own range.
SOURCE_BASE, SOURCE_PORTS = 0xC000, 1 << 14
SOURCES_MAX = 64  # of a plane: each is a socket
NAME_BYTES = 28  # struct sockaddr_in6; struct sockaddr_in is shorter
RX_BURSTS = 4  # datagrams of many segments at a time: more would not stay in the cache

# Why a frame had no effect: the codes of `wire.frame`, these, and the engine's verdicts.
FRAME_REASONS = 20
REASON_NAMES = (
    "not for this port's address",
    "source is no port of this plane",
    "no such queue pair",
    "own control packet: port's queue full",
    *verdict.VERDICT_TEXTS,
)
NOT_MINE, UNKNOWN_SOURCE, UNKNOWN_QP, TX_FULL, VERDICTS = range(FRAME_REASONS, FRAME_REASONS + 5)
N_REASONS = FRAME_REASONS + len(REASON_NAMES)

# The status of a work request: names and numbers of `ibv_wc_status`.
SUCCESS, WR_FLUSH_ERR, REM_INV_REQ_ERR, REM_ACCESS_ERR, REM_OP_ERR = 0, 5, 9, 10, 11
RETRY_EXC_ERR, GENERAL_ERR = 12, 21
# The kind of a work request, as in `ibv_wc_opcode`
RDMA_WRITE, RECV_RDMA_WITH_IMM = 1, 129

LISTED, STATED = 1, 2  # who denies an EV: the denylist, a controller

# Asynchronous events
PATH_BAD, PATH_REVIVED, PORT_DOWN, PORT_UP, QP_ERROR = range(5)

CTL = record_type(
    ("started_ns", "i8"),  # monotonic time at which the engine's clock was 0
    ("now", "i8"),  # ps
    ("nic", "i4"),
    ("n_planes", "i4"),
    ("n_qps", "i4"),  # records of QPs that have ever been in use
    ("qpn_mask", "i4"),  # low bits of a QPN: the record's index
    ("spin", "i4"),  # 1: the thread never sleeps
    ("mode", "i4"),  # NATIVE: a datagram is a frame; UDP, IP: a frame without its headers up to UDP
    ("attention", "i4"),  # written by others: return to Python
    *fields("i4", "sleeping", "wake_fd", "event_fd"),
    ("ports_fd", "i4"),  # epoll: readable if a port is ...
    ("gate_fd", "i4"),  # ... and the same for the endpoint's thread, unless it is shut
    ("shut", "i4"),  # 1: a waiting thread listens to the ports in place of the endpoint's
    ("alarm_fd", "i4"),  # timer: wakes the endpoint's thread for timers that other threads set
    ("lock", "i8"),  # 1: a thread runs the loop
    ("looked", "i8"),  # 1: a thread that waits for a completion runs the loop
    ("due", "i8"),  # when the loop must run again, as of the last round, ps
    ("wakes_at", "i8"),  # when the endpoint's thread will wake by itself, ps
    ("ps_per_byte", "i8"),  # of a port's rate
    ("lead_ps", "i8"),  # how far ahead of its link a port accepts data
    ("rx_most", "i4"),  # datagrams that are taken from a port at a time
    ("tx_most", "i4"),  # data frames of a port between two system calls
    ("paced", "i4"),  # 1: a QP waits for a port to be free
    ("turn", "i4"),  # QP whose turn to send is next
    ("posted", "i8"),  # counts of the post ring: written by the application ...
    ("taken", "i8"),  # ... and by the loop
    *fields("i8", "events", "events_read", "events_lost", "events_told"),  # of the event ring
    *fields("i8", "loops", "sleeps"),
)

PORT = record_type(
    ("fd", "i4"),
    ("first", "i4"),  # frames in its part of the transmit batch: first .. end - 1
    ("end", "i4"),
    ("free_at", "i8"),  # when the link will have sent everything written for it, ps
    ("full", "i1"),  # the kernel takes no more for now ...
    ("full_fd", "i4"),  # ... on this descriptor
    ("ipv4", "i1"),  # mode IP: not IPv6
    ("segments", "i1"),  # mode IP: the kernel cuts datagrams into packets
    ("down", "i1"),  # known to be: packets for it are lost
    ("failed", "i4"),  # errno of the last send that found the port gone, until it is checked
    *fields("i8", "rx_packets", "rx_bytes", "tx_packets", "tx_bytes"),
    ("tx_lost", "i8"),  # frames that could not be sent because the port is gone
    ("blocked", "i8"),  # times that the kernel took no more
    ("unstamped", "i8"),  # probes and requests without time stamp (row 31)
)

OUTGOING = record_type(  # for a slot of the transmit batch, mode IP
    ("fd", "i4"),  # of the source port
    ("to", "i4"),  # row of `reach`
    ("traffic_class", "i4"),
)

POST = np.dtype(
    [
        ("wr_id", "i8"),
        ("address", "i8"),
        ("length", "i8"),
        ("remote_address", "i8"),
        ("rkey", "u4"),
        ("imm", "u4"),
        ("qp", "i4"),
        ("born", "i4"),  # the use of the QP record in which it was posted
        ("kind", "i1"),  # POST_...
        ("signaled", "i1"),
    ]
)
POST_WRITE, POST_WRITE_IMM, POST_RECV = 0, 1, 2

LIVE_QP = record_type(
    ("send_cq", "i4"),
    ("recv_cq", "i4"),
    ("born", "i4"),  # changes with each new use of the record
    ("flushed", "i1"),
    ("recv0", "i8"),  # ring of the wr_ids of posted receives
    *fields("i8", "recv_mask", "recv_head", "recv_tail"),
    *fields("i8", "n_bad", "n_revived"),  # as last reported to the application
    *fields("i8", "tx_packets", "tx_bytes", "rx_packets"),
    ("rx_bytes", "i8"),  # payload placed
    ("carried", "i8"),  # bits: the size tests that were answered (`path_mtu`)
)

# what the application knows of a QP's message; its `wr_id` in the engine is its number
LOCAL = np.dtype([("address", "i8"), ("wr_id", "i8"), ("signaled", "i8")])

CQE = record_type(
    ("wr_id", "i8"),
    ("length", "i8"),
    ("qpn", "i4"),
    ("imm", "u4"),
    ("kind", "u1"),
    *fields("i1", "status", "with_imm"),
)
CQ = record_type(
    *fields("i8", "cqe0", "mask", "written", "read"),
    ("silent", "i8"),  # requests that completed without an entry, as requested
    ("told", "i8"),  # entries of which the reader was notified
    ("fd", "i4"),
)

EVENT = record_type(
    ("at", "i8"), ("kind", "i4"), ("qpn", "i4"), ("plane", "i4"), ("error", "i4"), ("ev", "u4")
)

# Descriptors on which the endpoint's thread sleeps: the last are those of full ports, one a plane.
WAKE, GATE, ALARM, FULL = range(4)
# ... and on which a waiting thread sleeps: the last are its own (`OTHERS_MAX`).
PORTS, READER, OTHERS = range(3)
OTHERS_MAX = 4

NATIVE, UDP, IP = 0, 1, 2
# Requests that others than the engine ask (`loop.ask`): columns of `echo`, whose row is the low
# bits of a request's number. When it left (0: never), when the answer came (0: not yet), the
# number, the NIC that was asked, and the plane on which it answered.
SENT_AT, ANSWERED_AT, NUMBER, ASKED, CAME_ON = range(5)
ECHOES = 4096
SIZE_MASK = 31  # of a timestamp: the number of a size test


@by_reference
class Endpoint(NamedTuple):
    """All state of one live device in addition to the engine's. Every field is an array."""

    ctl: Any  # CTL, one record
    port: Any  # PORT, by plane
    envelope: Any  # ENVELOPE: by plane for what is sent, one more for what is received
    qp: Any  # LIVE_QP, one for each QP of the engine
    local: Any  # LOCAL, one for each MESSAGE of the engine
    receive: Any  # int64, wr_ids of posted receives
    region: Any  # int64, address of each of the engine's regions
    post: Any  # POST, ring
    cq: Any  # CQ
    cqe: Any  # CQE, rings
    event: Any  # EVENT, ring
    ev_state: Any  # int8, one for each EV of the engine: as last reported to the application
    echo: Any  # int64 [ECHOES, 5]: requests that others than the engine ask
    reason: Any  # int64 [planes, N_REASONS]
    ev_count: Any  # int64, one for each EV of the engine: packets sent on it
    ev_denied: Any  # int8, one for each EV of the engine: who denies it, LISTED and STATED
    source: Any  # int32 [planes, SOURCE_PORTS]: descriptor of an own source port, or -1
    reach: Any  # uint8 [peers x planes, NAME_BYTES]: socket addresses of peers, mode IP
    peer_source: Any  # int32 [peers x planes, SOURCES_MAX]: source ports of peers, 0 none
    outgoing: Any  # OUTGOING, one for each slot of the transmit batch
    poll: Any  # POLL: what the endpoint's thread sleeps on (WAKE ...)
    waits: Any  # POLL: what a waiting thread sleeps on (PORTS ...)
    ready: Any  # EPOLL: room for the ports that are readable
    gate: Any  # EPOLL [2], room for the kernel: to open the gate, and to shut it
    alarm: Any  # int64 [4]
    clock: Any  # int64 [2]
    timeout: Any  # int64 [2]
    sleep: Any  # int64 [2]: of the endpoint's thread, which sleeps without the lock
    nap: Any  # int64 [4]: the same of a waiting thread


def new_endpoint(
    *,
    planes: int,
    qps: int,
    messages: int,
    receives: int,
    regions: int,
    cqs: int,
    cqes: int,
    evs: int,
    peers: int = 0,
) -> Endpoint:
    """A zeroed Endpoint with room for so many of each; `peers` are those of plain UDP."""
    return Endpoint(
        ctl=records(1, CTL),
        port=records(planes, PORT),
        envelope=records(planes + 1, ENVELOPE),
        qp=records(qps, LIVE_QP),
        local=records(messages, LOCAL),
        receive=np.zeros(receives, np.int64),
        region=np.zeros(regions, np.int64),
        post=records(POSTS, POST),
        cq=records(cqs, CQ),
        cqe=records(cqes, CQE),
        event=records(EVENTS, EVENT),
        ev_state=np.zeros(evs, np.int8),
        echo=np.zeros((ECHOES, 5), np.int64),
        reason=np.zeros((planes, N_REASONS), np.int64),
        ev_count=np.zeros(evs, np.int64),
        ev_denied=np.zeros(evs, np.int8),
        source=np.full((planes, SOURCE_PORTS if peers else 1), -1, np.int32),
        reach=np.zeros((max(peers, 1) * planes, NAME_BYTES), np.uint8),
        peer_source=np.zeros((max(peers, 1) * planes, SOURCES_MAX), np.int32),
        outgoing=records(planes * TX_SLOTS if peers else 1, OUTGOING),
        poll=records(FULL + planes, POLL),
        waits=records(OTHERS + OTHERS_MAX, POLL),
        ready=records(planes, EPOLL),
        gate=records(2, EPOLL),
        alarm=np.zeros(4, np.int64),
        clock=np.zeros(2, np.int64),
        timeout=np.zeros(2, np.int64),
        sleep=np.zeros(2, np.int64),
        nap=np.zeros(4, np.int64),
    )
