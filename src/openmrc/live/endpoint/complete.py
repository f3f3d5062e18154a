"""From the engine to the application: entries of completion queues, events, and the end of a QP."""

from __future__ import annotations

from openmrc.engine import endpoint, ev, place
from openmrc.engine import state as es
from openmrc.jit import inlined, inner
from openmrc.live.endpoint import state
from openmrc.live.memory import fence
from openmrc.live.syscalls import write_count


@inlined
def _next_entry(ep, st, cq, qi, wr_id, status, length):
    """The next entry of a completion queue, for a request of a QP that is complete. The caller sets
    its kind, and publishes it; the thread that posted the request made sure that there is room.
    """
    c = ep.cq[cq]
    entry = ep.cqe[c.cqe0 + (c.written & c.mask)]
    entry.qpn = st.qp[qi].qpn
    entry.wr_id = wr_id
    entry.status = status
    entry.length = length
    return entry


@inlined
def _hand_over(ep, cq):
    """Publish the entry: the application may read it."""
    fence()
    ep.cq[cq].written += 1


@inlined
def _report_send(ep, st, qi, wr_id, status, with_imm, length):
    """Report that a write of the application is complete."""
    cq = ep.qp[qi].send_cq
    entry = _next_entry(ep, st, cq, qi, wr_id, status, length)
    entry.kind = state.RDMA_WRITE
    entry.imm = 0
    entry.with_imm = with_imm
    _hand_over(ep, cq)


@inlined
def _report_receive(ep, st, qi, wr_id, status, imm, length):
    """Report that a posted receive is complete."""
    cq = ep.qp[qi].recv_cq
    entry = _next_entry(ep, st, cq, qi, wr_id, status, length)
    entry.kind = state.RECV_RDMA_WITH_IMM
    entry.imm = imm
    entry.with_imm = 1
    _hand_over(ep, cq)


@inlined
def _event(ep, kind, qpn, plane, error, value, now):
    """Queue an event for the application; events that find the ring full are counted and lost."""
    ctl = ep.ctl[0]
    if ctl.events - ctl.events_read >= ep.event.shape[0]:
        ctl.events_lost += 1
        return
    e = ep.event[ctl.events % ep.event.shape[0]]
    e.at = now
    e.kind = kind
    e.qpn = qpn
    e.plane = plane
    e.error = error
    e.ev = value
    fence()
    ctl.events += 1


@inner
def collect(ep, st):
    """Process the engine's completions."""
    for i in range(st.count[es.DONE]):
        c = st.done[i]
        qi = int(c.qp)
        q = st.qp[qi]
        live = ep.qp[qi]
        if c.kind == es.DONE_SEND:
            number = place.message(q, c.id)
            own = ep.local[number]
            if own.signaled:
                m = st.message[number]
                _report_send(ep, st, qi, own.wr_id, state.SUCCESS, m.has_imm, m.length)
            else:
                ep.cq[live.send_cq].silent += 1
        elif c.kind == es.DONE_RECV_IMM:
            wr_id = _take_receive(ep, live)
            length = st.under_way[place.rx_message(q, c.id)].length
            _report_receive(ep, st, qi, wr_id, state.SUCCESS, c.imm, length)
    st.count[es.DONE] = 0


@inlined
def _take_receive(ep, live):
    """The wr_id of the oldest posted receive; the engine made sure that there is one."""
    wr_id = ep.receive[live.recv0 + (live.recv_head & live.recv_mask)]
    live.recv_head += 1
    return wr_id


@inlined
def _status_of(error):
    """The work completion status for the reason why a QP failed."""
    if error == es.RETRY_EXCEEDED:
        return state.RETRY_EXC_ERR
    if error == es.REMOTE_ACCESS:
        return state.REM_ACCESS_ERR
    if error == es.REMOTE_INVALID_REQUEST:
        return state.REM_INV_REQ_ERR
    if error == es.REMOTE_OPERATION:
        return state.REM_OP_ERR
    return state.GENERAL_ERR


@inner
def flush_qp(ep, st, qi, now):
    """A QP is in error: its oldest request reports why, the others are flushed (as ibverbs
    does).
    """
    q = st.qp[qi]
    live = ep.qp[qi]
    if live.flushed:
        return
    live.flushed = 1
    status = _status_of(q.error)
    if q.error == 0:
        status = state.WR_FLUSH_ERR
    at = endpoint.abandon(q)
    while at >= 0:
        _report_send(ep, st, qi, ep.local[at].wr_id, status, st.message[at].has_imm, 0)
        status = state.WR_FLUSH_ERR
        at = endpoint.abandon(q)
    while live.recv_head < live.recv_tail:
        _report_receive(ep, st, qi, _take_receive(ep, live), state.WR_FLUSH_ERR, 0, 0)
    if q.error != 0:
        _event(ep, state.QP_ERROR, int(q.qpn), -1, int(q.error), 0, now)


@inner
def flush_post(ep, st, qi, w):
    """Flush a request that was posted after its QP failed."""
    if w.kind == state.POST_RECV:
        _report_receive(ep, st, qi, w.wr_id, state.WR_FLUSH_ERR, 0, 0)
    else:
        _report_send(ep, st, qi, w.wr_id, state.WR_FLUSH_ERR, w.kind == state.POST_WRITE_IMM, 0)


@inner
def notice(ep, st, qi, now):
    """After a call of the engine for a QP: report changes of its paths, and its failure."""
    q = st.qp[qi]
    live = ep.qp[qi]
    if q.state == es.ERROR:
        flush_qp(ep, st, qi, now)
    if q.n_bad_total == live.n_bad and q.n_revived == live.n_revived:
        return
    live.n_bad = q.n_bad_total
    live.n_revived = q.n_revived
    for own in range(q.n_evs):
        i = place.ev(q, own)
        e = st.ev[i]
        bad = 1 if e.state == ev.ASSUMED_BAD else 0
        if bad == ep.ev_state[i]:
            continue
        ep.ev_state[i] = bad
        if bad:
            _event(ep, state.PATH_BAD, int(q.qpn), int(e.plane), 0, e.value, now)
        elif ev.usable(e.state):
            _event(ep, state.PATH_REVIVED, int(q.qpn), int(e.plane), 0, e.value, now)


@inner
def wake_readers(ep):
    """Wake the readers of completions or events that were added since the last call."""
    ctl = ep.ctl[0]
    for i in range(ep.cq.shape[0]):
        c = ep.cq[i]
        if c.told != c.written:
            c.told = c.written
            write_count(c.fd, ep.timeout)
    if ctl.events_told != ctl.events:
        ctl.events_told = ctl.events
        write_count(ctl.event_fd, ep.timeout)
