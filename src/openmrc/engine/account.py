"""What became of packets and paths, told once, by who decided it.

Where an account is kept (`kept`), each of the following leaves a record in `State.account`, and who
called the engine takes it from there (`take`), as it takes the packets in `State.out`:

    a transmission   in flight --> doubted, lost;  doubted --> lost, delivered;  lost --> late
    a probe          of a path, of a queue pair, or a trial: sent, answered, missed, late
    an EV            each event of `ev.EVENTS` that changes its state
    a plane          silent, or back: for one queue pair, or for all of an endpoint (QP -1)
    a port           down or up: an endpoint's own (QP -1), or its peer's
    a queue pair     failed

Packets that are delivered or trimmed in the ordinary way are too many for that: `State.tally` has
two counters for each EV. No reader needs to compare the engine's state with what it was before.

Records are in the order in which the engine decided. If nobody takes them and the room is used up,
the following ones are counted, and `take` says how many are missing. Without an account, each costs
a test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine.state import DUE, TOLD, UNTOLD, State
from openmrc.jit import inlined, inner, record_type, records

RECORD = record_type(
    ("at", "i8"),  # when the engine decided it, ps
    # When the transmission or the probe left, ps; a late one, rounded down: 1 ns, and of a probe
    # 128 ns. Else `at`
    ("sent_at", "i8"),
    ("nic", "i4"),
    ("qp", "i4"),  # its index; -1: the endpoint itself
    ("ev", "i4"),  # index within the QP; -1: a plane, a port or a queue pair
    ("plane", "i1"),  # -1: a queue pair
    ("what", "i1"),
    ("why", "i1"),  # see WHATS
)

# transmissions; `why` is one of REASONS
DOUBTED, LOST, DELIVERED, LATE = range(4)
# probes; `why` is one of PROBES
PROBE_SENT, PROBE_ANSWERED, PROBE_MISSED, PROBE_LATE = range(4, 8)
# of an EV, `why` is the number of the event in `ev.EVENTS`; of a port, OWN or PEERS; of a queue
# pair, its error (`state.ERROR_TEXTS`)
EV_CHANGED, PLANE_SILENT, PLANE_BACK, PORT_DOWN, PORT_UP, QP_FAILED = range(8, 14)
WHATS = (
    *("doubted", "lost", "delivered", "late"),
    *("probe sent", "probe answered", "probe missed", "probe late"),
    *("EV changed", "plane silent", "plane back", "port down", "port up", "QP failed"),
)

# Why a transmission is doubted or lost: its answer is overdue; an RTO has passed; it is on the path
# of one that is lost
OVERDUE, TIMEOUT, COMPANION = range(3)
REASONS = ("overdue", "timeout", "companion")
# What a probe asks: whether a path delivers again; whether a queue pair's packets arrive; whether a
# path carries a packet as large as those it lost
OF_PATH, OF_QP, TRIAL = range(3)
PROBES = ("path", "queue pair", "trial")
OWN, PEERS = range(2)

# columns of `State.tally`
N_DELIVERED, N_TRIMMED = range(2)


def most(st: State, evs: int, qps: int) -> int:
    """Records that one event may cause, where a queue pair has so many EVs and an endpoint so many
    queue pairs: all that may become of the packets and paths of one of them, and for each plane of
    all of them.
    """
    slots = int(st.qp.slot_mask.max(initial=0)) + 1
    return 2 * (slots + evs) + qps * int(st.nic.n_ports.max(initial=0))


def kept(st: State, room: int, due: int = 1) -> State:
    """Return the same state, with an account that begins now, room for so many records, and `due`
    of them to be taken at once.
    """
    st.config[0].account = 1
    st.count[DUE] = due
    st.count[TOLD] = st.count[UNTOLD] = 0
    return st._replace(account=records(room, RECORD), tally=np.zeros((len(st.ev), 2), np.int32))


def emptied(st: State) -> State:
    """Return the state with an account of its own, as large, for a part of the QPs."""
    return st._replace(account=records(len(st.account), RECORD))


def take(st: State) -> tuple[Any, int]:
    """Return the records since the last call, and how many are missing because there was no room:
    the last ones.
    """
    found, missing = st.account[: st.count[TOLD]].copy(), int(st.count[UNTOLD])
    st.count[TOLD] = st.count[UNTOLD] = 0
    return found, missing


@inlined
def is_due(st):
    """Whether there are as many records as are taken at once."""
    return st.config[0].account != 0 and st.count[TOLD] >= st.count[DUE]


@inner
def _write(st, at, sent_at, nic, qp, ev, plane, what, why):
    n = st.count[TOLD]
    if n >= st.account.shape[0]:
        st.count[UNTOLD] += 1
        return
    st.count[TOLD] = n + 1
    r = st.account[n]
    r.at = at
    r.sent_at = sent_at
    r.nic = nic
    r.qp = qp
    r.ev = ev
    r.plane = plane
    r.what = what
    r.why = why


@inner
def _of_path(st, q, ev, sent_at, what, why, now):
    plane = st.ev[q.ev0 + ev].plane
    _write(st, now, sent_at, q.nic, q.index, ev, plane, what, why)


@inlined
def note(st, q, ev, sent_at, what, why, now):
    """Something became of a transmission or a probe of EV `ev`, or of the EV itself."""
    if st.config[0].account:
        _of_path(st, q, ev, sent_at, what, why, now)


@inlined
def note_plane(st, nic, qp, plane, what, why, now):
    """A plane is silent or back, or a port down or up, for a QP or for an endpoint (-1)."""
    if st.config[0].account:
        _write(st, now, now, nic, qp, -1, plane, what, why)


@inlined
def note_failure(st, q, error, now):
    """A queue pair has failed."""
    if st.config[0].account:
        _write(st, now, now, q.nic, q.index, -1, -1, QP_FAILED, error)


@inlined
def count(st, q, ev, column):
    """A packet on an EV was delivered or trimmed."""
    if st.config[0].account:
        st.tally[q.ev0 + ev, column] += 1
