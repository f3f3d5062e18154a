"""The state of endpoints as arrays of records: one dtype for each kind of record, one State for all
of them.

Everything is sized when a QP is created and indexed from its record (`qp.slot0`, `qp.ev0` ...), so
one QP in a live endpoint and 131,072 in a simulation use the same code.

Sequence numbers are int64 counted from 0 for each QP; only packets carry them modulo 2^24
(`psn_of`, `unwrap`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from openmrc.engine.packet import (
    EVERY_PACKET,
    PACKET,
    PSN_HALF,
    PSN_MASK,
    TIMESTAMP_MASK,
    TIMESTAMP_UNIT_PS,
)
from openmrc.engine.parameters import PLANES_MAX, RECORDED
from openmrc.jit import fields, inlined, record_type
from openmrc.jit.byref import by_reference

NEVER = np.int64(1) << np.int64(62)  # a time that never comes, ps

# QP states, MRC 1.7 (qp.py), with the numbers of `ibv_qp_state`
RESET, INIT, RTR, RTS, ERROR = 0, 1, 2, 3, 6

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

# completions
DONE_SEND, DONE_DELIVERED, DONE_RECV_IMM = 0, 1, 2

CONFIG = record_type(
    *RECORDED,  # the parameters, as they are
    ("nominal_overhead", "i8"),  # MRC 4.1: nominal packet size = payload + this
    ("port_rate_bps", "i8"),
    ("base_rtt_ps", "i8"),  # T of MRC 4.6
    ("alpha_time_ps", "i8"),  # that NSCC grows by; 0: T
    ("skip_turns", "i8"),  # that a marked EV loses, or one of `policy.SKIP_TURNS`
    ("cc_step", "i8"),  # address of a policy (policy.py); 0: the built-in one
    ("path_choose", "i8"),  # the same, or ROTATION, REPS, RECYCLING
    ("path_learn", "i8"),
    ("rto_base_ps", "i8"),  # 1.024 us * 2^t, row 9
    ("paths", "i1"),  # PATHS_...
    ("cc", "i1"),  # CC_...
    ("reverse", "i1"),  # REVERSE_...: the EVs of control packets, row 14
    ("trimming", "i1"),
    # 1: the last hop marks, no stand-in mark is needed (MRC 4.6)
    ("marks_on_last_hop", "i1"),
    ("must_post_receives", "i1"),  # 1: an immediate needs a posted receive, MRC 1.2
    ("ignore_marks", "i1"),  # 1: a CE mark affects the window only, and makes no EV SKIP
    ("guarded", "i1"),  # 1: packets may come from anybody (plausible.py)
    # 1: an EV is a number of one end alone, as a source port of an ordinary network is
    ("local_evs", "i1"),
    ("account", "i1"),  # 1: an account is kept (account.py)
)

COUNTERS = (  # of a QP
    "n_rtx",
    "n_false",  # proven false alarms
    *("n_dup", "n_probe", "n_trial", "n_sack", "n_nack"),
    *("n_bad_total", "n_revived", "n_skips", "n_inferred"),
    "n_timeouts",  # packets covered by an RTO epoch
    "n_epochs",
)

QP = record_type(
    # --- touched by every packet sent and every SACK received, so first
    ("inflight", "i8"),  # bytes of packets whose latest transmission is SENT
    ("inflight_again", "i8"),  # those of them that are retransmissions
    ("cwnd", "f8"),
    ("una", "i8"),  # oldest sequence not known received
    ("nxt", "i8"),  # next new sequence
    *fields("i8", "slot0", "slot_mask", "msg0", "msg_mask"),
    ("msg_done", "i8"),  # messages completed, = number of the oldest open one
    ("msg_cur", "i8"),  # message being cut into packets
    ("msg_end", "i8"),  # messages posted
    ("seq_end", "i8"),  # sequence after the last packet of the last posted message
    ("evidence_at", "i8"),  # newest original, or probe, known received, row 7
    ("lost", "i8"),  # packets that wait to be sent again
    ("lost_hint", "i8"),  # none of them is below this sequence
    ("turn_max", "i8"),  # highest turn count of a plane
    ("sent_bytes", "i8"),  # nominal sizes of all packets below nxt: no more can be received
    ("tx_data_at", "i8"),  # last data sent, for reverse EV freshness
    ("new_at", "i8"),  # last original sent
    *fields("i8", "plane0", "ev0", "order0"),
    ("acked0", "i8"),  # word of the sender's copy of the bitmap
    ("ring_mask", "i8"),  # bits of a bitmap ring - 1, sender's and receiver's
    ("n_planes", "i4"),
    ("n_evs", "i4"),
    ("order_len", "i4"),  # room in a plane's rotation
    ("planes_ok", "i4"),  # mask of planes that may take a turn
    ("burst_ev", "i4"),  # EV of the last new packet, which `burst_left` more may take
    ("burst_left", "i4"),
    # EVs on trial: those that wait for a packet large enough, and those that have sent it (row 11)
    *fields("i2", "waiting", "tried"),
    ("mpr", "i4"),  # packets beyond una that may be outstanding
    *fields("i4", "first_psn", "peer_psn", "nic", "peer_nic"),
    ("peer", "i4"),  # record of the pair of endpoints
    ("index", "i4"),  # of this record, and of its random stream
    ("qpn", "i4"),
    ("peer_qpn", "i4"),
    ("rtt_samples", "i4"),  # round trips measured since `rtt_turn_at` was set
    ("state", "i1"),
    ("error", "i1"),
    ("error_at", "i8"),
    # --- congestion control, MRC 4.6
    ("rcvd_high", "i8"),  # highest rcvd_bytes seen, units of 256 B, unwrapped
    ("base_rtt", "i8"),
    ("target", "i8"),
    *fields("f8", "max_wnd", "alpha", "fi", "eta", "fi_scale"),
    ("pkt", "f8"),  # nominal packet size of a full packet
    *fields("f8", "avg_delay", "inc", "since_adjust", "calm", "achieved", "ignored", "to_ignore"),
    *fields("i8", "last_adjust", "last_dec", "qa_end"),
    ("trimmed_at", "i8"),  # last trim at the last hop
    ("trimmed_units", "i8"),  # `rcvd_high` at that time
    ("cut_started", "i8"),  # inferred losses: start of the round trip that shares one cut
    ("cut_floor", "f8"),
    ("spared", "f8"),  # the window before the receiver's penalties; 0: there are none
    ("fast_below", "f8"),  # delay under which the path counts as idle, T/12
    ("t_config", "f8"),  # T
    ("qa_threshold", "f8"),
    ("qa_window", "f8"),  # max_wnd / 2^qa_gate
    ("rto", "i8"),
    # --- loss and timers
    *fields("i8", "last_heard", "rto_at"),
    ("answer_at", "i8"),  # `last_heard`, but NEVER until something answers what is in flight
    *fields("i8", "quiet_from", "quiet_until"),  # the last standstill: a long time without answers
    ("overdue_at", "i8"),  # when to look for packets whose answer is overdue
    ("again_evidence_at", "i8"),  # newest retransmission known received, row 7
    ("doubt", "i8"),  # send time of a packet that is overdue, without evidence yet; else NEVER
    ("doubted_end", "i8"),  # no packet from this one on was sent again in doubt
    ("query_at", "i8"),  # the QP sends no probe of its own before this time
    # of originals and of retransmissions: samples since the last turn, and between the two before
    ("rtt_largest", "i8", (2,)),
    ("rtt_before", "i8", (2,)),
    ("rtt_turn_at", "i8"),
    ("rtt_least", "i8"),  # the smallest sample ever; `base_rtt` stops at T / 2 (MRC 4.6)
    ("two_packets", "i8"),  # time that two full packets take at a port
    ("finish_at", "i8"),  # everything SACKed, the transport ACK missing: probe then (row 17)
    ("ev_probe_at", "i8"),
    ("reverse_probe_at", "i8"),
    ("epoch_at", "i8"),  # last expiry of the RTO
    ("charged_at", "i8"),  # last charge for a resource NACK
    ("epoch", "i4"),
    ("n_bad", "i4"),  # EVs in ASSUMED_BAD
    ("probe_id", "i4"),
    ("tail_plane", "i4"),
    ("query_id", "i4"),  # id of the QP's own probe in flight, -1 none
    ("queries", "i4"),  # sent in a row without any progress
    ("query_sent_at", "i8"),
    ("asked", "i2"),  # probes sent together with it, of the ids up to this one
    ("lost_plane", "i2"),  # of the last packet judged lost, -1 none yet
    ("wimm_open", "i4"),  # WriteImm posted and not completed
    ("rqmsn_next", "i8"),
    # --- responder
    ("rx0", "i8"),  # word of the bitmap
    ("cack", "i8"),  # highest sequence with no gap below it, -1 at the start
    ("rx_high", "i8"),  # highest sequence received
    ("rx_bytes", "i8"),  # new bytes received, in nominal packet sizes
    ("sack_credit", "i8"),  # bytes since the last SACK
    ("asked_seq", "i8"),  # newest sequence that asked for a SACK
    ("probed_bytes", "i8"),  # rx_bytes at the last probe, -1 none yet
    *fields("i8", "hole_cursor", "rmsg0", "rmsg_mask"),
    ("rx_msn", "i8"),  # message that completes next in order
    ("rx_done", "i8"),  # sequence of the last packet of the message before, -1 at the start
    ("rx_heard_at", "i8"),
    ("receives", "i8"),  # receives posted
    ("turn_after", "i8"),  # when to look again at which planes packets arrive, at the earliest
    ("rx_mpr", "i4"),
    ("mpr_now", "i4"),  # dynamic MPR announced
    ("wimm_held", "i4"),  # immediates in open messages
    ("control_turn", "i4"),
    ("sack_turn", "i4"),
    ("planes_denied", "i4"),  # mask of planes with no EV that is not DENIED
    # masks of planes on which packets arrived: since the last turn, and between the two before
    *fields("i2", "came_now", "came_before"),
    ("came_left", "i2"),  # packets until the next turn, which waits for `turn_after`
    # --- what both ends agreed on, MRC 1.9
    ("untrimmable", "i1"),  # 1: the peer sends no trim NACKs, so nothing may be trimmed
    ("dynamic_mpr", "i1"),  # 1: both ends enable it, MRC 1.5
    ("own_block", "i8"),  # newest block that a SACK's trigger lay in
    ("trail_block", "i8", (2,)),  # older ones that changed: the last newest, one with a late packet
    ("trail_left", "i1", (2,)),  # reports that they are still due
    ("penalty", "u1"),  # what SACKs say as a receiver, as in `packet.PACKET`
    # of congestion control: here they fill a word. `cc` is the record of `nscc` that it obeys
    *fields("i1", "qa_trigger", "fast", "cc"),
    # --- counters
    *fields("i8", *COUNTERS),
)

SLOT = record_type(
    ("sent_at", "i8"),  # of its latest transmission ...
    ("ev", "i2"),  # ... index within the QP
    ("before_ev", "i2"),  # the same of the transmission before ...
    ("before_ns", "u4"),  # ... which was sent so much earlier, rounded up
    ("known_units", "i4"),  # rcvd_bytes of the snapshot that showed it received, low 31 bits
    ("bytes_nominal", "i2"),
    ("fate", "i1"),  # of the latest transmission (fate.py) ...
    ("before", "i1"),  # ... and of the one before
)

PLANE = record_type(
    ("turn", "i8"),  # packets given to the plane, bounded lag
    ("delivered_at", "i8"),  # newest send time known delivered
    ("heard_at", "i8"),  # when that was learned
    ("first_lost_at", "i8"),  # send time of the first loss since
    ("ev0", "i4"),  # its EVs are contiguous: first index within the QP
    ("n_evs", "i4"),
    ("n_active", "i4"),  # length of the rotation
    ("share", "i4"),  # length it should have
    ("pos", "i4"),
    ("picks", "i4"),  # since the last shuffle
    ("losses", "i4"),  # losses in a row, with no delivery in between
    ("reverse_ev", "u4"),
    ("trial_ev", "u4"),
    ("trial_id", "i4"),
    ("n_good", "i2"),  # EVs GOOD or SKIP, active and backup
    ("clean", "i2"),  # EV to be recycled, index within the QP; -1 none (recycling.py)
    ("delivers", "i2"),  # share of what it delivered lately, of `ev.WHOLE`
    ("proven", "i2"),  # EV of the newest packet known delivered, index within the QP; -1 none yet
    ("silent", "i1"),
    ("reverse_known", "i1"),  # its reverse EV delivered something, and no doubt came since
    ("keep", "i1"),  # % of its EVs that stay in service while it delivers, row 12
)

EV = record_type(
    ("value", "u4"),
    ("used", "i4"),
    ("blame", "i4"),  # its record of BLAME; 0: it was never ASSUMED_BAD
    ("state", "i1"),
    ("active", "i1"),  # in the rotation; above 1: and passes that many turns, less one, in SKIP
    ("plane", "i1"),
    # CE marks in a row; a delivery, which may be that of the marked packet, makes it negative, and
    # the next one 0.
    ("marks", "i1"),
)

# Kept for an EV that was ever ASSUMED_BAD: one path in a hundred, so it is a separate record.
BLAME = record_type(
    ("demoted_at", "i8"),
    ("probe_at", "i8"),  # next probe
    ("spacing", "i8"),
    ("probe_id", "i4"),  # probe in flight, NONE, or a trial: WANTED or TRIED (ev.py)
    ("demotions", "i2"),
    ("answers", "i2"),
    # What its sizes show: payloads of packets, bytes, -1 none yet
    ("lost", "i2"),  # the smallest one lost, until one as large passes
    ("passed", "i2"),  # the largest one that has passed since
    ("narrow", "i2"),  # times in a row that a smaller one passed, and one as large was lost
    ("delivers", "i2"),  # the share of its packets that it delivered lately, of `WHOLE` (ev.py)
)

MESSAGE = record_type(
    *fields("i8", "wr_id", "length", "remote_va", "first_seq", "n_packets"),
    *fields("u4", "rkey", "imm"),
    ("rqmsn", "i4"),
    ("has_imm", "i1"),
)

RX_MESSAGE = record_type(
    *fields("i4", "received", "total"),
    ("imm", "u4"),
    *fields("i1", "has_imm", "done"),
    ("wimm", "i1"),  # counted in wimm_held
)

# What the packets of a message agree on, and what a QP spends on useless packets: only where
# packets may come from anybody (plausible.py).
UNDER_WAY = record_type(
    ("origin", "i8"),  # address that sequence 0 would have
    ("first_min", "i8"),  # its first packet's sequence lies between these two
    ("first_max", "i8"),
    ("length", "i8"),
    ("rkey", "u4"),
)
GUARD = record_type(
    ("answers", "f8"),  # budget of answers to duplicates and to packets out of window ...
    ("answers_at", "i8"),  # ... when it was last updated
    ("refused_at", "i8"),  # when a packet without access was last counted
    ("refused_psn", "i4"),
    ("refused", "i4"),  # how often in a row that PSN was refused
)

REGION = record_type(("va", "i8"), ("length", "i8"), ("rkey", "u4"), ("nic", "i4"))
REGION_INDEX_BITS = 22  # low bits of an rkey; the others are drawn at random

NIC = record_type(
    *fields("i4", "qp0", "n_qps", "peer0", "n_peers", "up_mask", "n_ports", "request_id"),
    # row 11: probes of paths stay under 1 % of a NIC's packets, those of QPs of its bytes
    ("probe_tokens", "f8", (2,)),
    ("probe_tokens_at", "i8", (2,)),
    ("probe_rate", "f8", (2,)),  # tokens per ps
    ("deadline", "i8"),
    # planes that deliver to no peer (`nic_planes.py`), and what each has delivered and lost
    *fields("i8", "silent_until", "silence"),
    ("delivered_at", "i8", (PLANES_MAX,)),
    ("losses", "i4", (PLANES_MAX,)),
    ("loser", "i4", (PLANES_MAX,)),
    ("silent_mask", "i4"),
)

PEER = record_type(
    ("remote", "i4"),
    ("qp", "i4"),  # a QP between the two, whose reverse EVs are used
    ("remote_mask", "i4"),  # planes that the peer reports as up
    ("request_id", "i4"),
    ("status_id", "i4"),  # request id of the newest port status received
    ("pending", "i1"),
    ("next_at", "i8"),  # next port status
    ("spacing", "i8"),
    ("down_probe_at", "i8"),  # when to probe planes that the peer reported as down
    ("window", "f8"),  # that its QPs shared when the last of them had sent everything
)

# NSCC with values of a controller, in place of those derived from the rate and T
NSCC = record_type(
    *fields("f8", "gamma", "max_md_jump", "eta", "fi", "fi_scale", "max_wnd", "adjust_bytes"),
    *fields("i8", "adjust_ps", "base_rtt", "target", "qa_threshold"),
    *fields("i4", "qa_gate"),
    *fields("i1", "without_qa", "without_cc"),
)
NSCCS = 64  # the first one stands for derived values

REPS_HELD = 8  # REPS, section 3.1: EVs that the ring of recycled ones holds
REPS = record_type(  # of a plane of a QP end, where paths are REPS (reps.py)
    ("thaw_at", "i8"),  # freezing mode lasts at least until then
    ("held", "i2", (REPS_HELD,)),  # EVs, indices within the QP
    ("explore", "i4"),  # packets left of the exploration after freezing mode
    ("head", "i1"),  # where the next EV is written
    ("fresh", "i1"),  # EVs before `head` that no packet has used yet
    ("known", "i1"),  # entries of `held` that were ever written
    ("again", "i1"),  # frozen: the entry whose EV is used next
    ("frozen", "i1"),
)

MARKS = record_type(("ev", "u4"), ("n", "i4"))  # CE marks in a row on an EV, row 23
MARKS_PER_QP = 256  # EVs that a receiver watches at once; EVs of equal hash displace each other

COMPLETION = record_type(("kind", "i4"), ("qp", "i4"), ("id", "i8"), ("imm", "i8"))

REQUESTS = 64  # endpoint requests a NIC remembers: more than it may send in a round trip (row 11)

# State.count: used lengths of `out` and `done`; the last placement; the last packet sent; the last
# record of `blame` in use; of `account`: records, those for which it had no room, how many are due
# to be taken
OUT, DONE, PLACED_REGION, PLACED_OFFSET, PLACED_LENGTH, PLACED_SEQ = range(6)
SENT_SEQ, SENT_MESSAGE, BLAMED, TOLD, UNTOLD, DUE, COUNTS = range(6, 13)
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
    blame: Any  # BLAME: record 0 of EVs never blamed, then room for one an EV, untouched until used
    order: Any  # int16, rotations: order_len per plane and QP, indices into the QP's EVs
    message: Any  # MESSAGE, a ring per QP that sends
    rx_message: Any  # RX_MESSAGE, a ring per QP that receives
    bits: Any  # uint64 words of bitmap rings
    under_way: Any  # UNDER_WAY, beside `rx_message` if CONFIG.guarded, else one
    guard: Any  # GUARD, beside `qp` if CONFIG.guarded, else one
    marks: Any  # MARKS, MARKS_PER_QP per QP where row 23 is in use, else one
    region: Any  # REGION
    nic: Any  # NIC
    peer: Any  # PEER, sorted by remote within a NIC
    request: Any  # int32, REQUESTS per NIC: QP whose EV probe has this request id
    nscc: Any  # NSCC, by `qp.cc`
    stream: Any  # uint64 random streams, one per QP
    own: Any  # float64 [qps, OWN] of a user's policies, else [1, OWN]
    reps: Any  # REPS, one for each of `plane` where paths are REPS, else one
    out: Any  # PACKET: what the last call wants to send
    done: Any  # COMPLETION: what the last call completed
    account: Any  # RECORD: what the last calls decided, where an account is kept, else one
    tally: (
        Any  # int32 [evs, 2]: packets delivered and trimmed, where an account is kept, else [1, 2]
    )
    count: Any  # int64 [COUNTS]


@inlined
def timestamp_of(now):
    """The timestamp of a packet sent now, which its answer echoes (MRC 2.5)."""
    return (now // TIMESTAMP_UNIT_PS) & TIMESTAMP_MASK


@inlined
def age_of(timestamp, now):
    """How long ago a packet with this timestamp was sent, ps, to within one unit (128 ns)."""
    return ((now // TIMESTAMP_UNIT_PS - timestamp) & TIMESTAMP_MASK) * TIMESTAMP_UNIT_PS


@inlined
def left_at(timestamp, now):
    """When a packet with this timestamp was sent, ps, rounded down to a unit (128 ns)."""
    return now // TIMESTAMP_UNIT_PS * TIMESTAMP_UNIT_PS - age_of(timestamp, now)


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
def packets_of(length, pmtu):
    """Packets of a message: one per PMTU, one for an empty message."""
    return max((length + pmtu - 1) // pmtu, 1)


@inlined
def signed(value, bits):
    """The low `bits` bits of a value as a signed number."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def _clearing(names: Iterable[str]) -> Any:
    """Return a function that zeroes these fields of a packet record."""
    scope: dict[str, Any] = {"__name__": __name__}
    lines = [f"    p.{name} = 0" for name in names]
    exec("\n".join(["def clear(p):", *lines]), scope)  # compiled code accesses fields by name
    return scope["clear"]


# Zeroes the fields that only some opcodes use, so that no packet carries another's leftovers.
clear = inlined(_clearing(name for name in PACKET.names or () if name not in EVERY_PACKET))


@inlined
def emit(st, opcode):
    """Take the next free record of `out`, cleared except for the opcode."""
    n = st.count[OUT]
    st.count[OUT] = n + 1
    p = st.out[n]
    clear(p)
    p.opcode = opcode
    return p


@inlined
def address(p, q):
    """Set the addresses of a packet: from this end of a QP to the other."""
    p.src = q.nic
    p.dst = q.peer_nic
    p.dst_qpn = q.peer_qpn


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
