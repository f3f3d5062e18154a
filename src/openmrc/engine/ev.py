"""The states of an EV (entropy value), as a table.

An EV names one path (MRC 3.3). A path counts as good until it loses a packet, and as bad from then
until a probe is answered:

    GOOD                    -- mark ---------------------------------------> SKIP
    SKIP                    -- turn ---------------------------------------> GOOD
    GOOD, SKIP              -- loss, always skip, silence -----------------> ASSUMED_BAD
    GOOD                    -- check --------------------------------------> ASSUMED_BAD
    ASSUMED_BAD             -- first answer, answer, false alarm, recall --> GOOD
    ASSUMED_BAD             -- marked answer ------------------------------> SKIP
    GOOD, SKIP, ASSUMED_BAD -- deny ---------------------------------------> DENIED
    DENIED                  -- lift ---------------------------------------> GOOD

GOOD and SKIP are *usable*: the rotation may hold them (`rotation.py`). SKIP is a path that delivers
through a queue: it skips one turn. ASSUMED_BAD carries no data, and probes ask whether it delivers
again (`probes.py`). DENIED is not decided by the transport: an operator removed the path, and
neither losses nor answers change that. `beliefs.py`, mostly, decides whether an event has happened;
this module decides what follows for the EV.

An event leads to the same state from every state in which it may happen, so two columns of numbers
hold the table. All changes go through `enter`, which also updates the counts by state: `qp.n_bad`,
`plane.n_good`, and the totals of skips, demotions and revivals. Callers name the event as a
constant, so the compiler folds the columns away: a mark costs a comparison and two stores.

Fields that an EV needs only after it was first ASSUMED_BAD are in a separate record (`BLAME`); all
other EVs share record 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import account
from openmrc.engine.account import EV_CHANGED
from openmrc.engine.state import BLAME, BLAMED, NEVER
from openmrc.jit import inlined, inner

GOOD, SKIP, ASSUMED_BAD, DENIED = 1, 2, 3, 4  # MRC 3.3
EV_STATES = {GOOD: "GOOD", SKIP: "SKIP", ASSUMED_BAD: "ASSUMED_BAD", DENIED: "DENIED"}

NEVER_DEMOTED = -NEVER // 2  # in `demoted_at`
# In `answers`: a probe was missed, or the path was recalled, and it has shown nothing since.
FAILED = -1
WHOLE = 256  # in `delivers`: all
LATELY = 4  # packets, about: the next one counts for so large a part
# What a path was asked, in `probe_id`, if it is not the id of a probe: nothing, to wait for a
# packet as large as those it lost, or to deliver such a packet (row 11).
NONE, WANTED, TRIED = -1, -2, -3
NARROW_MAX = 100  # higher counts change nothing
# So often in a row a path is asked for a packet as large as those it lost. Once is not enough: a
# link that loses one packet in ten would meet it at every tenth return, and a trial is sent twice.
NARROW_LIKELY = 2
# So often in a row is sufficient evidence. Without an MTU, at a loss of one half, where it is most
# frequent, it happens once in 256 times.
NARROW_SURE = 4
INNOCENT = np.array((NEVER_DEMOTED, NEVER, 0, NONE, 0, 0, -1, -1, 0, 0), BLAME)


class Event(NamedTuple):
    """An event: the states in which it may happen, and the state to which it leads."""

    name: str
    before: tuple[int, ...]
    after: int


EVENTS = (
    Event("mark", (GOOD,), SKIP),
    Event("turn", (SKIP,), GOOD),
    Event("loss", (GOOD, SKIP), ASSUMED_BAD),
    Event("always skip", (GOOD, SKIP), ASSUMED_BAD),
    Event("silence", (GOOD, SKIP), ASSUMED_BAD),
    Event("check", (GOOD,), ASSUMED_BAD),
    Event("first answer", (ASSUMED_BAD,), GOOD),
    Event("answer", (ASSUMED_BAD,), GOOD),
    Event("marked answer", (ASSUMED_BAD,), SKIP),
    Event("false alarm", (ASSUMED_BAD,), GOOD),
    Event("recall", (ASSUMED_BAD,), GOOD),
    Event("deny", (GOOD, SKIP, ASSUMED_BAD), DENIED),
    Event("lift", (DENIED,), GOOD),
)
MARK, TURN, LOSS, ALWAYS_SKIP, SILENCE, CHECK, FIRST_ANSWER = range(7)
ANSWER, MARKED_ANSWER, FALSE_ALARM, RECALL, DENY, LIFT = range(7, len(EVENTS))

_BEFORE = np.array([sum(1 << state for state in event.before) for event in EVENTS], np.int8)
_AFTER = np.array([event.after for event in EVENTS], np.int8)


@inlined
def usable(state):
    """Whether data may travel on an EV in this state."""
    return state == GOOD or state == SKIP


@inlined
def is_narrow(b):
    """Whether a path has twice in a row passed a small packet and lost a larger one."""
    return b.narrow >= NARROW_LIKELY


def narrow_bytes(blame: Any) -> Any:
    """Of BLAME records: the payload of the smallest packet that each path loses although smaller
    ones pass, as if its MTU were too small; 0 without sufficient evidence.
    """
    return np.where(blame["narrow"] >= NARROW_SURE, blame["lost"], 0)


@inlined
def acquit(b):
    """Reset this record to that of an EV that was never blamed."""
    b.demoted_at = NEVER_DEMOTED
    b.probe_at = NEVER
    b.spacing = 0
    b.probe_id = NONE
    b.demotions = 0
    b.answers = 0
    b.lost = -1
    b.passed = -1
    b.narrow = 0
    b.delivers = 0


@inlined
def note_outcome(b, delivered):
    """A packet or a probe was `delivered` on the path of this record, or was not."""
    b.delivers += ((WHOLE if delivered else 0) - b.delivers) // LATELY


@inner
def note_lost(b, payload):
    """A packet of this payload was lost on the path of this record. If a smaller one has passed
    since the last such loss, and none as large, the path may be too narrow: its MTU is too small.
    """
    if b.passed >= 0:
        b.narrow = min(b.narrow + 1, NARROW_MAX) if payload > b.passed else 0
    b.lost = payload if b.lost < 0 else min(b.lost, payload)
    b.passed = -1


@inner
def note_passed(b, payload):
    """A packet of this payload was delivered on the path of this record."""
    if payload < b.lost:
        b.passed = max(b.passed, payload)
    else:
        b.lost = -1
        b.passed = -1
        b.narrow = 0


@inlined
def is_under_check(q, b):
    """True until two probes of a path that was never demoted went unanswered (row 36): nothing is
    known of it yet. They are scheduled, and need no budget.
    """
    return b.demoted_at == NEVER_DEMOTED and b.spacing <= 2 * q.base_rtt


@inner
def blame_of(st, e):
    """Return the EV's own record, allocating it on first use."""
    if e.blame == 0:
        st.count[BLAMED] += 1
        e.blame = st.count[BLAMED]
        acquit(st.blame[e.blame])
        # all but the packet that was lost now
        st.blame[e.blame].delivers = WHOLE * max(e.used - 1, 0) // max(e.used, 1)
    return st.blame[e.blame]


