"""Reliability probes: how an EV leaves ASSUMED_BAD, within a NIC's budget (row 11).

A probe is small. A path that twice has answered one and then lost a larger packet, and delivered
none, may have too small an MTU, and returns only by a *trial*: after the probe it waits for the
next new packet as large as those it lost. That packet goes out on it, counts as lost, and so goes
again at once on another path: if the trial fails, no message waits for it.
"""

from __future__ import annotations

from openmrc.engine import account, beliefs, rotation
from openmrc.engine.account import (
    OF_PATH,
    OF_QP,
    PROBE_ANSWERED,
    PROBE_LATE,
    PROBE_MISSED,
    PROBE_SENT,
    TRIAL,
)
from openmrc.engine.ev import (
    ANSWER,
    ASSUMED_BAD,
    CHECK,
    FAILED,
    FIRST_ANSWER,
    MARKED_ANSWER,
    NEVER_DEMOTED,
    NONE,
    TRIED,
    WANTED,
    ask,
    enter,
    index_of,
    is_narrow,
    is_under_check,
    note_lost,
    note_outcome,
    note_passed,
)
from openmrc.engine.packet import CLASS_DATA, NO_TRIM, PROBE
from openmrc.engine.state import NEVER, address, emit, signed, timestamp_of
from openmrc.jit import inner

ANSWERS_MAX = 8  # row 11
SPACING_MAX_PS = 100_000_000_000  # row 11
PROBE_BURST = 16  # probes a NIC may send at once before its budget (row 11) spaces them
PROBE_SHARE = 0.01
OF_PATHS, OF_QUEUE_PAIRS = 0, 1  # separate budgets: neither kind of probe waits for the other


@inner
def take_probe_token(st, nic, budget, now):
    """Row 11: take a token of the NIC's budget for probes; 0 if a probe may be sent now, else the
    time when one may, ps.

    The burst of each NIC allows one probe per QP: when a plane falls silent, all its QPs probe at
    once.
    """
    n = st.nic[nic]
    burst = float(PROBE_BURST)
    if budget == OF_QUEUE_PAIRS:
        burst = max(burst, float(n.n_qps))
    tokens = n.probe_tokens[budget] + (now - n.probe_tokens_at[budget]) * n.probe_rate[budget]
    tokens = min(tokens, burst)
    n.probe_tokens_at[budget] = now
    if tokens >= 1.0:
        n.probe_tokens[budget] = tokens - 1.0
        return 0
    n.probe_tokens[budget] = tokens
    return now + 1 + int((1.0 - tokens) / n.probe_rate[budget])


@inner
def send_probe(st, q, ev, asks, now):
    """Emit a reliability probe on an EV (MRC 2.9): data class, never trimmed; `asks` is OF_PATH or
    OF_QP. Returns its id.
    """
    q.probe_id = (q.probe_id + 1) & 0xFFFF
    p = emit(st, PROBE)
    address(p, q)
    p.flag_bits = NO_TRIM
    p.klass = CLASS_DATA
    p.ev = st.ev[q.ev0 + ev].value
    p.plane = st.ev[q.ev0 + ev].plane
    p.ack_offset = signed(q.probe_id, 16)
    p.timestamp = timestamp_of(now)
    q.n_probe += 1
    account.note(st, q, ev, now, PROBE_SENT, asks, now)
    return q.probe_id


@inner
def _most_overdue(st, q, up):
    """The ASSUMED_BAD EVs, on planes that are up, whose next probe is due first: of those under
    check, and of the others; -1 if none.
    """
    unknown = other = -1
    unknown_at = other_at = NEVER
    for i in range(q.n_evs):
        e = st.ev[q.ev0 + i]
        if e.state != ASSUMED_BAD or (up >> e.plane) & 1 == 0:
            continue
        b = st.blame[e.blame]
        if is_under_check(q, b):
            if b.probe_at < unknown_at:
                unknown, unknown_at = i, b.probe_at
        elif b.probe_at < other_at:
            other, other_at = i, b.probe_at
    return unknown, other


@inner
def check_all(st, q, now):
    """Row 36, `check_paths`: each path of a new QP must answer a probe before it carries data.

    Probes of all QPs of the NIC are spaced as full packets at line rate, planes in turn: they use a
    thirtieth of it.
    """
    n = st.nic[q.nic]
    gap = max(int(n.n_qps), 1) * PROBE_SHARE / n.probe_rate[OF_PATHS]
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        for i in range(plane.n_evs):
            e = st.ev[q.ev0 + plane.ev0 + i]
            if enter(st, q, plane, plane.ev0 + i, CHECK, now):
                st.blame[e.blame].probe_at = now + int((i * q.n_planes + k) * gap)
                e.active = 0
        plane.n_active = 0
        plane.heard_at = now  # nothing suggests that the plane is at fault
    q.planes_ok = 0
    q.ev_probe_at = now


