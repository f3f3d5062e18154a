"""What becomes of a transmission, as a table.

A sequence number has a slot, which holds its latest transmission and the one before. Each of them
is in flight until its fate is known, and some change once more:

    SENT                                   -- trim, refusal -----> TRIMMED
    SENT                                   -- trial -------------> TRIED
    SENT                                   -- doubt, companion --> DOUBTED
    SENT, DOUBTED                          -- loss --------------> LOST
    SENT, DOUBTED                          -- timeout -----------> EXPIRED
    LOST                                   -- window cut --------> CUT
    SENT, TRIMMED, TRIED, EXPIRED, DOUBTED -- arrival -----------> DELIVERED
    LOST, CUT                              -- late arrival ------> LATE
    SENT, TRIMMED, EXPIRED, LOST, CUT      -- other arrival -----> NEEDLESS

TRIMMED has lost its payload, or its peer had no room for it. TRIED tries a path (row 11), whose
record waits for the answer. DOUBTED is overdue without evidence: no path is blamed yet (row 8).
EXPIRED has had no answer for an RTO, and no evidence either (row 9). CUT is lost, and the window
was cut for it. LATE was judged lost, and arrived after all: a false alarm (row 7). NEEDLESS need
not arrive, because an earlier transmission has. A packet whose latest transmission is TRIMMED,
TRIED, EXPIRED, DOUBTED, LOST or CUT *waits*: it is sent again, and that transmission becomes the
one before.

`loss.py` decides whether an event has happened, and to whom it is charged; this module decides what
follows for the slot. All changes go through `send`, `enter` and `enter_before`, which also keep the
QP's sums: bytes in flight, packets that wait, judgements and false alarms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.engine import account
from openmrc.jit import inlined, inner
from openmrc.units import NS

NONE = 0  # no such transmission
SENT, TRIMMED, TRIED, EXPIRED, DOUBTED, LOST, CUT, DELIVERED, LATE, NEEDLESS = range(1, 11)
FATES = {
    SENT: "SENT",
    TRIMMED: "TRIMMED",
    TRIED: "TRIED",
    EXPIRED: "EXPIRED",
    DOUBTED: "DOUBTED",
    LOST: "LOST",
    CUT: "CUT",
    DELIVERED: "DELIVERED",
    LATE: "LATE",
    NEEDLESS: "NEEDLESS",
}
WAITING = (TRIMMED, TRIED, EXPIRED, DOUBTED, LOST, CUT)
BEFORE_MAX_NS = (1 << 32) - 1


class Event(NamedTuple):
    """An event: the fates in which it may happen, and the fate to which it leads."""

    name: str
    before: tuple[int, ...]
    after: int


EVENTS = (
    Event("trim", (SENT,), TRIMMED),
    Event("refusal", (SENT,), TRIMMED),
    Event("trial", (SENT,), TRIED),
    Event("doubt", (SENT,), DOUBTED),
    Event("companion", (SENT,), DOUBTED),
    Event("loss", (SENT, DOUBTED), LOST),
    Event("timeout", (SENT, DOUBTED), EXPIRED),
    Event("window cut", (LOST,), CUT),
    Event("arrival", (SENT, TRIMMED, TRIED, EXPIRED, DOUBTED), DELIVERED),
    Event("late arrival", (LOST, CUT), LATE),
    Event("other arrival", (SENT, TRIMMED, EXPIRED, LOST, CUT), NEEDLESS),
)
TRIM, REFUSAL, TRIAL, DOUBT, COMPANION, LOSS, TIMEOUT = range(7)
WINDOW_CUT, ARRIVAL, LATE_ARRIVAL, OTHER_ARRIVAL = range(7, len(EVENTS))

_BEFORE = np.array([sum(1 << fate for fate in event.before) for event in EVENTS], np.int16)
_AFTER = np.array([event.after for event in EVENTS], np.int8)
# What the account says of an event, and why; -1: it is counted, or nobody needs to know
_TOLD = {
    DOUBT: (account.DOUBTED, account.OVERDUE),
    COMPANION: (account.DOUBTED, account.COMPANION),
    LOSS: (account.LOST, account.OVERDUE),
    TIMEOUT: (account.LOST, account.TIMEOUT),
    LATE_ARRIVAL: (account.LATE, account.OVERDUE),
}
_WHAT, _WHY = (
    np.array([_TOLD.get(event, (-1, -1))[i] for event in range(len(EVENTS))], np.int8)
    for i in range(2)
)


@inlined
def slot_of(st, q, seq):
    """The slot that holds a sequence number."""
    return st.slot[q.slot0 + (seq & q.slot_mask)]


@inlined
def waits(fate):
    """Whether a packet whose latest transmission has this fate is to be sent again."""
    return (fate >= TRIMMED) & (fate <= CUT)


@inlined
def received(fate):
    """Whether a packet whose latest transmission has this fate is known received."""
    return fate >= DELIVERED


@inlined
def again(s):
    """1 if the latest transmission of a slot is a retransmission, else 0."""
    return 1 if s.before != NONE else 0


@inlined
def before_sent_at(s):
    """When the transmission before the latest one was sent, ps (rounded down to 1 ns)."""
    return s.sent_at - NS * int(s.before_ns)


@inlined
def first_in_doubt_at(s):
    """When the older of a slot's transmissions that may still arrive was sent, ps."""
    return before_sent_at(s) if s.before == DOUBTED else s.sent_at


