"""Recycled entropies as a policy, after REPS: an EV whose packet came back unmarked is used again.

    [transport]
    paths = "policies/reps.py:choose"

A QP keeps the last EVs that were heard of without a mark. A packet takes the oldest of them that
belongs to its plane; where there is none it explores, with a random EV of the plane. MRC's own
states are kept besides: an EV on which a packet was lost is not explored before it is revived.
"""

from openmrc.engine import bits
from openmrc.engine.paths import GOOD, SKIP
from openmrc.engine.policy import HEARD_CLEAN, HEARD_LOST
from openmrc.jit import compiled, inlined

# what is kept for each QP: how many EVs, and the EVs, oldest first
KEPT, FIRST = 0, 1
KEPT_MAX = 16
TRIES = 8  # at an EV that is in service


@inlined
def _take(own, place):
    """Remove an EV from those kept, and return it."""
    ev = int(own[FIRST + place])
    own[KEPT] -= 1.0
    for i in range(place, int(own[KEPT])):
        own[FIRST + i] = own[FIRST + i + 1]
    return ev


@compiled
def choose(st, q, plane, avoid):
    own = st.own[q.index]
    p = st.plane[q.plane0 + plane]
    for i in range(int(own[KEPT])):
        kept = int(own[FIRST + i])
        if p.ev0 <= kept < p.ev0 + p.n_evs:
            return _take(own, i)
    ev = int(p.ev0)
    for _ in range(TRIES):
        ev = int(p.ev0) + bits.draw_below(st.stream, q.index, int(p.n_evs))
        state = st.ev[q.ev0 + ev].state
        if ev != avoid and (state == GOOD or state == SKIP):
            break
    return ev


@compiled
def learn(st, q, ev, event, now):
    own = st.own[q.index]
    if event == HEARD_LOST:
        for i in range(int(own[KEPT]) - 1, -1, -1):
            if int(own[FIRST + i]) == ev:
                _take(own, i)
    elif event == HEARD_CLEAN:
        if own[KEPT] == KEPT_MAX:
            _take(own, 0)
        own[FIRST + int(own[KEPT])] = ev
        own[KEPT] += 1.0
