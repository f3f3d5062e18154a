"""Frames between the loop and its descriptors: receives into free buffers, sends from them.

Nothing is copied: the next batch to receive points at unused buffers of the pool, and a batch to
send points at the buffers of the frames themselves.
"""

from __future__ import annotations

import select

from openmrc.fabric import queues
from openmrc.jit import inlined, inner
from openmrc.live import syscalls
from openmrc.live.switch import frames as switch_frames
from openmrc.live.switch import state
from openmrc.live.switch.ports import drop, enqueue, free_frame, resize
from openmrc.units import US

EAGAIN = 11
ENDED = select.POLLHUP | select.POLLNVAL  # unlike a mere error, these persist


@inlined
def arm(net):
    """Give free buffers to the next receive, as many as it can use."""
    ctl = net.ctl[0]
    while ctl.n_armed < state.RECEIVE_BATCH and ctl.free_head >= 0:
        n = queues.take_free(ctl, net.frame)
        i = int(ctl.n_armed)
        net.armed[i] = n
        net.iov[i].address = ctl.pool_at + int(net.frame[n].room) * ctl.room_bytes
        ctl.n_armed = i + 1


@inner
def read_wire(net, wire_no, events, now):
    """A wire is ready: move a batch of frames to the NIC's queue; the rest is reported again."""
    ctl = net.ctl[0]
    w = net.wire[wire_no]
    if events & syscalls.POLL_OUT and w.full:
        w.full = 0
        ctl.n_blocked -= 1
        _mind(net, wire_no, w)
        _soil(net, wire_no, w)
    port = net.port[wire_no]
    if events & (syscalls.POLL_IN | syscalls.POLL_PROBLEM) == 0 or (
        port.paused and events & syscalls.POLL_IN == 0
    ):
        return
    n = int(ctl.n_armed)
    if n == 0:
        return
    batch = syscalls.Batch(net.message, net.iov, net.pool, net.pool, net.pool)
    got = syscalls.receive(int(w.fd), batch, n)
    if got <= 0:
        if events & ENDED:
            _close(net, w)
        return
    empty = 0
    for i in range(got):
        if events & ENDED and net.message[i].length == 0:  # the wire has ended; this is not a frame
            empty += 1
            free_frame(net, int(net.armed[i]))
        else:
            _take(net, wire_no, int(net.armed[i]), net.message[i], now)
    for i in range(n - got):  # buffers that were not filled remain for the next time
        net.armed[i] = net.armed[i + got]
        net.iov[i].address = net.iov[i + got].address
    ctl.n_armed = n - got
    arm(net)
    if empty == got:
        _close(net, w)
    elif port.paused == 0 and _queued(port) > port.pause_bytes:
        _pause(net, wire_no)


@inlined
def _take(net, wire_no, n, message, now):
    """A frame has arrived from the NIC of wire `wire_no`."""
    f = net.frame[n]
    length = int(message.length)
    resize(f, length)
    net.count[wire_no].received += 1
    if int(message.flag_bits) & syscalls.TRUNCATED or length > net.ctl[0].frame_bytes_max:
        drop(net, wire_no, n, state.DROP_TOO_LONG)
        return
    data = net.pool[f.room]
    if not switch_frames.is_ipv6(data, length):
        drop(net, wire_no, n, state.DROP_BAD_FRAME)
        return
    dscp = switch_frames.dscp_of(data)
    f.klass = switch_frames.class_of(net.ctl[0].dscps, dscp)
    may = net.ctl[0].trims and switch_frames.may_trim(net.ctl[0].dscps, dscp)
    f.trimmable = 1 if may else 0
    enqueue(net, wire_no, n, now)


@inlined
def _queued(port):
    return int(port.data_queued_bytes) + int(port.control_queued_bytes)