@inlined
def send(q, s, ev, now):
    """A packet leaves on an EV: for the first time if its slot is fresh (`NONE`), else again."""
    if s.fate != NONE:
        q.lost -= 1
        s.before_ns = min((now - s.sent_at + NS - 1) // NS, BEFORE_MAX_NS)
    s.before = s.fate
    s.before_ev = s.ev
    s.fate = SENT
    s.sent_at = now
    s.ev = ev
    q.inflight += int(s.bytes_nominal)
    if s.before != NONE:
        q.inflight_again += int(s.bytes_nominal)


@inlined
def _tell(st, q, ev, sent_at, was, event, now):
    """Tell the account of an event; ordinary deliveries and trims are counted."""
    if event == TRIM:
        account.count(st, q, ev, account.N_TRIMMED)
    elif event == REFUSAL or (event == ARRIVAL and was == SENT):
        account.count(st, q, ev, account.N_DELIVERED)
    elif event == ARRIVAL:
        if was == DOUBTED:
            account.note(st, q, ev, sent_at, account.DELIVERED, account.OVERDUE, now)
    elif _WHAT[event] >= 0:
        account.note(st, q, ev, sent_at, int(_WHAT[event]), int(_WHY[event]), now)


@inlined
def enter(st, q, seq, event, now):
    """Apply an event to the latest transmission of a packet: set its fate, and keep the QP's sums.

    Returns False, and changes nothing, if the event cannot happen to it.
    """
    s = slot_of(st, q, seq)
    was = int(s.fate)
    if (_BEFORE[event] >> was) & 1 == 0:
        return False
    after = int(_AFTER[event])
    s.fate = after
    if was == SENT:
        q.inflight -= int(s.bytes_nominal)
        if s.before != NONE:
            q.inflight_again -= int(s.bytes_nominal)
    q.lost += waits(after) - waits(was)
    if waits(after):
        q.lost_hint = min(q.lost_hint, seq)
    if event == LOSS:
        q.n_inferred += 1
    elif event == TIMEOUT:
        q.n_timeouts += 1
    elif event == LATE_ARRIVAL:
        q.n_false += 1
    _tell(st, q, int(s.ev), s.sent_at, was, event, now)
    return True


@inner
def enter_before(st, q, s, event, now):
    """The same for the transmission before the latest one. A timeout is counted once a packet; an
    arrival after a doubt means that sending again was needless.
    """
    was = int(s.before)
    if (_BEFORE[event] >> was) & 1 == 0:
        return False
    s.before = int(_AFTER[event])
    if event == LOSS:
        q.n_inferred += 1
    elif event == LATE_ARRIVAL or (event == ARRIVAL and was == DOUBTED):
        q.n_false += 1
    _tell(st, q, int(s.before_ev), before_sent_at(s), was, event, now)
    return True
