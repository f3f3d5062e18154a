"""htsim's choice of paths, beside MRC's: the EV of an unmarked answer is next, before the rotation
goes on.
"""

from __future__ import annotations

from openmrc.engine.ev import GOOD
from openmrc.engine.policy import HEARD_CLEAN
from openmrc.jit import inlined, inner


@inlined
def learn(st, q, ev, event, sent_at):
    """An unmarked answer to a packet sent at `sent_at` makes its EV the next, unless later packets
    overtook that one: what comes late has waited in queues, marked or not, and a SACK reports each
    late packet that the sender waits for (row 5). Without this, EVs of the fullest paths would be
    recycled most.
    """
    if event == HEARD_CLEAN and sent_at >= q.evidence_at:
        st.plane[q.plane0 + st.ev[q.ev0 + ev].plane].clean = ev


@inner
def choose(st, q, plane, avoid):
    """The EV to be recycled, once; -1 if there is none, or if it went bad, was marked, or is the
    one to avoid.
    """
    ev = int(plane.clean)
    if ev < 0:
        return -1
    plane.clean = -1
    e = st.ev[q.ev0 + ev]
    return ev if e.state == GOOD and e.active and ev != avoid else -1
