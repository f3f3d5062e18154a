"""MRC's own rotation over the EVs of a plane, as a policy; in a healthy network it is the same."""

from openmrc.engine import rotation
from openmrc.engine.ev import GOOD
from openmrc.jit import compiled


@compiled
def choose(st, q, plane, avoid):
    p = st.plane[q.plane0 + plane]
    first = q.order0 + plane * q.order_len
    n = int(p.n_active)
    if p.picks >= st.config[0].shuffle_rounds * n:
        rotation._shuffle(st, q.index, first, n)
        p.picks = 0
    p.picks += 1
    ev = int(st.order[first + p.pos])
    if st.ev[q.ev0 + ev].state == GOOD and ev != avoid:
        pos = p.pos + 1
        p.pos = 0 if pos >= n else pos
        return ev
    return rotation._choose_around_skips(st, q, p, first, avoid, int(q.last_heard))
