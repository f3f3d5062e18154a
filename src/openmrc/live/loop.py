"""The loop of a live endpoint: requests and frames in, the engine, frames and completions out.

One call of `turn` goes on for as long as nobody asks for attention: it never touches Python, and
waits in the kernel when there is nothing to do. Each round takes what was posted, a batch of frames
from every port that has some, what the clock says is due, and then lets the QPs send.
"""

from __future__ import annotations

from openmrc.engine import loss, ports, requester
from openmrc.engine.packet import (
    ACK_REQ,
    CLASS_CONTROL,
    CLASS_RETRANSMIT,
    ENDPOINT_QPN,
    ENDPOINT_REQUEST,
    OP_EV_PROBE,
    RTX,
    WRITE_ONLY,
)
from openmrc.engine.state import ERROR, NEVER, NO_ERROR, RTS, emit, psn_of
from openmrc.jit import compiled, inlined, inner
from openmrc.live import complete, receive, syscalls, transmit, udp
from openmrc.live.memory import fence
from openmrc.live.state import MEASURE_BIT, POST_RECV, POST_WRITE_IMM, RX_FRAMES, UDP
from openmrc.live.syscalls import POLL_IN, POLL_OUT, POLL_PROBLEM, PS_PER_NS

EINTR = 4
LOOK_EVERY = 16  # rounds between two looks at link events while there is work
SLEEP_MAX_NS = 1_000_000_000


@inlined
def _settle(ep, st, tx, speller, qi, now):
    """After the engine was called for a QP."""
    transmit.send_out(ep, st, tx, speller, int(st.qp[qi].qpn))
    complete.collect(ep, st)
    complete.notice(ep, st, qi, now)


@compiled
def hear(ep, st, tx, speller, data, n, plane, now):
    """The frame `data[:n]` came in on `plane`: all that follows from it. The QP that it was for, or
    `receive.NOBODY`.
    """
    qi = receive.on_frame(ep, st, speller, data, n, plane, now)
    if qi >= 0:
        _settle(ep, st, tx, speller, qi, now)
    else:
        transmit.send_out(ep, st, tx, speller, ENDPOINT_QPN)
    return qi


@inner
def _take_posts(ep, st):
    """Hand posted requests to the engine; how many."""
    ctl = ep.ctl[0]
    n = ctl.posted - ctl.taken
    for _ in range(n):
        w = ep.post[ctl.taken % ep.post.shape[0]]
        qi = int(w.qp)
        q = st.qp[qi]
        live = ep.qp[qi]
        if w.born == live.born:
            _take(ep, st, qi, q, live, w)
        fence()
        ctl.taken += 1
    return n


@inlined
def _take(ep, st, qi, q, live, w):
    if live.flushed:
        complete.flush_post(ep, st, qi, w)
    elif w.kind == POST_RECV:
        ep.receive[live.recv0 + (live.recv_tail & live.recv_mask)] = w.wr_id
        live.recv_tail += 1
        q.receives += 1
    else:
        at = ep.local[q.msg0 + (q.msg_end & q.msg_mask)]
        at.address = w.address
        at.wr_id = w.wr_id
        at.signaled = w.signaled
        has_imm = 1 if w.kind == POST_WRITE_IMM else 0
        requester.post_write(
            st, qi, q.msg_end, w.length, w.remote_address, int(w.rkey), has_imm, int(w.imm)
        )


@inner
def _take_frames(ep, st, tx, rx, speller, plane, now):
    """A batch of frames from a port; how many."""
    port = ep.port[plane]
    n = syscalls.receive(port.fd, rx, RX_FRAMES)
    if n <= 0:
        if n < 0 and n != -transmit.EAGAIN and n != -EINTR:
            port.failed = -n
        return 0
    port.rx_packets += n
    for i in range(n):
        length = int(rx.message[i].length)
        port.rx_bytes += length
        if ep.ctl[0].mode == UDP:
            length = udp.restore(rx, i, length)
        hear(ep, st, tx, speller, rx.data[i], length, plane, now)
    return n


@inner
def _do_what_is_due(ep, st, tx, speller, now):
    """Every timer that has passed; the time of the next one."""
    ctl = ep.ctl[0]
    first = NEVER
    for qi in range(ctl.n_qps):
        q = st.qp[qi]
        if q.state != RTS:
            continue
        due = requester.next_deadline(q)
        if due <= now:
            loss.on_deadline(st, q, now)
            ports.on_receiver_deadline(st, qi, now)
            _settle(ep, st, tx, speller, qi, now)
            due = requester.next_deadline(q)
        first = min(first, due)
    nic = st.nic[ctl.nic]
    if nic.deadline <= now:
        ports.on_deadline(st, int(ctl.nic), now)
        transmit.send_out(ep, st, tx, speller, ENDPOINT_QPN)
    return min(first, nic.deadline)


