"""The loop of a live endpoint: requests and frames in, the engine, frames and completions out.

Each round takes posted requests and a batch of frames from every port that has some, runs the
timers that are due, and then lets the QPs send. Any thread with the lock may run a round, and none
holds the lock while it sleeps:

    turn    the endpoint's thread, until its attention is requested: it never runs Python, and waits
            in the kernel when there is nothing to do
    push    a thread that has posted a request: a few packets leave at once, without waking another
            thread
    look    a thread that waits for a completion: it polls the ports for a short time and then
            sleeps on them, so packets pass from the kernel to their reader without a change of
            threads

The endpoint's thread sleeps on the ports through a gate (an epoll descriptor around that of the
ports). A waiting thread shuts the gate, listens to the ports and runs the timers in its place.
Because one wait follows another, the gate stays shut for `GRACE_PS` after it: then an alarm wakes
the endpoint's thread, which opens the gate, unless a thread waits again. The alarm is also set for
the timers of posted requests. So a packet or a timer that no thread waits for is handled at most
this much later. A thread that finds the lock taken leaves: the holder checks for posted requests
once more after it has released the lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import endpoint, ev, place
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.state import NEVER, RTS
from openmrc.jit import compiled, inlined, inner, offset_of
from openmrc.jit.byref import by_reference
from openmrc.jit.shared import exchange, give_way
from openmrc.live import syscalls
from openmrc.live.endpoint import complete, ip, receive, state, transmit, udp
from openmrc.live.endpoint.state import (
    ALARM,
    ANSWERED_AT,
    ASKED,
    CTL,
    FULL,
    GATE,
    IP,
    NUMBER,
    OTHERS,
    PORTS,
    POST_RECV,
    POST_WRITE_IMM,
    READER,
    SENT_AT,
    UDP,
    WAKE,
)
from openmrc.live.memory import fence
from openmrc.live.syscalls import POLL_IN, PS_PER_NS, Batch
from openmrc.wire.srv6 import Headend

EINTR = 4
LOOK_EVERY = 16  # rounds between two looks at all descriptors while there is work
SLEEP_MAX_NS = 1_000_000_000
GRACE_PS = 300_000_000
BUSY_NS = 50_000  # how long a waiting thread sleeps while another has the lock
ALL = 1 << 30  # packets
NO_QUEUE = -1
NO_PORTS, ASK = 0, -1  # in place of a mask of ports: none; those that the kernel reports
PUSH, TURN, LOOK, HEAR = 0, 1, 2, 3  # operations of `go`
NOTHING, CAME, OTHER, ELSEWHERE = 0, 1, 2, 3  # results of `look`
LOCK_AT = offset_of(CTL, "lock")
LOOKED_AT = offset_of(CTL, "looked")


@by_reference
class Ways(NamedTuple):
    """Both batches and the headend, for callers that bind the loop to all its state."""

    tx_message: Any
    tx_iov: Any
    tx_data: Any
    tx_name: Any
    tx_control: Any
    rx_message: Any
    rx_iov: Any
    rx_data: Any
    rx_name: Any
    rx_control: Any
    scheme: Any
    nic: Any


@inlined
def _tx(w):
    return Batch(w.tx_message, w.tx_iov, w.tx_data, w.tx_name, w.tx_control)


@inlined
def _rx(w):
    return Batch(w.rx_message, w.rx_iov, w.rx_data, w.rx_name, w.rx_control)


@inlined
def _taken(ep):
    """Take the lock; False if another thread has it."""
    return exchange(ep.ctl.ctypes.data + LOCK_AT, 1) == 0


@inlined
def _let_go(ep):
    exchange(ep.ctl.ctypes.data + LOCK_AT, 0)


@compiled
def enter(ep):
    """Take the lock, waiting as long as necessary."""
    while not _taken(ep):
        give_way()
    return 0


@compiled
def attempt(ep):
    """Take the lock if no thread has it; 0 if one has."""
    return 1 if _taken(ep) else 0


@compiled
def leave(ep):
    """Release the lock."""
    _let_go(ep)
    return 0


@inlined
def _settle(ep, st, tx, headend, qi, now):
    """After a call of the engine for a QP: send its packets, report completions and events."""
    transmit.send_out(ep, st, tx, headend, int(st.qp[qi].qpn))
    complete.collect(ep, st)
    complete.notice(ep, st, qi, now)


@compiled
def take_frame(ep, st, tx, headend, data, plane, now):
    """Process a frame that arrived on `plane`; return the QP that it was for, or `NOBODY`."""
    qi = receive.on_frame(ep, st, headend, data, plane, now)
    if qi >= 0:
        _settle(ep, st, tx, headend, qi, now)
    else:
        transmit.send_out(ep, st, tx, headend, pk.ENDPOINT_QPN)
    return qi


@inner
def _take_posts(ep, st):
    """Pass posted requests to the engine; return how many."""
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
        endpoint.post_receive(q)
    else:
        at = ep.local[place.message(q, q.msg_end)]
        at.address = w.address
        at.wr_id = w.wr_id
        at.signaled = w.signaled
        imm = int(w.imm) if w.kind == POST_WRITE_IMM else endpoint.NO_IMM
        endpoint.post_write(st, qi, q.msg_end, w.length, w.remote_address, int(w.rkey), imm)


@inner
def _take_frames(ep, st, tx, rx, headend, plane, now):
    """Process a batch of frames from a port; return how many."""
    port = ep.port[plane]
    n = syscalls.receive(port.fd, rx, ep.ctl[0].rx_most)
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
    """Process datagram `i` of a plane: one packet, or several that the kernel joined."""
    port = ep.port[plane]
    length = np.int64(rx.message[i].length)
    port.rx_bytes += length
    ecn, segment = ip.told(rx, i)
    if segment <= 0:
        segment = length
    at = 0
    while at < length:  # the headers of the next one overwrite the end of this one
        n = min(segment, length - at)
        first = ip.restore(ep, rx, i, at, n, plane, ecn)
        port.rx_packets += 1
        take_frame(ep, st, tx, headend, rx.data[i, first : udp.AT + at + n], plane, now)
        at += n


@inner
def _do_what_is_due(ep, st, tx, headend, now):
    """Run all timers that are due; return the time of the next one, ps."""
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


@inner
def _next_due(ep, st):
    """The time of the next timer, ps."""
    ctl = ep.ctl[0]
    first = endpoint.next_nic_deadline(st, int(ctl.nic))
    for qi in range(ctl.n_qps):
        if st.qp[qi].state == RTS:
            first = min(first, endpoint.next_deadline(st, qi))
    return first


@inlined
def _watch_ports(ep):
    """Let the kernel also report full ports that have room again."""
    for plane in range(int(ep.ctl[0].n_planes)):
        port = ep.port[plane]
        ep.poll[FULL + plane].fd = port.full_fd if port.full else -1  # -1: nothing


@inner
def _wait(ep):
    """Sleep until a frame arrives, a request is posted, or a timer is due; return the ports to
    check.
    """
    ctl = ep.ctl[0]
    timeout_ns = max((ctl.wakes_at - ctl.now) // PS_PER_NS, 0)
    if ctl.posted != ctl.taken or ctl.attention or ctl.spin:
        timeout_ns = 0
    ready = syscalls.wait(ep.poll, timeout_ns, ep.sleep)
    ctl.sleeping = 0
    if timeout_ns > 0:
        ctl.sleeps += 1
    if ready <= 0:
        return NO_PORTS
    for at in (WAKE, ALARM):
        if ep.poll[at].revents != 0:
            syscalls.read_count(ep.poll[at].fd, ep.sleep)
    if ctl.shut and not ctl.looked:
        _open_gate(ep)
        return ASK
    return ASK if ep.poll[GATE].revents != 0 else NO_PORTS


@inner
def _readable(ep):
    """Mask of the ports for which the kernel has frames."""
    ctl = ep.ctl[0]
    mask = 0
    for i in range(syscalls.epoll_ready(ctl.ports_fd, ep.ready)):
        for plane in range(int(ctl.n_planes)):
            if ep.port[plane].fd == ep.ready[i].which:
                mask |= 1 << plane
    return mask


@inlined
def _open_gate(ep):
    """Let the endpoint's thread listen to the ports. `shut` is cleared first here, and set last in
    `_shut_gate`: however the two interleave, a gate that counts as open is open.
    """
    ctl = ep.ctl[0]
    ctl.shut = 0
    fence()
    syscalls.epoll_change(ctl.gate_fd, ctl.ports_fd, ctl.ports_fd, POLL_IN, ep.gate[:1])


@inlined
def _shut_gate(ep):
    """Keep the endpoint's thread from listening to the ports."""
    ctl = ep.ctl[0]
    syscalls.epoll_change(ctl.gate_fd, ctl.ports_fd, ctl.ports_fd, 0, ep.gate[1:])
    fence()
    ctl.shut = 1


