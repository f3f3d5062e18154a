"""Egress ports of a RoCE network: two classes, control before data; ECN; PFC; nothing is trimmed.

Acknowledgements and CNPs travel in a class of their own (class 0 of a port's queues), data in the
last, which alone is paused. A queued packet keeps in HOP.port the link on which it arrived, to
which the switch charges its buffer. A packet that finds its port idle is not queued, and not
charged.
"""

from __future__ import annotations

from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA
from openmrc.fabric import queues
from openmrc.jit import inlined, inner
from openmrc.sim.net import balance, link
from openmrc.sim.roce import flow, pfc


@inlined
def held(ro, port_no):
    """Whether a port must hold its data."""
    return ro.c[0].pfc != 0 and pfc.is_paused(ro.pause[port_no])


@inlined
def enqueue(net, ro, port_no, n, now):
    """A packet arrives at an egress port: send it if possible at once, else queue it."""
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
    if h.klass != CLASS_CONTROL and ro.c[0].pfc != 0:
        room = flow.charge(net, ro, h, now)
    else:
        kind = net.port_kind[port.kind]
        room = queues.admit(net.hop, port, kind, net.stream, port_no, n) == queues.QUEUE
    if not room:
        h.port = port_no
        link.drop_by_queue(net, n, h.klass == CLASS_CONTROL)
        return
    queues.append(net.hop, port, n)
    balance.note_load(net, port_no, port)
    if not waits:  # else it continues when the pause ends
        link.arm(net, port, port_no)


@inlined
def dequeue(net, ro, port_no, port, now):
    """Take the next packet that may be sent, control first; -1 if none."""
    if port.head[CLASS_CONTROL] < 0 and held(ro, port_no):
        return -1
    n = queues.take(net.hop, port)
    if n >= 0 and net.hop[n].klass != CLASS_CONTROL:
        balance.note_load(net, port_no, port)
        if ro.c[0].pfc != 0:
            flow.free(net, ro, net.hop[n], now)
        kind = net.port_kind[port.kind]
        if queues.marks(port, kind, net.stream, port_no, ro.c[0].p_max):  # RED
            link.mark(net, net.hop[n], port_no)
    return n


@inlined
def _send_next(net, ro, port_no, port, now):
    """A switch port is idle: send the next packet; schedule its end if more may follow."""
    n = dequeue(net, ro, port_no, port, now)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        if port.head[CLASS_CONTROL] >= 0 or (port.head[CLASS_DATA] >= 0 and not held(ro, port_no)):
            link.arm(net, port, port_no)


@inlined
def on_switch_port_free(net, ro, port_no, now):
    """A switch port has finished sending."""
    port = net.port[port_no]
    port.armed = 0
    if port.up:
        _send_next(net, ro, port_no, port, now)


@inner
def resume_data(net, ro, port_no, now):
    """The pause of a switch port has ended."""
    port = net.port[port_no]
    if port.up == 0 or port.armed or port.head[CLASS_DATA] < 0:
        return
    if port.free_at > now:
        link.arm(net, port, port_no)
    else:
        _send_next(net, ro, port_no, port, now)


@inner
def flush(net, ro, port_no, now):
    """Drop everything queued at a port that went down."""
    port = net.port[port_no]
    while queues.holds_any(port):
        n = queues.take(net.hop, port)
        h = net.hop[n]
        if h.klass != CLASS_CONTROL and ro.c[0].pfc != 0:
            flow.free(net, ro, h, now)
        h.port = port_no
        link.drop_by_fault(net, n)
