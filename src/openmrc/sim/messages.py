"""The workload at run time: messages are posted when they may be, completions release others,
failures orphan them.
"""

from __future__ import annotations

from openmrc.engine import requester
from openmrc.engine.state import DONE, DONE_DELIVERED, DONE_SEND
from openmrc.jit import inlined, inner
from openmrc.sim import events
from openmrc.sim.state import AT_MESSAGE, COMPLETED, FAILED, OPEN, ORPHAN


@inner
def _hand_over(net, st, mi):
    """Post a message to its QP; its units of payload follow those of the QP's earlier messages.
    False if it is full.
    """
    ctl = net.ctl[0]
    m = net.message[mi]
    qi = int(m.qp)
    q = st.qp[qi]
    lq = net.qp[qi]
    region = st.region[lq.region]
    unit = lq.unit0 + q.seq_end
    va = region.va + q.seq_end * ctl.pmtu
    if not requester.post_write(
        st, qi, mi, m.bytes, va, int(region.rkey), int(m.imm), mi & 0xFFFF_FFFF
    ):
        return False
    left = m.bytes
    while left > 0:
        net.unit[unit] = min(left, ctl.pmtu)
        left -= ctl.pmtu
        unit += 1
    net.roster[lq.posted0 + lq.n_posted].posted = mi
    lq.n_posted += 1
    return True


@inner
def post(net, st, mi, now):
    """A message's time has come and its releases are in: post it, behind any that wait for room in
    the send queue.
    """
    m = net.message[mi]
    m.posted_at = now
    lq = net.qp[m.qp]
    if lq.failed:
        _lose(net, mi, FAILED)
        return
    if lq.waiting_head < 0 and _hand_over(net, st, mi):
        return
    m.next = -1
    if lq.waiting_head < 0:
        lq.waiting_head = mi
    else:
        net.message[lq.waiting_tail].next = mi
    lq.waiting_tail = mi


@inner
def _release(net, mi, now):
    """One of the completions a message waits for; the last one lets the heap post it."""
    m = net.message[mi]
    m.deps -= 1
    if m.deps == 0 and m.fate == OPEN:
        events.push(net, max(now, m.start_at), AT_MESSAGE, mi)


@inlined
def collect(net, st, now):
    """Take the engine's completions."""
    for i in range(st.count[DONE]):
        c = st.done[i]
        if c.kind == DONE_SEND:
            _on_sent(net, st, int(c.id), now)
        elif c.kind == DONE_DELIVERED:
            lq = net.qp[net.qp[c.qp].other]
            m = net.message[net.roster[lq.posted0 + c.id].posted]
            m.delivered_at = now
            for k in range(m.recv0, m.sent0):
                _release(net, int(net.release[k]), now)
    st.count[DONE] = 0


@inner
def _on_sent(net, st, mi, now):
    """The sender holds the last acknowledgement of a message."""
    m = net.message[mi]
    m.done_at = now
    m.fate = COMPLETED
    net.ctl[0].messages_done += 1
    net.ctl[0].messages_open -= 1
    for k in range(m.sent0, m.end):
        _release(net, int(net.release[k]), now)
    lq = net.qp[m.qp]
    while lq.waiting_head >= 0 and _hand_over(net, st, int(lq.waiting_head)):
        lq.waiting_head = net.message[lq.waiting_head].next


@inner
def _lose(net, mi, fate):
    """A message will never complete; whatever waits for it is orphaned, and so on."""
    ctl = net.ctl[0]
    m = net.message[mi]
    if m.fate != OPEN:
        return
    m.fate = fate
    ctl.messages_open -= 1
    if fate == FAILED:
        ctl.messages_failed += 1
    else:
        ctl.messages_orphaned += 1
    stack = mi
    m.next = -1
    while stack >= 0:
        mi = stack
        stack = int(net.message[mi].next)
        m = net.message[mi]
        for k in range(m.recv0, m.end):
            stack = _orphan(net, int(net.release[k]), stack)


@inlined
def _orphan(net, mi, stack):
    m = net.message[mi]
    if m.fate != OPEN or m.posted_at >= 0:
        return stack
    m.fate = ORPHAN
    net.ctl[0].messages_orphaned += 1
    net.ctl[0].messages_open -= 1
    m.next = stack
    return mi


@inner
def fail_qp(net, st, qi):
    """A QP is in error: its messages that are not complete have failed, whichever end noticed."""
    for end in range(2):
        lq = net.qp[qi if end == 0 else net.qp[qi].other]
        if end == 1 and lq.n_posted == 0:
            return
        if lq.failed:
            continue
        lq.failed = 1
        first = int(lq.posted0)
        last = first + int(lq.n_messages)
        lq.waiting_head = -1
        for k in range(first, last):
            mi = int(net.roster[k].member)
            if net.message[mi].fate == OPEN:
                _lose(net, mi, FAILED)