@inner
def probe_bad_evs(st, q, now):
    """Probe each ASSUMED_BAD EV that is due, most overdue first; set the next deadline. Those under
    check do not wait for the budget, nor behind others that do.
    """
    up = rotation.ports_up(st, q)
    while True:
        i, other = _most_overdue(st, q, up)
        unknown_at = st.blame[st.ev[q.ev0 + i].blame].probe_at if i >= 0 else NEVER
        if unknown_at > now:
            i = other
            due = st.blame[st.ev[q.ev0 + i].blame].probe_at if i >= 0 else NEVER
            if due <= now:
                due = take_probe_token(st, q.nic, OF_PATHS, now)
            if due > 0:
                q.ev_probe_at = min(due, unknown_at)
                return
        b = st.blame[st.ev[q.ev0 + i].blame]
        if b.probe_id != NONE:  # the previous question was not answered
            asked = TRIAL if b.probe_id == TRIED else OF_PATH
            account.note(st, q, i, b.probe_at - b.spacing, PROBE_MISSED, asked, now)
            if b.probe_id == TRIED:
                note_lost(b, int(b.lost))
            b.answers = FAILED
            b.spacing = min(2 * b.spacing, SPACING_MAX_PS)
            if q.planes_ok == 0 and q.una < q.seq_end:  # data waits for answers that may never come
                rotation.refresh_planes(st, q, now)
        ask(q, b, send_probe(st, q, i, OF_PATH, now))
        b.probe_at = now + b.spacing


@inner
def on_query_answer(st, q, value, sent_at, marked, now):
    """The QP's own probe, sent then, was answered on this EV: that counts for an ASSUMED_BAD path
    as any other answer. Returns as `on_probe_answer`.
    """
    ev = index_of(st, q, value)
    if ev < 0:
        return sent_at
    account.note(st, q, ev, sent_at, PROBE_ANSWERED, OF_QP, now)
    if st.ev[q.ev0 + ev].state != ASSUMED_BAD:
        b = st.blame[st.ev[q.ev0 + ev].blame]
        if b.answers == FAILED and not is_narrow(b):  # no longer without any sign
            b.answers = 0
        return sent_at
    return _let_pass(st, q, ev, sent_at, marked, now)


@inner
def on_probe_answer(st, q, value, probe_id, left_at, marked, now):
    """Handle the answer to a probe, which left at `left_at` by its timestamp; revive its EV after
    enough answers in a row (row 11).

    Returns when the probe was sent (ps), if it counts as an original (row 7); else -NEVER.
    """
    ev = index_of(st, q, value)
    if ev < 0:
        return -NEVER
    e = st.ev[q.ev0 + ev]
    b = st.blame[e.blame]
    if e.state != ASSUMED_BAD or b.probe_id != probe_id:
        account.note(st, q, ev, left_at, PROBE_LATE, OF_PATH if e.blame else OF_QP, now)
        return -NEVER
    sent_at = b.probe_at - b.spacing
    account.note(st, q, ev, sent_at, PROBE_ANSWERED, OF_PATH, now)
    return _let_pass(st, q, ev, sent_at, marked, now)


@inner
def _let_pass(st, q, ev, sent_at, marked, now):
    """An ASSUMED_BAD path has let a probe pass that was sent then. Returns `sent_at` if that is
    evidence.
    """
    b = st.blame[st.ev[q.ev0 + ev].blame]
    note_passed(b, 0)
    if is_narrow(b):
        ask(q, b, WANTED)
        b.answers = max(b.answers, 0)
        b.probe_at = NEVER
        # it carries no data, so what passes there overtakes what other paths carry (row 7)
        return sent_at if rotation.nothing_proven(st, q) else -NEVER
    _answered(st, q, ev, marked, now)
    return sent_at


@inner
def next_trial(st, q, payload, free_ports, what_fits):
    """The EV that waits for a packet of this payload and has a free port; -1 if none. `what_fits`:
    or for a larger one, because no path is better: a packet that is smaller passes.
    """
    ports = free_ports & rotation.ports_up(st, q)
    for i in range(q.n_evs):
        e = st.ev[q.ev0 + i]
        if e.state == ASSUMED_BAD and (ports >> e.plane) & 1:
            b = st.blame[e.blame]
            if b.probe_id == WANTED and (what_fits or payload >= b.lost):
                return i
    return -1


@inner
def begin_trial(st, q, ev, now):
    """The packet for which an EV has waited leaves on it now."""
    b = st.blame[st.ev[q.ev0 + ev].blame]
    ask(q, b, TRIED)
    b.probe_at = now + b.spacing
    q.ev_probe_at = min(q.ev_probe_at, b.probe_at)
    q.n_trial += 1
    account.note(st, q, ev, now, PROBE_SENT, TRIAL, now)


@inner
def on_trial_answer(st, q, ev, timestamp, marked, now):
    """A SACK reflects this EV, and the timestamp of a packet sent on it: maybe that of its
    trial.
    """
    b = st.blame[st.ev[q.ev0 + ev].blame]
    sent_at = b.probe_at - b.spacing
    if b.probe_id == TRIED and timestamp == timestamp_of(sent_at):
        account.note(st, q, ev, sent_at, PROBE_ANSWERED, TRIAL, now)
        note_passed(b, int(b.lost))
        _answered(st, q, ev, marked, now)


@inner
def _answered(st, q, ev, marked, now):
    """A path has answered what it was asked: it returns to service after enough answers in a row;
    after one where its plane has no better path.
    """
    e = st.ev[q.ev0 + ev]
    b = st.blame[e.blame]
    ask(q, b, NONE)
    note_outcome(b, 1)
    b.answers = max(b.answers, 0) + 1
    b.spacing = 2 * q.base_rtt
    needed = 1
    if rotation.has_proven(st, q, st.plane[q.plane0 + e.plane], int(e.plane)):
        for _ in range(1, min(int(b.demotions), 4)):
            needed *= 2
    if b.answers >= min(needed, ANSWERS_MAX):
        event = MARKED_ANSWER if marked else ANSWER
        beliefs.revive(st, q, ev, FIRST_ANSWER if b.demoted_at == NEVER_DEMOTED else event, now)
    else:
        b.probe_at = now + b.spacing
        q.ev_probe_at = min(q.ev_probe_at, b.probe_at)
