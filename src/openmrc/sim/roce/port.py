"""Egress ports of a RoCE network: two classes, control before data; ECN; nothing is trimmed.

Acknowledgements and CNPs travel in a class of their own (class 0 of a port's queues), data in the
last, which alone is subject to PFC. A queued packet remembers in HOP.port the link that it came
over: buffers are counted by that.
"""

from __future__ import annotations

from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA
from openmrc.jit import inlined, inner
from openmrc.sim import link


@inlined
def enqueue(net, ro, port_no, n, now):
    """A packet comes to an egress port: on the wire if it is idle, else into its class's queue."""
    port = net.port[port_no]
    h = net.hop[n]
    if port.armed == 0 and port.free_at <= now and port.up:
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
        if port.data_bytes + h.frame_bytes > kind.limit_bytes:
            h.port = port_no
            link.drop_by_queue(net, n, False)
            return
        port.data_bytes += h.frame_bytes
    link.append(net, port, int(h.klass), n)
    link.arm(net, port, port_no)


@inlined
def dequeue(net, ro, port):
    """Take the next packet that may go, control first; -1 if none."""
    n = int(port.head[CLASS_CONTROL])
    if n >= 0:
        h = net.hop[n]
        port.head[CLASS_CONTROL] = h.next
        port.control_bytes -= h.frame_bytes
        return n
    n = int(port.head[CLASS_DATA])
    if n < 0:
        return -1
    h = net.hop[n]
    port.head[CLASS_DATA] = h.next
    port.data_bytes -= h.frame_bytes
    kind = net.port_kind[port.kind]
    if port.data_bytes > kind.ecn_low:
        link.mark(net, port.data_bytes - kind.ecn_low, kind.ecn_high - kind.ecn_low, h)
    return n


@inlined
def on_switch_port_free(net, ro, port_no, now):
    """A switch port's transmission is over: send the next; an event for its end if more wait."""
    port = net.port[port_no]
    port.armed = 0
    if port.up == 0:
        return
    n = dequeue(net, ro, port)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        if port.head[CLASS_CONTROL] >= 0 or port.head[CLASS_DATA] >= 0:
            link.arm(net, port, port_no)


@inner
def flush(net, ro, port_no):
    """Lose everything queued at a port that went down."""
    port = net.port[port_no]
    for klass in range(CLASS_DATA + 1):
        n = int(port.head[klass])
        while n >= 0:
            following = int(net.hop[n].next)
            net.hop[n].port = port_no
            link.drop_by_fault(net, n)
            n = following
        port.head[klass] = -1
        port.tail[klass] = -1
    port.data_bytes = 0
    port.control_bytes = 0