@inlined
def _watch_ports(ep):
    """Ask the kernel about ports that have room again, too, where one was full."""
    for plane in range(ep.ctl[0].n_planes):
        events = POLL_IN
        if ep.port[plane].full:
            events |= POLL_OUT
        ep.poll[1 + plane].events = events


@inner
def _wait(ep, due, now):
    """Sleep until something comes, is posted, or `due`; False if there was no need to."""
    ctl = ep.ctl[0]
    timeout_ns = max(min((due - now) // PS_PER_NS, SLEEP_MAX_NS), 0)
    ctl.sleeping = 1
    fence()
    if ctl.posted != ctl.taken or ctl.attention or ctl.spin:
        timeout_ns = 0
    ready = syscalls.wait(ep.poll, timeout_ns, ep.timeout)
    ctl.sleeping = 0
    if timeout_ns > 0:
        ctl.sleeps += 1
    if ready > 0 and ep.poll[0].revents != 0:
        syscalls.read_count(ctl.wake_fd, ep.timeout)
    return ready


@compiled
def ask_echo(ep, st, tx, speller, remote, plane, number):
    """Send a request that the peer answers at once, and note when; `receive` notes the answer."""
    ctl = ep.ctl[0]
    p = emit(st)
    p.opcode = ENDPOINT_REQUEST
    p.reason = OP_EV_PROBE
    p.src = ctl.nic
    p.dst = remote
    p.dst_qpn = ENDPOINT_QPN
    p.psn = MEASURE_BIT | number
    p.klass = CLASS_CONTROL
    p.plane = plane
    for i in range(st.nic[ctl.nic].n_peers):
        if st.peer[i].remote == remote:
            q = st.qp[st.peer[i].qp]
            p.ev = st.plane[q.plane0 + plane].reverse_ev
    ep.echo[0, number] = syscalls.time_ps(ctl.started_ns, ep.clock)
    ep.echo[1, number] = 0
    transmit.send_out(ep, st, tx, speller, ENDPOINT_QPN)
    transmit.flush_all(ep, tx)


@compiled
def ask_size(ep, st, tx, speller, qi, at, length, number):
    """Send `length` zeros on path `at` of a QP that has sent nothing, as a retransmission of what
    would come before its first packet; `receive` notes the SACK, which reflects `number`.
    """
    q = st.qp[qi]
    e = st.ev[q.ev0 + at]
    p = emit(st)
    p.opcode = WRITE_ONLY
    p.flag_bits = RTX | ACK_REQ
    p.klass = CLASS_RETRANSMIT
    p.src = q.nic
    p.dst = q.peer_nic
    p.dst_qpn = q.peer_qpn
    p.psn = psn_of(q.first_psn, -1)
    p.payload_len = length
    p.dma_len = length
    p.timestamp = number
    p.plane = e.plane
    p.ev = e.value
    transmit.send_out(ep, st, tx, speller, int(q.qpn))
    transmit.flush_all(ep, tx)


@compiled
def turn(ep, st, tx, rx, speller):
    """Go on until `ctl.attention` is set, a link event has come, or a port has failed."""
    ctl = ep.ctl[0]
    n_planes = int(ctl.n_planes)
    link_events = ep.poll[n_planes + 1]
    while True:
        now = syscalls.time_ps(ctl.started_ns, ep.clock)
        ctl.now = now
        ctl.loops += 1
        work = _take_posts(ep, st)
        for plane in range(n_planes):
            if ep.poll[1 + plane].revents & (POLL_IN | POLL_PROBLEM):
                work += _take_frames(ep, st, tx, rx, speller, plane, now)
        due = _do_what_is_due(ep, st, tx, speller, now)
        transmit.flush_all(ep, tx)
        work += transmit.pump(ep, st, tx, speller, now)
        transmit.flush_all(ep, tx)
        if ctl.paced:
            due = min(due, max(transmit.next_free(ep), now + 1))
        complete.wake_readers(ep)
        failed = 0
        for plane in range(n_planes):
            failed |= ep.port[plane].failed
        if ctl.attention or failed or link_events.revents != 0:
            link_events.revents = 0
            return
        if work > 0 and ctl.loops % LOOK_EVERY != 0:
            for plane in range(n_planes):  # to ask each costs less than to ask which
                ep.poll[1 + plane].revents = POLL_IN
            continue
        _watch_ports(ep)
        if work > 0:
            due = now
        _wait(ep, due, now)


@compiled
def end_qp(ep, st, qi):
    """The application ends a QP: all that is outstanding is flushed."""
    q = st.qp[qi]
    now = ep.ctl[0].now
    _take_posts(ep, st)
    if q.state != ERROR:
        loss.fail(st, q, NO_ERROR, now)
    complete.flush_qp(ep, st, qi, now)
    complete.wake_readers(ep)