@inlined
def _mind(net, wire_no, w):
    """Tell epoll which events of a wire to report."""
    events = syscalls.POLL_IN if net.port[wire_no].paused == 0 else 0
    if w.full:
        events |= syscalls.POLL_OUT
    syscalls.epoll_change(int(net.ctl[0].epoll_fd), int(w.fd), wire_no, events, net.change)


@inner
def _pause(net, wire_no):
    """The NIC's queue is full: leave further frames in the socket, which pushes back."""
    net.port[wire_no].paused = 1
    net.count[wire_no].paused += 1
    net.ctl[0].n_paused += 1
    _mind(net, wire_no, net.wire[wire_no])


@inner
def resume(net):
    """Read the wires again whose NICs' queues have half emptied."""
    for wire_no in range(net.wire.shape[0]):
        port = net.port[wire_no]
        if port.paused and 2 * _queued(port) <= port.pause_bytes:
            port.paused = 0
            net.ctl[0].n_paused -= 1
            if net.wire[wire_no].closed == 0:
                _mind(net, wire_no, net.wire[wire_no])


@inner
def _close(net, w):
    """The other end is gone: no more frames will arrive from it."""
    if w.closed == 0:
        w.closed = 1
        syscalls.epoll_forget(int(net.ctl[0].epoll_fd), int(w.fd), net.change)


@inlined
def deliver(net, wire_no, n, at):
    """A frame has arrived at the NIC of wire `wire_no`: it leaves with the next batch."""
    ctl = net.ctl[0]
    w = net.wire[wire_no]
    late = int(ctl.wall) - at
    ctl.late_max = max(int(ctl.late_max), late)
    net.late[_bin(late)] += 1
    if w.n >= ctl.wire_frames_max:
        drop(net, int(w.port), n, state.DROP_RECEIVER)
        return
    net.frame[n].next = -1
    if w.head < 0:
        w.head = n
    else:
        net.frame[w.tail].next = n
    w.tail = n
    w.n += 1
    if w.full == 0:
        _soil(net, wire_no, w)


@inlined
def _bin(late):
    us = late // US
    b = 0
    while us > 0 and b < state.LATE_BINS - 1:
        us >>= 1
        b += 1
    return b


@inlined
def _soil(net, wire_no, w):
    """Add a wire to the list of those to send on."""
    ctl = net.ctl[0]
    if w.dirty == 0:
        w.dirty = 1
        net.dirty[ctl.n_dirty] = wire_no
        ctl.n_dirty += 1


@inlined
def send_all(net):
    """Send the frames that have arrived at NICs."""
    ctl = net.ctl[0]
    for i in range(ctl.n_dirty):
        wire_no = int(net.dirty[i])
        net.wire[wire_no].dirty = 0
        _send_wire(net, wire_no, net.wire[wire_no])
    ctl.n_dirty = 0


@inner
def _send_wire(net, wire_no, w):
    """Send a wire's frames, batch by batch, until its socket is full."""
    while w.head >= 0:
        n, m = 0, int(w.head)
        while m >= 0 and n < state.SEND_BATCH:
            f = net.frame[m]
            net.out_iov[n].address = net.ctl[0].pool_at + int(f.room) * net.ctl[0].room_bytes
            net.out_iov[n].length = f.length
            m = int(f.next)
            n += 1
        sent = syscalls.send(
            int(w.fd),
            syscalls.Batch(net.out_message, net.out_iov, net.pool, net.pool, net.pool),
            0,
            n,
        )
        if sent == -EAGAIN:
            w.full = 1
            net.ctl[0].n_blocked += 1
            _mind(net, wire_no, w)
            return
        for _ in range(sent):
            free_frame(net, _first(net, w))
        if sent > 0:
            net.count[w.port].delivered += sent
        else:  # ENOBUFS, ENETDOWN, ECONNREFUSED ...: this frame is lost, the next may not be
            drop(net, int(w.port), _first(net, w), state.DROP_SEND)


@inlined
def _first(net, w):
    n = int(w.head)
    w.head = net.frame[n].next
    w.n -= 1
    return n
