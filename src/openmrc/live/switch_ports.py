"""Egress ports in real time: three classes in strict priority, exact service, ECN, trimming,
limits, health (reference 6).

Times are those at which things are due, not those at which the loop got round to them: a frame
that is handled late leaves its queue as if it were not, so lateness never adds up and a busy loop
costs no bandwidth. A mark is made when a frame leaves the queue, by what it leaves behind.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.fabric.rtt import PS_BITS
from openmrc.jit import inlined, inner
from openmrc.live import switch_frames, switch_heap
from openmrc.live.switch_limits import PREAMBLE_GAP_AND_FCS
from openmrc.live.switch_state import (
    CLASS_CONTROL,
    CLASS_DATA,
    DROP_CONTROL,
    DROP_LINK,
    DROP_LOSS,
    DROP_QUEUE,
)
from openmrc.live.switch_tap import note
from openmrc.wire import codec

OF_QUEUES, OF_FAULTS = 0, 1  # random streams


@inlined
def wire_bytes(f):
    """What a frame occupies on a link."""
    return int(f.length) + PREAMBLE_GAP_AND_FCS


@inlined
def free_frame(net, n):
    """Give a frame and its buffer back."""
    ctl = net.ctl[0]
    net.frame[n].next = ctl.free_head
    ctl.free_head = n
    ctl.n_free += 1


@inlined
def drop(net, port_no, n, reason):
    """Lose a frame, counted at a port."""
    net.count[port_no].dropped[reason] += 1
    free_frame(net, n)


@inlined
def transmit(net, port, port_no, n, now):
    """Put a frame on the wire: it arrives after its last bit and the way (store and forward)."""
    f = net.frame[n]
    size = wire_bytes(f)
    port.free_at = now + size * PS_BITS // port.rate_bps
    f.left_at = port.free_at
    f.port = port_no
    c = net.count[port_no]
    c.packets += 1
    c.wire_bytes += size
    if port.faulty and _lost(net, port, port_no, f):
        drop(net, port_no, n, DROP_LOSS)
        return
    if port.tapped:
        note(net, f, now)
    switch_heap.push(net.ctl[0], net.heap, port.free_at + port.delay_ps, n)


@inner
def _lost(net, port, port_no, f):
    """Whether a faulty port loses the frame that it sends; it may also damage it."""
    if port.loss > 0:
        chance = port.loss_again if port.losing else port.loss
        port.losing = 1 if _happens(net, chance) else 0
        if port.losing:
            return True
    if port.corrupt > 0 and _happens(net, port.corrupt):
        bit = bits.draw_below(net.stream, OF_FAULTS, switch_frames.BITS_OF_ICRC)
        net.count[port_no].damaged += switch_frames.damage(net.pool[f.room], int(f.length), bit)
    return False


@inlined
def _happens(net, chance):
    """Draw for a fault: true with probability `chance` / 2^31."""
    return bits.draw(net.stream, OF_FAULTS) >> 1 < int(chance)


@inlined
def _append(net, port, klass, n):
    net.frame[n].next = -1
    if port.head[klass] < 0:
        port.head[klass] = n
    else:
        net.frame[port.tail[klass]].next = n
    port.tail[klass] = n


@inlined
def _dequeue(net, port, port_no):
    """Take the next frame by priority, marking it if the queue is long; -1 if none."""
    klass = 0
    while port.head[klass] < 0:
        klass += 1
        if klass > CLASS_DATA:
            return -1
    n = int(port.head[klass])
    f = net.frame[n]
    port.head[klass] = f.next
    if klass == CLASS_CONTROL:
        port.control_bytes -= wire_bytes(f)
    else:
        port.data_bytes -= wire_bytes(f)
        over = port.data_bytes - port.ecn_low
        if over > 0:
            _mark(net, port_no, over, port.ecn_high - port.ecn_low, f)
    return n


@inner
def _mark(net, port_no, over, span, f):
    """Random marking between the two thresholds, always above the upper one."""
    if over >= span or bits.draw_below(net.stream, OF_QUEUES, span) < over:
        net.count[port_no].ecn_marked += switch_frames.mark(net.pool[f.room])


@inner
def _trim(net, port, port_no, n):
    """Cut a frame to its headers and give it to the control class."""
    f = net.frame[n]
    length = codec.trim(net.pool[f.room], int(f.length), int(port.last_hop))
    if length < 0:  # not one of ours: nothing has changed
        drop(net, port_no, n, DROP_QUEUE)
        return
    f.length = length
    f.klass = CLASS_CONTROL
    f.trimmable = 0
    net.count[port_no].trimmed += 1
    _queue_control(net, port, port_no, n)


@inlined
def _queue_control(net, port, port_no, n):
    size = wire_bytes(net.frame[n])
    if port.control_bytes + size > port.control_limit:
        drop(net, port_no, n, DROP_CONTROL)  # row 15
    else:
        port.control_bytes += size
        _append(net, port, CLASS_CONTROL, n)


@inner
def _overflow(net, port, port_no, n):
    """The data queue is full: trim the arriving frame or the last queued one, by a coin; drop what
    may not be cut.
    """
    f = net.frame[n]
    last = int(port.tail[CLASS_DATA]) if port.head[CLASS_DATA] >= 0 else -1
    if last >= 0 and f.klass == CLASS_DATA and net.frame[last].trimmable:
        grown = int(f.length) - int(net.frame[last].length)
        fits = port.data_bytes + grown <= port.limit_bytes
        if fits and bits.draw_below(net.stream, OF_QUEUES, 2) == 0:
            port.data_bytes += grown
            _swap(f, net.frame[last])
    if f.trimmable:
        _trim(net, port, port_no, n)
    else:
        drop(net, port_no, n, DROP_QUEUE)


@inlined
def _swap(a, b):
    """Exchange what two records of one class and port stand for, their links apart."""
    room, length, trimmable = int(a.room), int(a.length), int(a.trimmable)
    a.room = b.room
    a.length = b.length
    a.trimmable = b.trimmable
    b.room = room
    b.length = length
    b.trimmable = trimmable


@inlined
def enqueue(net, port_no, n, now):
    """A frame comes to an egress port: on the wire if it is idle, else into its class's queue."""
    port = net.port[port_no]
    f = net.frame[n]
    f.port = port_no
    if port.up == 0:
        drop(net, port_no, n, DROP_LINK)
        return
    if port.armed == 0 and port.free_at <= now:
        transmit(net, port, port_no, n, now)
        return
    size = wire_bytes(f)
    if f.klass == CLASS_CONTROL:
        _queue_control(net, port, port_no, n)
    elif port.from_nic == 0 and port.data_bytes + size > port.limit_bytes:
        _overflow(net, port, port_no, n)
    else:
        port.data_bytes += size
        _append(net, port, int(f.klass), n)
    _arm(net, port, port_no)


@inlined
def _arm(net, port, port_no):
    """Ask for an event when the port's transmission is over."""
    if port.armed == 0:
        port.armed = 1
        switch_heap.push(net.ctl[0], net.heap, port.free_at, net.frame.shape[0] + port_no)


@inlined
def on_free(net, port_no, now):
    """A port's transmission is over: send the next; an event for its end if more wait."""
    port = net.port[port_no]
    port.armed = 0
    if port.up == 0:
        return
    n = _dequeue(net, port, port_no)
    if n >= 0:
        transmit(net, port, port_no, n, now)
        if port.head[0] >= 0 or port.head[1] >= 0 or port.head[2] >= 0:
            _arm(net, port, port_no)


@inner
def flush(net, port, port_no):
    """Lose everything queued at a port."""
    for klass in range(CLASS_DATA + 1):
        n = int(port.head[klass])
        while n >= 0:
            following = int(net.frame[n].next)
            drop(net, port_no, n, DROP_LINK)
            n = following
        port.head[klass] = -1
        port.tail[klass] = -1
    port.data_bytes = 0
    port.control_bytes = 0
