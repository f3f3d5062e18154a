"""One window for all QPs to a destination, where `share_window` asks for it (row 24).

The QPs of a NIC to one peer that have something to send share a window: each has an equal part, and
runs NSCC on it with constants of that part, so that together they start, grow and shrink as one QP.
Whenever one begins or ends, the sum of their windows is kept and divided anew.
"""

from __future__ import annotations

from openmrc.engine import nscc, rotation
from openmrc.engine.policy import PATHS_SINGLE
from openmrc.engine.state import RTS
from openmrc.jit import inlined, inner


@inner
def usable_rate(st, q):
    """Sum of the rates of the planes up at both ends, bit/s; the window's constants follow it (MRC
    4.6).
    """
    c = st.config[0]
    if c.paths == PATHS_SINGLE:
        return c.port_rate_bps
    up = rotation.ports_up(st, q)
    n = 0
    for p in range(q.n_planes):
        n += (up >> p) & 1
    return n * c.port_rate_bps


@inner
def configure(st, q, share):
    """Set the constants of a QP's window, of which `share` QPs have a part each; False if no port
    is up.
    """
    rate = usable_rate(st, q)
    if rate == 0:
        return False
    nscc.configure(q, st.config[0], rate, share)
    if q.cc:
        nscc.obey(q, st.config[0], st.nscc[q.cc])
    return True


@inlined
def _sends_beside(st, q, other):
    """Whether another QP, or the same, leads to the same peer and has something to send."""
    return other.peer == q.peer and other.state == RTS and other.una < other.seq_end


@inner
def senders(st, q):
    """How many QPs to the peer of a QP have something to send; at least one."""
    n = st.nic[q.nic]
    count = 0
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        count += _sends_beside(st, q, st.qp[qi])
    return max(count, 1)


@inner
def divide(st, q, changed):
    """A QP has begun to send (`changed` 1), or has sent everything or failed (-1): those that send
    to its peer divide the window anew.
    """
    n = st.nic[q.nic]
    whole = q.cwnd if changed < 0 else 0.0
    count = 0
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        other = st.qp[qi]
        if _sends_beside(st, q, other):
            count += 1
            if qi != q.index:
                whole += other.cwnd
    peer = st.peer[q.peer]
    if count == 0:
        peer.window = whole
        return
    if whole == 0.0:
        whole = peer.window if peer.window > 0.0 else count * q.cwnd
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        other = st.qp[qi]
        if _sends_beside(st, q, other):
            other.cwnd = whole / count
            configure(st, other, count)
