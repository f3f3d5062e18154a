"""The loop of a live endpoint: requests and frames in, the engine, frames and completions out.

One call of `turn` goes on for as long as nobody asks for attention: it never touches Python, and
waits in the kernel when there is nothing to do. Each round takes what was posted, a batch of frames
from every port that has some, what the clock says is due, and then lets the QPs send.
"""

from __future__ import annotations

import numpy as np

from openmrc.engine import beliefs, endpoint, loss, ports, requester
from openmrc.engine import packet as pk
from openmrc.engine.ev import DENIED
from openmrc.engine.state import ERROR, NEVER, NO_ERROR, RTS, address, emit, psn_of
from openmrc.jit import compiled, inlined, inner
from openmrc.live import syscalls
from openmrc.live.endpoint import complete, ip, receive, transmit, udp
from openmrc.live.endpoint.state import (
    IP,
    MEASURE_BIT,
    POST_RECV,
    POST_WRITE_IMM,
    RX_BURSTS,
    RX_FRAMES,
    UDP,
)
from openmrc.live.memory import fence
from openmrc.live.syscalls import POLL_IN, POLL_PROBLEM, PS_PER_NS

EINTR = 4
LOOK_EVERY = 16  # rounds between two looks at link events while there is work
SLEEP_MAX_NS = 1_000_000_000


@inlined
def _settle(ep, st, tx, headend, qi, now):
    """After the engine was called for a QP."""
    transmit.send_out(ep, st, tx, headend, int(st.qp[qi].qpn))
    complete.collect(ep, st)
    complete.notice(ep, st, qi, now)


@compiled
def take_frame(ep, st, tx, headend, data, plane, now):
    """A frame came in on `plane`: all that follows from it. The QP that it was for, or `NOBODY`."""
    qi = receive.on_frame(ep, st, headend, data, plane, now)
    if qi >= 0:
        _settle(ep, st, tx, headend, qi, now)
    else:
        transmit.send_out(ep, st, tx, headend, pk.ENDPOINT_QPN)
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
        imm = int(w.imm) if w.kind == POST_WRITE_IMM else requester.NO_IMM
        requester.post_write(st, qi, q.msg_end, w.length, w.remote_address, int(w.rkey), imm)


@inner
def _take_frames(ep, st, tx, rx, headend, plane, now):
    """A batch of frames from a port; how many."""
    port = ep.port[plane]
    n = syscalls.receive(port.fd, rx, RX_BURSTS if ep.ctl[0].mode == IP else RX_FRAMES)
    if n <= 0:
        if n < 0 and n != -transmit.EAGAIN and n != -EINTR:
            port.failed = -n
        return 0
    if ep.ctl[0].mode == IP:
        for i in range(n):
            _take_burst(ep, st, tx, rx, headend, plane, i, now)
        return n
    port.rx_packets += n
    for i in range(n):
        length = int(rx.message[i].length)
        port.rx_bytes += length
        if ep.ctl[0].mode == UDP:
            length = udp.restore(rx, i, length)
        take_frame(ep, st, tx, headend, rx.data[i, :length], plane, now)
    return n


@inner
def _take_burst(ep, st, tx, rx, headend, plane, i, now):
    """Datagram `i` that came on a plane: one packet, or several in a row that the kernel joined."""
    port = ep.port[plane]
    length = np.int64(rx.message[i].length)
    port.rx_bytes += length
    ecn, segment = ip.told(rx, i)
    if segment <= 0:
        segment = length
    at = 0
    while at < length:  # the headers of the next one are written over the end of this one
        n = min(segment, length - at)
        first = ip.restore(ep, rx, i, at, n, plane, ecn)
        port.rx_packets += 1
        take_frame(ep, st, tx, headend, rx.data[i, first : udp.AT + at + n], plane, now)
        at += n


@inner
def _do_what_is_due(ep, st, tx, headend, now):
    """Every timer that has passed; the time of the next one."""
    ctl = ep.ctl[0]
    first = NEVER
    for qi in range(ctl.n_qps):
        if st.qp[qi].state != RTS:
            continue
        due = endpoint.next_deadline(st, qi)
        if due <= now:
            endpoint.on_deadline(st, qi, now)
            _settle(ep, st, tx, headend, qi, now)
            due = endpoint.next_deadline(st, qi)
        first = min(first, due)
    nic = int(ctl.nic)
    if endpoint.next_nic_deadline(st, nic) <= now:
        endpoint.on_nic_deadline(st, nic, now)
        transmit.send_out(ep, st, tx, headend, pk.ENDPOINT_QPN)
    return min(first, endpoint.next_nic_deadline(st, nic))


@inlined
def _watch_ports(ep):
    """Ask the kernel about ports that have room again, too, where one was full."""
    n_planes = int(ep.ctl[0].n_planes)
    for plane in range(n_planes):
        port = ep.port[plane]
        ep.poll[n_planes + 2 + plane].fd = port.full_fd if port.full else -1  # -1: nothing


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
def ask_echo(ep, st, tx, headend, remote, plane, number):
    """Send a request that the peer answers at once, and note when; `receive` notes the answer."""
    ctl = ep.ctl[0]
    p = ports.emit(st, pk.ENDPOINT_REQUEST, ctl.nic, remote, plane)
    p.reason = pk.OP_EV_PROBE
    p.psn = MEASURE_BIT | number
    for i in range(st.nic[ctl.nic].n_peers):
        if st.peer[i].remote == remote:
            q = st.qp[st.peer[i].qp]
            p.ev = st.plane[q.plane0 + plane].reverse_ev
    ep.echo[0, number] = syscalls.time_ps(ctl.started_ns, ep.clock)
    ep.echo[1, number] = 0
    transmit.send_out(ep, st, tx, headend, pk.ENDPOINT_QPN)
    transmit.flush_all(ep, tx)


@compiled
def ask_size(ep, st, tx, headend, qi, at, number):
    """Send a packet on path `at` of a QP that has sent nothing, as a retransmission of what would
    come before its first one: full if `number` is even, empty if it is odd. `receive` notes the
    SACK, which reflects `number`.
    """
    q = st.qp[qi]
    e = st.ev[q.ev0 + at]
    p = emit(st, pk.WRITE_ONLY)
    address(p, q)
    p.flag_bits = pk.RTX | pk.ACK_REQ
    p.klass = pk.CLASS_RETRANSMIT
    p.psn = psn_of(q.first_psn, -1)
    p.payload_len = 0 if number & 1 else st.config[0].pmtu
    p.dma_len = p.payload_len
    p.timestamp = number
    p.plane = e.plane
    p.ev = e.value
    transmit.send_out(ep, st, tx, headend, int(q.qpn))
    transmit.flush_all(ep, tx)


@compiled
def turn(ep, st, tx, rx, headend):
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
                work += _take_frames(ep, st, tx, rx, headend, plane, now)
        due = _do_what_is_due(ep, st, tx, headend, now)
        transmit.flush_all(ep, tx)
        work += transmit.pump(ep, st, tx, headend, now)
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
def deny(ep, st, qi, denied):
    """Take those EVs of a QP out of service for which `denied`, [EVs], holds; give back others."""
    q = st.qp[qi]
    for i in range(q.n_evs):
        if denied[i] != (st.ev[q.ev0 + i].state == DENIED):
            beliefs.deny(st, q, i, denied[i], ep.ctl[0].now)


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
