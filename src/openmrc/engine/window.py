"""The congestion window: NSCC, a user's own rule, or none; and what they share."""

from __future__ import annotations

from openmrc.engine import nscc, policy
from openmrc.engine.policy import CC_OWN
from openmrc.jit import inlined, inner
from openmrc.jit.callref import call


@inner
def _step(st, q, event, now, new_bytes, rtt_ps, marked):
    """Call the user's rule, and clamp the result to the limits of every window."""
    call(st.config[0].cc_step, (st, q, event, now, new_bytes, rtt_ps, marked))
    if not q.cwnd <= q.max_wnd:  # NaN is no window either
        q.cwnd = q.max_wnd
    q.cwnd = max(q.cwnd, q.pkt)


@inlined
def on_sack(st, q, now, new_bytes, rtt_ps, marked, penalty):
    """A SACK that reports `new_bytes` more received; `rtt_ps` < 0 when it carries no sample."""
    c = st.config[0]
    nscc.on_sack(q, c, st.nscc[q.cc], now, new_bytes, rtt_ps, marked, penalty)
    if c.cc == CC_OWN:
        _step(st, q, policy.ON_SACK, now, new_bytes, rtt_ps, marked)


@inlined
def on_trim(st, q, now):
    """A packet was trimmed; call it while the packet still counts as in flight."""
    c = st.config[0]
    nscc.on_trim(q, c, st.nscc[q.cc], now)
    if c.cc == CC_OWN:
        _step(st, q, policy.ON_TRIM, now, 0, -1, False)


@inlined
def on_loss(st, q, ev, now):
    """A packet on this EV was judged lost. True if NSCC's window was cut for it, which may be
    undone.
    """
    c = st.config[0]
    if c.cc == CC_OWN:
        _step(st, q, policy.ON_LOSS, now, 0, -1, False)
        return False
    return nscc.on_loss(q, c, st.nscc[q.cc], now, int(st.ev[q.ev0 + ev].plane))
