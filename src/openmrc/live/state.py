"""What a live endpoint has beside the engine's state: ports, rings to and from the application.

An application thread writes into `post` and reads from `cqe` and `event`; the endpoint's loop does
the opposite. Each ring has one writer and one reader: counts that only grow, the writer's moved
after what it counts is there (`memory.fence`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.byref import by_reference
from openmrc.jit import records
from openmrc.live.syscalls import POLL
from openmrc.wire.frame import ENVELOPE

TX_FRAMES = 16  # of a port, between two calls of the kernel; a control packet may take the rest
TX_CONTROL = 192
TX_SLOTS = TX_FRAMES + TX_CONTROL
RX_FRAMES = 16  # of a port at a time: what came on several planes is heard nearly in order
POSTS = 4096  # posted and not yet seen by the loop, of all QPs
EVENTS = 4096

# Why a frame that came is not for the engine. The first codes are those of `wire.frame`.
FRAME_REASONS = 20
(
    NOT_MINE,
    UNKNOWN_SOURCE,
    UNKNOWN_QP,
    WRONG_SOURCE,
    QP_NOT_READY,
    BAD_KEY,
    TOO_LONG,
    UNWANTED,
    OUT_OF_WINDOW,
    DUPLICATE,
    NO_PEER,
    NEVER_SENT,
    CONTRADICTORY,
    TX_FULL,
) = range(FRAME_REASONS, FRAME_REASONS + 14)
N_REASONS = FRAME_REASONS + 14
REASON_NAMES = (
    "not for this port's address",
    "source is no port of this plane",
    "no such queue pair",
    "not from the queue pair's peer",
    "queue pair is not ready",
    "wrong rkey, out of bounds or no write right",
    "longer than the path MTU",
    "an opcode out of place",
    "PSN outside the window",
    "received before",
    "from no peer of this device",
    "about what was never sent",
    "headers that contradict each other or the message's other packets",
    "own control packet: port's queue full",
)

# What became of a work request, with ibverbs' names.
(SUCCESS, RETRY_EXC_ERR, REM_ACCESS_ERR, REM_INV_REQ_ERR, REM_OP_ERR, WR_FLUSH_ERR, GENERAL_ERR) = (
    range(7)
)
# Which kind of work request
RDMA_WRITE, RECV_RDMA_WITH_IMM = 0, 1

# Asynchronous events
PATH_BAD, PATH_REVIVED, PORT_DOWN, PORT_UP, QP_ERROR = range(5)

CTL = np.dtype(
    [
        ("started_ns", "i8"),  # monotonic time at which the engine's clock was 0
        ("now", "i8"),  # ps
        ("nic", "i4"),
        ("n_planes", "i4"),
        ("n_qps", "i4"),  # records of QPs that have ever been in use
        ("qpn_mask", "i4"),  # low bits of a QPN: the record's index
        ("spin", "i4"),  # 1: never sleeps
        ("mode", "i4"),  # NATIVE: a datagram is a frame; UDP: what follows its UDP header
        ("attention", "i4"),  # written by others: return to Python
        ("sleeping", "i4"),
        ("wake_fd", "i4"),
        ("event_fd", "i4"),
        ("ps_per_byte", "i8"),  # of a port's rate
        ("lead_ps", "i8"),  # how far ahead of its link a port takes data
        ("paced", "i4"),  # 1: a QP waits for a port to be free
        ("turn", "i4"),  # QP whose turn to send it is
        ("measuring", "i4"),  # endpoint requests with this bit set are answered into `echo`
        ("posted", "i8"),  # counts of the post ring: written by the application ...
        ("taken", "i8"),  # ... and by the loop
        ("events", "i8"),  # counts of the event ring
        ("events_read", "i8"),
        ("events_lost", "i8"),
        ("events_told", "i8"),
        ("loops", "i8"),
        ("sleeps", "i8"),
    ],
    align=True,
)

PORT = np.dtype(
    [
        ("fd", "i4"),
        ("first", "i4"),  # frames in its part of the transmit batch that wait: first .. end - 1
        ("end", "i4"),
        ("free_at", "i8"),  # when the link will have sent all that was written for it, ps
        ("full", "i1"),  # the kernel takes no more for now
        ("down", "i1"),  # known to be: what is meant for it is lost
        ("failed", "i4"),  # errno of the last send that found the port gone, until looked at
        ("rx_packets", "i8"),
        ("rx_bytes", "i8"),
        ("tx_packets", "i8"),
        ("tx_bytes", "i8"),
        ("tx_lost", "i8"),  # frames that a port that is gone did not take
        ("blocked", "i8"),  # times that the kernel took no more
    ],
    align=True,
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
        ("born", "i4"),  # which life of the QP record it was posted in
        ("kind", "i1"),  # POST_...
        ("signaled", "i1"),
    ]
)
POST_WRITE, POST_WRITE_IMM, POST_RECV = 0, 1, 2

LIVE_QP = np.dtype(
    [
        ("send_cq", "i4"),
        ("recv_cq", "i4"),
        ("born", "i4"),  # changes with each new use of the record
        ("flushed", "i1"),
        ("local0", "i8"),  # of the ring of local addresses, beside the engine's messages
        ("recv0", "i8"),  # ring of the wr_ids of posted receives
        ("recv_mask", "i8"),
        ("recv_head", "i8"),
        ("recv_tail", "i8"),
        ("n_bad", "i8"),  # as last told to the application
        ("n_revived", "i8"),
        ("refused_psn", "i4"),
        ("refused", "i4"),  # how often that PSN was refused in a row
        ("refused_at", "i8"),  # when it last counted
        ("answers", "f8"),  # budget for answers to what is received before, or out of window ...
        ("answers_at", "i8"),  # ... when it was last looked at
        ("tx_packets", "i8"),
        ("tx_bytes", "i8"),
        ("rx_packets", "i8"),
        ("rx_bytes", "i8"),  # payload placed
        ("carried", "i8"),  # bits: which questions about sizes were answered (`path_mtu`)
    ],
    align=True,
)

# what a message of a QP is to the application; for the engine its `wr_id` is its number
LOCAL = np.dtype([("address", "i8"), ("wr_id", "i8"), ("signaled", "i8")])

# what the packets of a message that is under way agree on, beside the engine's RX_MESSAGE
UNDER_WAY = np.dtype(
    [
        ("origin", "i8"),  # address that sequence 0 would have
        ("first_min", "i8"),  # its first packet's sequence lies between these two
        ("first_max", "i8"),
        ("rkey", "u4"),
    ],
    align=True,
)

CQE = np.dtype(
    [
        ("wr_id", "i8"),
        ("length", "i8"),
        ("qpn", "i4"),
        ("imm", "u4"),
        ("status", "i1"),
        ("kind", "i1"),
        ("with_imm", "i1"),
    ],
    align=True,
)
CQ = np.dtype(
    [
        ("cqe0", "i8"),
        ("mask", "i8"),
        ("written", "i8"),
        ("read", "i8"),
        ("silent", "i8"),  # requests that completed without an entry, as asked
        ("told", "i8"),  # up to here the reader was woken
        ("fd", "i4"),
    ],
    align=True,
)

EVENT = np.dtype(
    [("at", "i8"), ("kind", "i4"), ("qpn", "i4"), ("plane", "i4"), ("error", "i4"), ("ev", "u4")],
    align=True,
)

NATIVE, UDP = 0, 1
ECHOES = 256
MEASURE_BIT = 0x8000
SIZE_MASK = 31  # of a timestamp: which question about a size it belongs to


@by_reference
class Endpoint(NamedTuple):
    """All state of one live device beside the engine's. Every field is an array."""

    ctl: Any  # CTL, one record
    port: Any  # PORT, by plane
    envelope: Any  # ENVELOPE: by plane for what is sent, one more for what is received
    qp: Any  # LIVE_QP, beside the engine's QP
    local: Any  # LOCAL, beside the engine's MESSAGE
    length: Any  # int64, beside the engine's RX_MESSAGE: bytes of the message
    under_way: Any  # UNDER_WAY, beside the engine's RX_MESSAGE
    receive: Any  # int64, wr_ids of posted receives
    region: Any  # int64, address of each of the engine's regions
    post: Any  # POST, ring
    cq: Any  # CQ
    cqe: Any  # CQE, rings
    event: Any  # EVENT, ring
    ev_state: Any  # int8, beside the engine's EV: as last told to the application
    echo: Any  # int64 [2, ECHOES]: when measuring requests left, and when they were answered
    reason: Any  # int64 [planes, N_REASONS]
    ev_count: Any  # int64, beside the engine's EV: packets sent on it
    poll: Any  # POLL: wake-up, then the ports, then link events
    clock: Any  # int64 [2], room for the kernel
    timeout: Any  # int64 [2]


def new_endpoint(
    *,
    planes: int,
    qps: int,
    messages: int,
    rx_messages: int,
    receives: int,
    regions: int,
    cqs: int,
    cqes: int,
    evs: int,
) -> Endpoint:
    """A zeroed Endpoint with room for so many of each."""
    return Endpoint(
        ctl=records(1, CTL),
        port=records(planes, PORT),
        envelope=records(planes + 1, ENVELOPE),
        qp=records(qps, LIVE_QP),
        local=records(messages, LOCAL),
        length=np.zeros(rx_messages, np.int64),
        under_way=records(rx_messages, UNDER_WAY),
        receive=np.zeros(receives, np.int64),
        region=np.zeros(regions, np.int64),
        post=records(POSTS, POST),
        cq=records(cqs, CQ),
        cqe=records(cqes, CQE),
        event=records(EVENTS, EVENT),
        ev_state=np.zeros(evs, np.int8),
        echo=np.zeros((2, ECHOES), np.int64),
        reason=np.zeros((planes, N_REASONS), np.int64),
        ev_count=np.zeros(evs, np.int64),
        poll=records(planes + 2, POLL),
        clock=np.zeros(2, np.int64),
        timeout=np.zeros(2, np.int64),
    )
