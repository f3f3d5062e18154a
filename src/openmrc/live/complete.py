"""From the engine to the application: completions in its queues, events, and the end of a QP."""

from __future__ import annotations

from openmrc.engine.paths import ASSUMED_BAD, GOOD, SKIP
from openmrc.engine.state import (
    DONE,
    DONE_RECV_IMM,
    DONE_SEND,
    ERROR,
    REMOTE_ACCESS,
    REMOTE_INVALID_REQUEST,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
)
from openmrc.jit import inlined, inner
from openmrc.live.memory import fence
from openmrc.live.state import (
    GENERAL_ERR,
    PATH_BAD,
    PATH_REVIVED,
    POST_RECV,
    POST_WRITE_IMM,
    QP_ERROR,
    RDMA_WRITE,
    RECV_RDMA_WITH_IMM,
    REM_ACCESS_ERR,
    REM_INV_REQ_ERR,
    REM_OP_ERR,
    RETRY_EXC_ERR,
    SUCCESS,
    WR_FLUSH_ERR,
)
from openmrc.live.syscalls import write_count


@inlined
def _report(ep, st, cq, qi, wr_id, status, kind, with_imm, imm, length):
    """Put a completion into a queue; whoever posted made sure that there is room."""
    c = ep.cq[cq]
    entry = ep.cqe[c.cqe0 + (c.written & c.mask)]
    entry.wr_id = wr_id
    entry.length = length
    entry.qpn = st.qp[qi].qpn
    entry.imm = imm
    entry.status = status
    entry.kind = kind
    entry.with_imm = with_imm
    fence()
    c.written += 1


@inlined
def _event(ep, st, kind, qpn, plane, error, ev, now):
    """Tell the application; what it does not read in time is counted and lost."""
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
    e.ev = ev
    fence()
    ctl.events += 1


@inner
def collect(ep, st):
    """Take the engine's completions."""
    for i in range(st.count[DONE]):
        c = st.done[i]
        qi = int(c.qp)
        q = st.qp[qi]
        live = ep.qp[qi]
        if c.kind == DONE_SEND:
            number = q.msg0 + (c.id & q.msg_mask)
            own = ep.local[number]
            if own.signaled:
                m = st.message[number]
                _report(
                    ep, st, live.send_cq, qi, own.wr_id, SUCCESS, RDMA_WRITE, m.has_imm, 0, m.length
                )
            else:
                ep.cq[live.send_cq].silent += 1
        elif c.kind == DONE_RECV_IMM:
            wr_id = _take_receive(ep, live)
            length = ep.length[q.rmsg0 + (c.id & q.rmsg_mask)]
            _report(ep, st, live.recv_cq, qi, wr_id, SUCCESS, RECV_RDMA_WITH_IMM, 1, c.imm, length)
    st.count[DONE] = 0


@inlined
def _take_receive(ep, live):
    """The wr_id of the oldest posted receive; the engine made sure that there is one."""
    wr_id = ep.receive[live.recv0 + (live.recv_head & live.recv_mask)]
    live.recv_head += 1
    return wr_id


@inlined
def _status_of(error):
    """The work completion status that says why a QP failed."""
    if error == RETRY_EXCEEDED:
        return RETRY_EXC_ERR
    if error == REMOTE_ACCESS:
        return REM_ACCESS_ERR
    if error == REMOTE_INVALID_REQUEST:
        return REM_INV_REQ_ERR
    if error == REMOTE_OPERATION:
        return REM_OP_ERR
    return GENERAL_ERR


@inner
def flush_qp(ep, st, qi, now):
    """A QP is in error: its oldest request says why, the others are flushed (as ibverbs does)."""
    q = st.qp[qi]
    live = ep.qp[qi]
    if live.flushed:
        return
    live.flushed = 1
    status = _status_of(q.error)
    if q.error == 0:
        status = WR_FLUSH_ERR
    for number in range(q.msg_done, q.msg_end):
        at = q.msg0 + (number & q.msg_mask)
        m = st.message[at]
        wr_id = ep.local[at].wr_id
        _report(ep, st, live.send_cq, qi, wr_id, status, RDMA_WRITE, m.has_imm, 0, 0)
        status = WR_FLUSH_ERR
    q.msg_done = q.msg_end
    while live.recv_head < live.recv_tail:
        wr_id = _take_receive(ep, live)
        _report(ep, st, live.recv_cq, qi, wr_id, WR_FLUSH_ERR, RECV_RDMA_WITH_IMM, 1, 0, 0)
    if q.error != 0:
        _event(ep, st, QP_ERROR, int(q.qpn), -1, int(q.error), 0, now)


@inner
def flush_post(ep, st, qi, w):
    """A request that came too late for its QP."""
    live = ep.qp[qi]
    if w.kind == POST_RECV:
        _report(ep, st, live.recv_cq, qi, w.wr_id, WR_FLUSH_ERR, RECV_RDMA_WITH_IMM, 1, 0, 0)
    else:
        with_imm = 1 if w.kind == POST_WRITE_IMM else 0
        _report(ep, st, live.send_cq, qi, w.wr_id, WR_FLUSH_ERR, RDMA_WRITE, with_imm, 0, 0)


@inner
def notice(ep, st, qi, now):
    """After the engine was called for a QP: what became of its paths, and of itself."""
    q = st.qp[qi]
    live = ep.qp[qi]
    if q.state == ERROR:
        flush_qp(ep, st, qi, now)
    if q.n_bad_total == live.n_bad and q.n_revived == live.n_revived:
        return
    live.n_bad = q.n_bad_total
    live.n_revived = q.n_revived
    for i in range(q.ev0, q.ev0 + q.n_evs):
        e = st.ev[i]
        bad = 1 if e.state == ASSUMED_BAD else 0
        if bad == ep.ev_state[i]:
            continue
        ep.ev_state[i] = bad
        if bad:
            _event(ep, st, PATH_BAD, int(q.qpn), int(e.plane), 0, e.value, now)
        elif e.state == GOOD or e.state == SKIP:
            _event(ep, st, PATH_REVIVED, int(q.qpn), int(e.plane), 0, e.value, now)


@inner
def wake_readers(ep):
    """Wake who waits for completions or events that came since the last time."""
    ctl = ep.ctl[0]
    for i in range(ep.cq.shape[0]):
        c = ep.cq[i]
        if c.told != c.written:
            c.told = c.written
            write_count(c.fd, ep.timeout)
    if ctl.events_told != ctl.events:
        ctl.events_told = ctl.events
        write_count(ctl.event_fd, ep.timeout)
