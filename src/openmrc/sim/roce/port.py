"""Egress ports of a RoCE network: two classes, control before data; ECN; PFC; nothing is trimmed.

Acknowledgements and CNPs travel in a class of their own (class 0 of a port's queues), data in the
last, which alone is paused. A queued packet remembers in HOP.port the link that it came over: a
switch charges its buffer to that. A packet that finds its port idle is not queued, and charged to
nobody.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.packet import CE, CLASS_CONTROL, CLASS_DATA
from openmrc.jit import inlined, inner
from openmrc.sim import link
from openmrc.sim.roce import flow, pfc


@inlined
def held(ro, port_no):
    """Whether a port must hold its data."""
    return ro.c[0].pfc != 0 and pfc.is_paused(ro.pause[port_no])


@inlined
def enqueue(net, ro, port_no, n, now):
    """A packet comes to an egress port: on the wire if it may go at once, else into its queue."""
    port = net.port[port_no]
    h = net.hop[n]
    waits = h.klass != CLASS_CONTROL and held(ro, port_no)
    if port.armed == 0 and port.free_at <= now and port.up and not waits:
        link.transmit(net, port, port_no, n, now)
        return
    if port.up == 0:
        h.port = port_no
        link.drop_by_fault(net, n)
        return
    kind = net.port_kind[port.kind]
    if h.klass == CLASS_CONTROL:
        if port.control_bytes + h.frame_bytes > kind.control_limit:
            h.port = port_no
            link.drop_by_queue(net, n, True)
            return
        port.control_bytes += h.frame_bytes
    else:
        if ro.c[0].pfc != 0:
            room = flow.charge(net, ro, h, now)
        else:
            room = port.data_bytes + h.frame_bytes <= kind.limit_bytes
        if not room:
            h.port = port_no
            link.drop_by_queue(net, n, False)
            return
        port.data_bytes += h.frame_bytes
    link.append(net, port, int(h.klass), n)
    if not waits:  # else it goes on when the pause ends
        link.arm(net, port, port_no)


@inlined
def dequeue(net, ro, port_no, port, now):
    """Take the next packet that may go, control first; -1 if none."""
    n = int(port.head[CLASS_CONTROL])
    if n >= 0:
        h = net.hop[n]
        port.head[CLASS_CONTROL] = h.next
        port.control_bytes -= h.frame_bytes
        return n
    n = int(port.head[CLASS_DATA])
    if n < 0 or held(ro, port_no):
        return -1
    h = net.hop[n]
    port.head[CLASS_DATA] = h.next
    port.data_bytes -= h.frame_bytes
    if ro.c[0].pfc != 0:
        flow.free(net, ro, h, now)
    kind = net.port_kind[port.kind]
    if port.data_bytes > kind.ecn_low:
        _mark(net, ro, port.data_bytes - kind.ecn_low, kind.ecn_high - kind.ecn_low, h)
    return n


@inner
def _mark(net, ro, over, span, h):
    """RED: a probability that grows to Pmax at the upper threshold, and always above."""
    if over >= span or bits.draw_below(net.stream, 0, int(span / ro.c[0].p_max)) < over:
        if h.marks & CE == 0:
            net.ctl[0].ecn_marked += 1
        h.marks |= CE


@inlined
def _send_next(net, ro, port_no, port, now):
    """A switch port that is silent: send the next; an event for its end if more may follow."""
    n = dequeue(net, ro, port_no, port, now)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        if port.head[CLASS_CONTROL] >= 0 or (port.head[CLASS_DATA] >= 0 and not held(ro, port_no)):
            link.arm(net, port, port_no)


@inlined
def on_switch_port_free(net, ro, port_no, now):
    """A switch port's transmission is over."""
    port = net.port[port_no]
    port.armed = 0
    if port.up:
        _send_next(net, ro, port_no, port, now)


@inner
def go_on(net, ro, port_no, now):
    """A switch port's pause is over."""
    port = net.port[port_no]
    if port.up == 0 or port.armed or port.head[CLASS_DATA] < 0:
        return
    if port.free_at > now:
        link.arm(net, port, port_no)
    else:
        _send_next(net, ro, port_no, port, now)


@inner
def flush(net, ro, port_no, now):
    """Lose everything queued at a port that went down."""
    port = net.port[port_no]
    for klass in range(CLASS_DATA + 1):
        n = int(port.head[klass])
        while n >= 0:
            h = net.hop[n]
            following = int(h.next)
            if klass == CLASS_DATA and ro.c[0].pfc != 0:
                flow.free(net, ro, h, now)
            h.port = port_no
            link.drop_by_fault(net, n)
            n = following
        port.head[klass] = -1
        port.tail[klass] = -1
    port.data_bytes = 0
    port.control_bytes = 0
