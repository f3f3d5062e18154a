"""A memory of one path per plane: an EV whose packet came back unmarked is used once more.

    [transport]
    paths = "policies/recycle.py:choose"

The idea of REPS in its smallest form, to start from. `paths = "reps"` is all of it: a ring of eight
EVs, freezing after a loss, exploration afterwards.
"""

from openmrc.engine import bits
from openmrc.engine.policy import HEARD_CLEAN
from openmrc.jit import compiled


@compiled
def choose(st, q, plane, avoid):
    p = st.plane[q.plane0 + plane]
    kept = int(st.own[q.index, plane]) - 1  # numbers begin as 0: nothing is kept
    st.own[q.index, plane] = 0.0
    if kept >= 0 and kept != avoid:
        return kept
    return p.ev0 + bits.draw_below(st.stream, q.index, int(p.n_evs))


@compiled
def learn(st, q, ev, event, now):
    if event == HEARD_CLEAN:
        st.own[q.index, st.ev[q.ev0 + ev].plane] = ev + 1.0
