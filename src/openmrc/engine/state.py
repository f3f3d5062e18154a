"""What an endpoint remembers, as arrays of records: one dtype per kind of thing, one State for all
of them.

Everything is sized when a QP is created and indexed from its record (`qp.slot0`, `qp.ev0` ...), so
one QP in a live endpoint and 131,072 in a simulation use the same code. `bytes_per_qp` says what a
QP costs.

Sequence numbers are int64 counted from 0 for each QP; only packets carry them modulo 2^24
(`psn_of`, `unwrap`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.byref import by_reference
from openmrc.engine.packet import PACKET, PSN_HALF, PSN_MASK
from openmrc.engine.policy import OWN
from openmrc.jit import inlined, records

NEVER = np.int64(1) << np.int64(62)  # a time that does not come, ps

# port masks are 32 bits wide on the wire (MRC 2.10); sixteen ports is twice the largest NIC known
PLANES_MAX = 16
EVS_PER_PLANE_MAX = 256  # MRC 3.1: 128 to 256 EVs per QP
WINDOW_MAX = 32_640  # MRC 1.5: largest encodable PSN range, 255 x 128

# QP states, MRC 1.7
RESET, INIT, RTR, RTS, ERROR = 0, 1, 2, 3, 4

# why a QP is in ERROR
(
    NO_ERROR,
    RETRY_EXCEEDED,
    REMOTE_OPERATION,
    REMOTE_ACCESS,
    REMOTE_INVALID_REQUEST,
    LOCAL_ACCESS,
    LOCAL_IMM_OVERRUN,
    LOCAL_NO_RECEIVE,
) = range(8)
ERROR_TEXTS = (
    "no error",
    "retry counter exceeded",
    "remote operation error",
    "remote access error",
    "remote invalid request",
    "access outside a memory region by the peer",
    "too many immediates in flight from the peer",
    "no receive posted for an immediate",
)

# slots
FREE, SENT, LOST, ACKED = 0, 1, 2, 3
# what happened to a slot's packet: sent again; judged lost by inference; that cut the window
RESENT, INFERRED, CUT = 1, 2, 4
AGO_SHIFT = 10  # unit of SLOT.first_ago, 2^10 ps
AGO_MAX = 0x7FFF_FFFF

# path policies
PATHS_MRC, PATHS_OBLIVIOUS, PATHS_SINGLE, PATHS_REPS = 0, 1, 2, 3
BUILT_IN = 1  # in place of an address in CONFIG: what `paths` names, here PATHS_REPS
EV_DENIED = 4  # DENIED of paths.py, for what that imports
# congestion control
CC_NONE, CC_NSCC, CC_OWN = 0, 1, 2

# EVs of control packets: given at set-up, 32 random bits for each (hashed EVs), kept fresh by
# probes (MRC 3.9), or drawn among the EVs of the plane
REVERSE_FIXED, REVERSE_RANDOM, REVERSE_PROBED, REVERSE_SPRAYED = 0, 1, 2, 3

# completions
DONE_SEND, DONE_DELIVERED, DONE_RECV_IMM = 0, 1, 2

CONFIG = np.dtype(
    [
        ("pmtu", "i8"),
        ("nominal_overhead", "i8"),  # MRC 4.1: nominal packet size = payload + this
        ("port_rate_bps", "i8"),
        ("base_rtt_ps", "i8"),  # T of reference 4.6
        ("cc_step", "i8"),  # address of a policy (policy.py); 0: the built-in one
        ("path_choose", "i8"),  # the same, or BUILT_IN
        ("path_learn", "i8"),
        ("freezing_ps", "i8"),  # how long REPS explores nothing after a loss
        ("sack_bytes", "i8"),  # row 5
        ("rto_base_ps", "i8"),  # 1.024 us * 2^t, row 9
        ("linear_cnt", "i4"),
        ("exp_cnt", "i4"),
        ("max_wimm", "i4"),
        ("always_skip_after", "i4"),  # row 23: CE marks in a row on one EV; 0: never
        ("shuffle_rounds", "i4"),  # row 13: a rotation is reshuffled after so many rounds
        ("paths", "i1"),
        ("cc", "i1"),
        ("trimming", "i1"),
        ("dynamic_mpr", "i1"),
        (
            "marks_on_last_hop",
            "i1",
        ),  # 1: the last hop marks, no stand-in mark is needed (reference 4.6)
        ("alpha_by_12us", "i1"),  # 1: peer runs
        ("reverse", "i1"),  # REVERSE_...: the EVs of control packets, row 14
        ("must_post_receives", "i1"),  # 1: an immediate needs a posted receive, MRC 1.2
        ("ignore_marks", "i1"),  # 1: a CE mark moves the window only, and makes no EV SKIP
    ],
    align=True,
)

QP = np.dtype(
    [
        # --- what every packet sent or SACK heard touches, first
        ("inflight", "i8"),  # bytes in slots SENT
        ("cwnd", "f8"),
        ("una", "i8"),  # oldest sequence not known received
        ("nxt", "i8"),  # next new sequence
        ("slot0", "i8"),
        ("slot_mask", "i8"),
        ("msg0", "i8"),
        ("msg_mask", "i8"),
        ("msg_done", "i8"),  # messages completed, = number of the oldest open one
        ("msg_cur", "i8"),  # message being cut into packets
        ("msg_end", "i8"),  # messages posted
        ("seq_end", "i8"),  # sequence after the last packet of the last posted message
        ("evidence_at", "i8"),  # newest first-send time known received, row 7
        ("lost", "i8"),  # slots in state LOST
        ("lost_hint", "i8"),  # no LOST slot below this sequence
        ("turn_max", "i8"),  # highest turn count of a plane
        ("sent_bytes", "i8"),  # nominal sizes of all packets below nxt: no more can be received
        ("tx_data_at", "i8"),  # last data sent, for reverse EV freshness
        ("plane0", "i8"),
        ("ev0", "i8"),
        ("order0", "i8"),
        ("acked0", "i8"),  # word of the sender's copy of the bitmap
        ("ring_mask", "i8"),  # bits of a bitmap ring - 1, sender's and receiver's
        ("n_planes", "i4"),
        ("n_evs", "i4"),
        ("order_len", "i4"),  # room in a plane's rotation
        ("planes_ok", "i4"),  # mask of planes that may take a turn
        ("mpr", "i4"),  # packets beyond una that may be outstanding
        ("first_psn", "i4"),
        ("peer_psn", "i4"),
        ("nic", "i4"),
        ("peer_nic", "i4"),
        ("peer", "i4"),  # record of the pair of endpoints
        ("index", "i4"),  # of this record, and of its random stream
        ("qpn", "i4"),
        ("peer_qpn", "i4"),
        ("state", "i1"),
        ("error", "i1"),
        ("error_at", "i8"),
        # --- congestion control, reference 4.6
        ("rcvd_high", "i8"),  # highest rcvd_bytes seen, units of 256 B, unwrapped
        ("base_rtt", "i8"),
        ("target", "i8"),
        ("max_wnd", "f8"),
        ("alpha", "f8"),
        ("fi", "f8"),
        ("eta", "f8"),
        ("fi_scale", "f8"),
        ("pkt", "f8"),  # nominal packet size of a full packet
        ("avg_delay", "f8"),
        ("inc", "f8"),
        ("since_adjust", "f8"),
        ("calm", "f8"),
        ("achieved", "f8"),
        ("ignored", "f8"),
        ("to_ignore", "f8"),
        ("last_adjust", "i8"),
        ("last_dec", "i8"),
        ("qa_end", "i8"),
        ("cut_started", "i8"),  # inferred losses: start of the round trip that shares one cut
        ("cut_floor", "f8"),
        ("fast_below", "f8"),  # delay under which the path counts as idle, T/12
        ("t_config", "f8"),  # T
        ("qa_threshold", "f8"),
        ("qa_window", "f8"),  # max_wnd / 2^qa_gate
        ("rto", "i8"),
        ("qa_trigger", "i1"),
        ("fast", "i1"),
        # --- loss and timers
        ("reorder_window", "i8"),
        ("window_grown_at", "i8"),
        ("last_heard", "i8"),
        ("tail_at", "i8"),
        ("rto_at", "i8"),
        ("ask_at", "i8"),
        ("finish_at", "i8"),  # everything SACKed, the transport ACK missing: probe then (row 17)
        ("ev_probe_at", "i8"),
        ("reverse_probe_at", "i8"),
        ("epoch_at", "i8"),  # last expiry of the RTO
        ("charged_at", "i8"),  # last charge by a resource NACK
        ("epoch", "i4"),
        ("n_bad", "i4"),  # EVs in ASSUMED_BAD
        ("probe_id", "i4"),
        ("tail_plane", "i4"),
        ("query_id", "i4"),  # id of the QP's own (tail, ask, finish) probe in flight, -1 none
        ("query_sent_at", "i8"),
        ("finish_asked", "i1"),
        ("wimm_open", "i4"),  # WriteImm posted and not completed
        ("rqmsn_next", "i8"),
        # --- responder
        ("rx0", "i8"),  # word of the bitmap
        ("cack", "i8"),  # highest sequence with no gap below it, -1 at the start
        ("rx_high", "i8"),  # highest sequence received
        ("rx_bytes", "i8"),  # new bytes received, in nominal packet sizes
        ("sack_credit", "i8"),  # bytes since the last SACK
        ("hole_cursor", "i8"),
        ("rmsg0", "i8"),
        ("rmsg_mask", "i8"),
        ("rx_msn", "i8"),  # message that completes next in order
        ("rx_heard_at", "i8"),
        ("receives", "i8"),  # receives posted
        ("rx_mpr", "i4"),
        ("mpr_now", "i4"),  # dynamic MPR announced
        ("wimm_held", "i4"),  # immediates in open messages
        ("control_turn", "i4"),
        ("sack_turn", "i4"),
        ("planes_denied", "i4"),  # mask of planes with no EV that is not DENIED
        ("own_block", "i8"),  # newest block that a SACK's trigger lay in
        ("trail_block", "i8"),  # an older one with news
        ("trail_left", "i4"),  # reports that it still gets
        ("penalty", "i1"),
        # --- counters
        ("n_rtx", "i8"),
        ("n_false", "i8"),  # proven false alarms
        ("n_dup", "i8"),
        ("n_probe", "i8"),
        ("n_sack", "i8"),
        ("n_nack", "i8"),
        ("n_bad_total", "i8"),
        ("n_revived", "i8"),
        ("n_skips", "i8"),
        ("n_inferred", "i8"),
        ("n_timeouts", "i8"),  # packets covered by an RTO epoch
        ("n_epochs", "i8"),
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("sent_at", "i8"),  # latest transmission
        # since the first transmission, 2^10 ps, rounded up: what its delivery is evidence of
        ("first_ago", "i4"),
        ("known_units", "i4"),  # rcvd_bytes of the snapshot that showed it received, low 31 bits
        ("bytes_nominal", "i2"),
        ("ev", "i2"),  # index within the QP
        ("bad_ev", "i2"),  # EV of the transmission last judged lost or NACKed, -1 none
        ("state", "i1"),
        ("past", "i1"),  # RESENT, INFERRED, CUT
    ],
    align=True,
)

PLANE = np.dtype(
    [
        ("turn", "i8"),  # packets given to the plane, bounded lag
        ("delivered_at", "i8"),  # newest send time known delivered
        ("heard_at", "i8"),  # when that news came
        ("first_lost_at", "i8"),  # send time of the first loss since
        ("ev0", "i4"),  # its EVs lie together: first index within the QP
        ("n_evs", "i4"),
        ("n_active", "i4"),  # length of the rotation
        ("share", "i4"),  # length it should have
        ("n_good", "i4"),  # EVs GOOD or SKIP, active and backup
        ("pos", "i4"),
        ("picks", "i4"),  # since the last shuffle
        ("losses", "i4"),  # losses in a row, none delivered in between
        ("reverse_ev", "u4"),
        ("trial_ev", "u4"),
        ("trial_id", "i4"),
        ("silent", "i1"),
    ],
    align=True,
)

EV = np.dtype(
    [
        ("demoted_at", "i8"),
        ("probe_at", "i8"),  # next probe
        ("spacing", "i8"),
        ("value", "u4"),
        ("used", "i4"),
        ("probe_id", "i4"),  # probe in flight, -1 none
        ("demotions", "i2"),
        ("answers", "i2"),
        ("state", "i1"),
        ("active", "i1"),  # in the rotation
        ("plane", "i1"),
    ],
    align=True,
)

MESSAGE = np.dtype(
    [
        ("wr_id", "i8"),
        ("length", "i8"),
        ("remote_va", "i8"),
        ("first_seq", "i8"),
        ("n_packets", "i8"),
        ("rkey", "u4"),
        ("imm", "u4"),
        ("rqmsn", "i4"),
        ("has_imm", "i1"),
    ],
    align=True,
)

RX_MESSAGE = np.dtype(
    [
        ("received", "i4"),
        ("total", "i4"),
        ("imm", "u4"),
        ("has_imm", "i1"),
        ("done", "i1"),
        ("wimm", "i1"),  # counted in wimm_held
    ],
    align=True,
)

REGION = np.dtype([("va", "i8"), ("length", "i8"), ("rkey", "u4"), ("nic", "i4")], align=True)
REGION_INDEX_BITS = 22  # low bits of an rkey; the others are drawn at random

NIC = np.dtype(
    [
        ("qp0", "i4"),
        ("n_qps", "i4"),
        ("peer0", "i4"),
        ("n_peers", "i4"),
        ("up_mask", "i4"),
        ("n_ports", "i4"),
        ("request_id", "i4"),
        ("probe_tokens", "f8"),  # row 11: all probes of a NIC stay under 1 % of its packet rate
        ("probe_tokens_at", "i8"),
        ("probe_rate", "f8"),  # tokens per ps
        ("deadline", "i8"),
    ],
    align=True,
)

PEER = np.dtype(
    [
        ("remote", "i4"),
        ("qp", "i4"),  # a QP between the two: its reverse EVs serve
        ("remote_mask", "i4"),  # planes the peer says it has
        ("request_id", "i4"),
        ("status_id", "i4"),  # request id of the newest port status heard
        ("pending", "i1"),
        ("next_at", "i8"),  # next port status
        ("spacing", "i8"),
        ("down_probe_at", "i8"),  # planes marked remote down are probed
    ],
    align=True,
)

REPS_HELD = 8  # REPS, section 3.1: EVs that the ring of recycled ones holds
REPS = np.dtype(  # of a plane of a QP end, where paths are REPS (reps.py)
    [
        ("thaw_at", "i8"),  # freezing mode lasts at least until then
        ("held", "i2", (REPS_HELD,)),  # EVs, indices within the QP
        ("explore", "i4"),  # packets left of the exploration after freezing mode
        ("head", "i1"),  # where the next EV is written
        ("fresh", "i1"),  # EVs before `head` that no packet has taken yet
        ("known", "i1"),  # places of `held` that were ever written
        ("again", "i1"),  # frozen: the place whose EV is taken again next
        ("frozen", "i1"),
    ],
    align=True,
)

MARKS = np.dtype([("ev", "u4"), ("n", "i4")], align=True)  # CE marks in a row on an EV, row 23
MARKS_PER_QP = 256  # EVs that a receiver watches at once; those of equal hash displace each other

COMPLETION = np.dtype([("kind", "i4"), ("qp", "i4"), ("id", "i8"), ("imm", "i8")], align=True)

REQUESTS = 64  # endpoint requests a NIC remembers: more than it may send in a round trip (row 11)

# State.count: how much of `out` and `done` is used; then the last placement
OUT, DONE, PLACED_REGION, PLACED_OFFSET, PLACED_LENGTH = 0, 1, 2, 3, 4
OUT_MAX = 512  # packets one call may emit
DONE_MAX = 1024  # completions one call may report


@by_reference
class State(NamedTuple):
    """All state of the endpoints of one process or one simulated world. Every field is an array."""

    config: Any  # CONFIG, one record
    qp: Any  # QP
    slot: Any  # SLOT, a ring per QP that sends
    plane: Any  # PLANE, n_planes per QP
    ev: Any  # EV
    order: Any  # int16, rotations: order_len per plane and QP, indices into the QP's EVs
    message: Any  # MESSAGE, a ring per QP that sends
    rx_message: Any  # RX_MESSAGE, a ring per QP that receives
    bits: Any  # uint64 words of bitmap rings
    marks: Any  # MARKS, MARKS_PER_QP per QP where row 23 is in use, else one
    region: Any  # REGION
    nic: Any  # NIC
    peer: Any  # PEER, sorted by remote within a NIC
    request: Any  # int32, REQUESTS per NIC: QP whose EV probe has this request id
    stream: Any  # uint64 random streams, one per QP
    own: Any  # float64 [qps, OWN] of policies that a user brings, else [1, OWN]
    reps: Any  # REPS, one for each of `plane` where paths are REPS, else one
    out: Any  # PACKET: what the last call wants sent
    done: Any  # COMPLETION: what the last call completed
    # int64[4]: how much of `out` and `done` is used, and the last placement (region, offset,
    # length)
    count: Any


def new_state(
    *,
    qps: int,
    slots: int,
    planes: int,
    evs: int,
    order: int,
    messages: int,
    rx_messages: int,
    words: int,
    regions: int,
    nics: int,
    peers: int,
    watch_marks: bool = False,
    policies: bool = False,
    recycles: bool = False,
) -> State:
    """A zeroed State with room for so many of each; `watch_marks` where row 23 is in use,
    `policies` where a user brings some, `recycles` where paths are REPS.
    """
    return State(
        config=records(1, CONFIG),
        qp=records(qps, QP),
        slot=records(slots, SLOT),
        plane=records(planes, PLANE),
        ev=records(evs, EV),
        order=np.zeros(order, np.int16),
        message=records(messages, MESSAGE),
        rx_message=records(rx_messages, RX_MESSAGE),
        bits=np.zeros(words, np.uint64),
        marks=records(qps * MARKS_PER_QP if watch_marks else 1, MARKS),
        region=records(regions, REGION),
        nic=records(nics, NIC),
        peer=records(peers, PEER),
        request=np.full(nics * REQUESTS, -1, np.int32),
        stream=np.ones(qps, np.uint64),
        own=np.zeros((qps if policies else 1, OWN)),
        reps=records(planes if recycles else 1, REPS),
        out=records(OUT_MAX, PACKET),
        done=records(DONE_MAX, COMPLETION),
        count=np.zeros(6, np.int64),
    )


@inlined
def psn_of(first_psn, sequence):
    """24-bit PSN of a sequence number."""
    return (first_psn + sequence) & PSN_MASK


@inlined
def unwrap(psn, first_psn, near):
    """The sequence number closest to `near` that has this PSN."""
    ahead = (psn - first_psn - near) & PSN_MASK
    if ahead >= PSN_HALF:
        ahead -= PSN_MASK + 1
    return near + ahead


@inlined
def signed(value, bits):
    """The low `bits` bits of a value as a signed number."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


@inlined
def clear(p):
    """Zero what only some opcodes use, so no packet carries what another left behind."""
    p.va = 0
    p.bitmap = np.uint64(0)
    p.psn = 0
    p.cack_psn = 0
    p.rcvd_units = 0
    p.entropy = 0
    p.rkey = 0
    p.dma_len = 0
    p.imm = 0
    p.payload_len = 0
    p.port_mask = 0
    p.msn = 0
    p.rqmsn = 0
    p.ack_offset = 0
    p.sack_offset = 0
    p.ooo_count = 0
    p.timestamp = 0
    p.flag_bits = 0
    p.m = 0
    p.mpr = 0
    p.penalty = 0
    p.reason = 0


@inlined
def emit(st):
    """The next free record of `out`, cleared; counts it."""
    n = st.count[OUT]
    st.count[OUT] = n + 1
    p = st.out[n]
    clear(p)
    return p


@inlined
def complete(st, kind, qp, number, imm):
    """Report a completion."""
    n = st.count[DONE]
    st.count[DONE] = n + 1
    c = st.done[n]
    c.kind = kind
    c.qp = qp
    c.id = number
    c.imm = imm