@inlined
def _set_alarm(ep, at, room):
    """Wake the endpoint's thread at this time, ps, instead of that of the last alarm."""
    ctl = ep.ctl[0]
    syscalls.set_alarm(ctl.alarm_fd, ctl.started_ns + at // PS_PER_NS, room)


@inlined
def _has_failed(ep):
    """Whether a port has failed, and must be checked."""
    failed = 0
    for plane in range(ep.ctl[0].n_planes):
        failed |= ep.port[plane].failed
    return failed != 0


@inlined
def _is_full(ep):
    """Whether a port is full."""
    full = 0
    for plane in range(ep.ctl[0].n_planes):
        full |= ep.port[plane].full
    return full != 0


@inner
def _tell_of_ports(ep):
    """With the lock, after a round in place of the endpoint's thread: that thread handles ports
    that are full or gone. If awake, it runs a round before it sleeps again. True if it was woken.
    """
    ctl = ep.ctl[0]
    if ctl.sleeping == 0 or not (_is_full(ep) or _has_failed(ep)):
        return False
    syscalls.write_count(ctl.wake_fd, ep.timeout)
    return True


@inner
def _tell_of_timers(ep):
    """With the lock, after a round of a posting thread: the endpoint's thread continues at once
    with packets left to send, and runs timers a little late, because a posting thread mostly waits
    next, and then runs them itself.
    """
    ctl = ep.ctl[0]
    at = ctl.due
    if at > ctl.now and not ctl.paced:
        at = max(at, ctl.now + GRACE_PS)
    if ctl.sleeping and at < ctl.wakes_at:
        ctl.wakes_at = at
        _set_alarm(ep, at, ep.alarm)


@compiled
def ask(ep, st, ways, to, plane, ev, op, ports_up):
    """Send a request that a NIC answers at once, and record when; `receive` records the answer, in
    the row of `echo` that this returns.
    """
    ctl, tx = ep.ctl[0], _tx(ways)
    # On an ordinary network an EV is one end's source port: it names no path of the other's.
    both_ways = ctl.mode != IP
    number = endpoint.ask(st, int(ctl.nic), to, op, ports_up, plane, ev, both_ways)
    row = int(number) & (ep.echo.shape[0] - 1)
    e = ep.echo[row]
    e[ANSWERED_AT] = 0
    e[NUMBER] = number
    e[ASKED] = to
    e[SENT_AT] = syscalls.time_ps(ctl.started_ns, ep.clock)
    transmit.send_out(ep, st, tx, Headend(ways.scheme, ways.nic), pk.ENDPOINT_QPN)
    transmit.flush_all(ep, tx)
    return row


@compiled
def ask_size(ep, st, tx, headend, qi, at, number):
    """Send packet `number` of a size test on path `at` of a QP that has sent nothing. `receive`
    records the SACK.
    """
    endpoint.ask_size(st, qi, at, number)
    transmit.send_out(ep, st, tx, headend, int(st.qp[qi].qpn))
    transmit.flush_all(ep, tx)


@inner
def _round(ep, st, ways, planes, cq, most):
    """Run one round, with the lock: check some ports, and send up to about `most` packets; return
    how much there was to do. The reader of queue `cq` need not be woken.
    """
    ctl = ep.ctl[0]
    tx, rx = _tx(ways), _rx(ways)
    headend = Headend(ways.scheme, ways.nic)
    now = syscalls.time_ps(ctl.started_ns, ep.clock)
    ctl.now = now
    ctl.loops += 1
    work = _take_posts(ep, st)
    if planes == ASK:
        planes = _readable(ep)
    for plane in range(int(ctl.n_planes)):
        if planes >> plane & 1:
            work += _take_frames(ep, st, tx, rx, headend, plane, now)
    due = _do_what_is_due(ep, st, tx, headend, now)
    transmit.flush_all(ep, tx)
    sent = transmit.pump(ep, st, tx, headend, now, most)
    transmit.flush_all(ep, tx)
    if sent > 0:
        due = _next_due(ep, st)  # sent packets have timers, too
    if ctl.paced:
        due = min(due, max(transmit.next_free(ep), now + 1))
    if sent >= most:
        due = now
    ctl.due = due
    if cq >= 0:
        ep.cq[cq].told = ep.cq[cq].written
    complete.wake_readers(ep)
    return work + sent


@inner
def _turn(ep, st, ways):
    """Run rounds until `ctl.attention` is set, or a port has failed; return with the lock, which
    the caller releases (`leave`).
    """
    ctl = ep.ctl[0]
    planes = ASK
    while True:
        while not _taken(ep):
            give_way()
        work = _round(ep, st, ways, planes, NO_QUEUE, ALL)
        if ctl.attention or _has_failed(ep):
            return
        again = work > 0 and ctl.loops % LOOK_EVERY != 0
        if not again:
            _watch_ports(ep)
            later = NEVER if ctl.looked else ctl.due  # a waiting thread runs the timers
            ctl.wakes_at = ctl.now if work > 0 else min(later, ctl.now + SLEEP_MAX_NS * PS_PER_NS)
            ctl.sleeping = 1
        _let_go(ep)
        planes = (1 << int(ctl.n_planes)) - 1  # cheaper than asking which are ready
        if not again:
            planes = _wait(ep)


@inner
def _push(ep, st, ways, most):
    """Send posted requests, up to about `most` packets."""
    ctl = ep.ctl[0]
    fence()
    while ctl.posted != ctl.taken and not ctl.attention and _taken(ep):
        _round(ep, st, ways, NO_PORTS, NO_QUEUE, most)
        if not _tell_of_ports(ep):
            _tell_of_timers(ep)
        _let_go(ep)


@inner
def _look(ep, st, ways, cq, spin_ns, most_ns):
    """Run the loop in place of the endpoint's thread, for `most_ns` at most:

    NOTHING     the time is over, or a signal arrived
    CAME        a completion is in queue `cq`
    OTHER       one of the other descriptors in `ep.waits` is readable
    ELSEWHERE   another thread is doing so, or the endpoint's own never sleeps
    """
    ctl = ep.ctl[0]
    c = ep.cq[cq]
    if c.written != c.read:
        return CAME
    if ctl.spin or exchange(ep.ctl.ctypes.data + LOOKED_AT, 1) != 0:
        return ELSEWHERE
    now = syscalls.time_ps(ctl.started_ns, ep.nap)
    until = now + most_ns * PS_PER_NS
    spins_until = now + spin_ns * PS_PER_NS
    ep.waits[READER].fd = c.fd
    planes = ASK
    said = NOTHING
    while True:
        busy = False
        if planes != NO_PORTS or ctl.posted != ctl.taken or now >= ctl.due:
            busy = ctl.attention != 0 or not _taken(ep)
            if not busy:
                if _round(ep, st, ways, planes, cq, ALL) > 0:
                    spins_until = ctl.now + spin_ns * PS_PER_NS
                _tell_of_ports(ep)
                _let_go(ep)
        fence()
        if c.written != c.read:
            said = CAME
            break
        if not ctl.shut:
            _shut_gate(ep)
        now = syscalls.time_ps(ctl.started_ns, ep.nap)
        if now >= until:
            break
        left_ns = max(min(until, ctl.due) - now, 0) // PS_PER_NS
        if busy:
            left_ns = BUSY_NS
        elif now < spins_until:
            left_ns = 0
        ep.waits[PORTS].fd = -1 if busy else ctl.ports_fd
        ready = syscalls.wait(ep.waits, left_ns, ep.nap)
        if ready < 0:
            break
        planes = ASK if busy else NO_PORTS
        if ready > 0:
            if ep.waits[PORTS].revents != 0:
                planes = ASK
            if ep.waits[READER].revents != 0:
                syscalls.read_count(c.fd, ep.nap)
            if _is_readable(ep.waits[OTHERS:]):
                said = OTHER
                break
        now = syscalls.time_ps(ctl.started_ns, ep.nap)
    if said != CAME and ctl.shut:
        _open_gate(ep)  # no thread waits again soon
    _set_alarm(ep, syscalls.time_ps(ctl.started_ns, ep.nap) + GRACE_PS, ep.nap)
    exchange(ep.ctl.ctypes.data + LOOKED_AT, 0)
    _push(ep, st, ways, ALL)
    return said


@inlined
def _is_readable(polls):
    """Whether one of these descriptors is readable."""
    some = 0
    for i in range(polls.shape[0]):
        some |= polls[i].revents
    return some != 0


@compiled
def go(ep, st, ways, what, a, b, c):
    """PUSH up to `a` packets; TURN; LOOK for a completion in queue `a`, polling for `b` ns and for
    `c` ns at most; have the endpoint's thread HEAR the ports at once, because no thread waits again
    soon. One entry point: each would be compiled with the whole loop in it.
    """
    if what == PUSH:
        _push(ep, st, ways, a)
    elif what == TURN:
        _turn(ep, st, ways)
    elif what == LOOK:
        return _look(ep, st, ways, a, b, c)
    elif ep.ctl[0].shut:
        _open_gate(ep)
    return 0


@inlined
def _is_denied(ep, at, who, denied):
    """Whether anybody denies an EV, now that one of them does, or does not any more."""
    others = int(ep.ev_denied[at]) & ~who
    ep.ev_denied[at] = others | who if denied else others
    return ep.ev_denied[at] != 0


@compiled
def deny(ep, st, qi, who, denied):
    """The denylist (LISTED), or a controller (STATED), denies those EVs of a QP for which `denied`,
    [EVs], is true, and no others.
    """
    q = st.qp[qi]
    for i in range(q.n_evs):
        endpoint.deny(st, q, i, _is_denied(ep, place.ev(q, i), who, denied[i]), ep.ctl[0].now)


@compiled
def declare(ep, st, ways, qi, value, plane, to):
    """A controller states what an EV of a QP is; a QP that does not have it does nothing. What the
    denylist denies stays DENIED. The caller holds the lock.
    """
    q, now = st.qp[qi], ep.ctl[0].now
    for own in range(int(q.n_evs)):
        at = place.ev(q, own)
        e = st.ev[at]
        if e.value == value and e.plane == plane:
            denied = _is_denied(ep, at, state.STATED, to == ev.DENIED)
            endpoint.declare(st, q, own, ev.DENIED if denied else to, now)
    ep.qp[qi].n_bad = -1  # look at all of them
    _settle(ep, st, _tx(ways), Headend(ways.scheme, ways.nic), qi, now)
    complete.wake_readers(ep)
    return 0


@compiled
def replace(ep, st, qi, at, values):
    """EVs of a QP stand for other paths of their planes: `at` their indices within it, `values` the
    new ones.
    """
    q = st.qp[qi]
    for i in range(at.shape[0]):
        endpoint.replace(st, q, int(at[i]), int(values[i]), ep.ctl[0].now)
        ep.ev_count[place.ev(q, int(at[i]))] = 0
        ep.ev_denied[place.ev(q, int(at[i]))] = 0


@compiled
def set_port(st, nic, port, up, now):
    """The NIC's own port goes down or comes up."""
    endpoint.set_port(st, nic, port, up != 0, now)
    return 0


@compiled
def end_qp(ep, st, qi):
    """The application ends a QP: outstanding requests are flushed."""
    q = st.qp[qi]
    now = ep.ctl[0].now
    _take_posts(ep, st)
    if q.state != es.ERROR:
        endpoint.fail(st, q, es.NO_ERROR, now)
    complete.flush_qp(ep, st, qi, now)
    complete.wake_readers(ep)
    return 0