@inlined
def ask(q, b, question):
    """The path of this record has a new question, which replaces the last one."""
    q.waiting += int(question == WANTED) - int(b.probe_id == WANTED)
    q.tried += int(question == TRIED) - int(b.probe_id == TRIED)
    b.probe_id = question


@inner
def _turn(st, q, e):
    """An EV enters or leaves ASSUMED_BAD: reset its probing."""
    b = blame_of(st, e)
    ask(q, b, NONE)
    b.answers = min(b.answers, 0)
    b.spacing = 2 * q.base_rtt
    b.probe_at = NEVER


@inlined
def enter(st, q, plane, ev, event, now):
    """Apply an event to an EV of a QP and plane: set its new state and update the counts by state.

    Returns False, and changes nothing, if the event cannot happen in the EV's current state.
    """
    e = st.ev[q.ev0 + ev]
    before = int(e.state)
    if (_BEFORE[event] >> before) & 1 == 0:
        return False
    after = int(_AFTER[event])
    e.state = after
    plane.n_good += usable(after) - usable(before)
    turned_bad = (after == ASSUMED_BAD) - (before == ASSUMED_BAD)
    q.n_bad += turned_bad
    if turned_bad != 0:
        _turn(st, q, e)
    if event == MARK:
        q.n_skips += 1
    elif event == LOSS or event == ALWAYS_SKIP:
        q.n_bad_total += 1
    elif event == ANSWER or event == MARKED_ANSWER or event == FALSE_ALARM:
        q.n_revived += 1
    if event != CHECK:  # of all EVs of a new QP
        account.note(st, q, ev, now, EV_CHANGED, event, now)
    return True


@inner
def begin(st, q):
    """Initialise all EVs of a new QP: GOOD, and never demoted."""
    q.n_bad = 0
    q.waiting = 0
    q.tried = 0
    for k in range(q.n_planes):
        plane = st.plane[q.plane0 + k]
        plane.n_good = plane.n_evs
    for i in range(q.n_evs):
        e = st.ev[q.ev0 + i]
        e.state = GOOD
        if e.blame != 0:  # of a QP that used this record before
            acquit(st.blame[e.blame])


@inner
def index_of(st, q, value):
    """Index within the QP of the EV with this value, or -1."""
    for i in range(q.n_evs):
        if int(st.ev[q.ev0 + i].value) == value:
            return i
    return -1
