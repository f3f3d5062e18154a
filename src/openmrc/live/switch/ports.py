"""Egress ports in real time: three classes in strict priority, exact service times, ECN, trimming,
limits, health (MRC 6.3 to 6.5).

Times are those at which events are due, not those at which the loop handles them: a frame that is
handled late leaves its queue as if on time, so delays never add up and a busy loop costs no
bandwidth. A frame is marked when it leaves the queue, by the length of the queue behind it.
"""

from __future__ import annotations

from openmrc.engine.packet import CLASS_CONTROL
from openmrc.fabric import queues
from openmrc.jit import heap, inlined, inner
from openmrc.live.switch import faults as switch_faults
from openmrc.live.switch import frames as switch_frames
from openmrc.live.switch import state
from openmrc.live.switch.tap import note
from openmrc.units import PS_BITS
from openmrc.wire import codec
from openmrc.wire.framing import PREAMBLE_GAP_AND_FCS


@inlined
def resize(f, length):
    """Set the length of a frame."""
    f.length = length
    f.frame_bytes = length + PREAMBLE_GAP_AND_FCS


@inlined
def free_frame(net, n):
    """Free a frame and its buffer."""
    queues.give_back(net.ctl[0], net.frame, n)


@inlined
def drop(net, port_no, n, reason):
    """Drop a frame, counted at a port."""
    net.count[port_no].dropped[reason] += 1
    free_frame(net, n)


@inlined
def transmit(net, port, port_no, n, now):
    """Put a frame on the wire: it arrives after its last bit and the link's delay (store and
    forward).
    """
    f = net.frame[n]
    size = int(f.frame_bytes)
    port.free_at = now + size * PS_BITS // port.rate_bps
    f.left_at = port.free_at
    f.port = port_no
    c = net.count[port_no]
    c.packets += 1
    c.wire_bytes += size
    if port.faulty and switch_faults.loses(net, port, port_no, f):
        drop(net, port_no, n, state.DROP_LOSS)
        return
    if port.tapped:
        note(net, f, now)
    heap.push(net.ctl[0], net.heap, port.free_at + port.delay_ps, n)


@inlined
def _dequeue(net, port, port_no):
    """Take the next frame by priority, marking it if the queue is long; -1 if none."""
    n = queues.take(net.frame, port)
    if n < 0 or net.frame[n].klass == CLASS_CONTROL:
        return n
    if queues.marks(port, port, net.stream, port_no, 1.0):
        net.count[port_no].ecn_marked += switch_frames.mark(net.pool[net.frame[n].room])
    return n


@inner
def _trim(net, port, port_no, n):
    """Trim a frame to its headers and move it to the control class."""
    f, c = net.frame[n], net.ctl[0]
    how = (int(port.last_hop), c.dscps, int(c.trim_lengths))
    length = codec.trim(net.pool[f.room], int(f.length), *how)
    if length < 0:  # not a frame that can be trimmed: nothing has changed
        drop(net, port_no, n, state.DROP_QUEUE)
        return
    resize(f, length)
    f.klass = CLASS_CONTROL
    f.trimmable = 0
    net.count[port_no].trimmed += 1
    if queues.admit(net.frame, port, port, net.stream, port_no, n) == queues.QUEUE:
        queues.append(net.frame, port, n)
    else:
        drop(net, port_no, n, state.DROP_CONTROL)  # row 15


@inner
def _refuse(net, port, port_no, n, verdict):
    """A frame finds its queue full: trim it or the last one queued, or drop it."""
    if verdict == queues.DROP:
        full = state.DROP_CONTROL if net.frame[n].klass == CLASS_CONTROL else state.DROP_QUEUE
        drop(net, port_no, n, full)
        return
    if verdict == queues.TRIM_LAST:
        _swap(net.frame[n], net.frame[queues.replace_last(net.frame, port, n)])
    _trim(net, port, port_no, n)


@inlined
def _swap(a, b):
    """Exchange the contents of two records of one class and port, except for their links."""
    room, length, trimmable = int(a.room), int(a.length), int(a.trimmable)
    a.room = b.room
    a.trimmable = b.trimmable
    resize(a, int(b.length))
    b.room = room
    resize(b, length)
    b.trimmable = trimmable


@inlined
def enqueue(net, port_no, n, now):
    """A frame arrives at an egress port: send it if the port is idle, else queue it in its
    class.
    """
    port = net.port[port_no]
    f = net.frame[n]
    f.port = port_no
    if port.up == 0:
        drop(net, port_no, n, state.DROP_LINK)
        return
    if port.armed == 0 and port.free_at <= now:
        transmit(net, port, port_no, n, now)
        return
    verdict = queues.admit(net.frame, port, port, net.stream, port_no, n)
    if verdict == queues.QUEUE:
        queues.append(net.frame, port, n)
    else:
        _refuse(net, port, port_no, n, verdict)
    _arm(net, port, port_no)


@inlined
def _arm(net, port, port_no):
    """Schedule the end of the port's transmission."""
    if port.armed == 0:
        port.armed = 1
        heap.push(net.ctl[0], net.heap, port.free_at, net.frame.shape[0] + port_no)


@inlined
def on_free(net, port_no, now):
    """A port has finished sending: send the next frame; schedule its end if more wait."""
    port = net.port[port_no]
    port.armed = 0
    if port.up == 0:
        return
    n = _dequeue(net, port, port_no)
    if n >= 0:
        transmit(net, port, port_no, n, now)
        if queues.holds_any(port):
            _arm(net, port, port_no)


@inner
def flush(net, port_no):
    """Drop everything queued at a port."""
    port = net.port[port_no]
    while queues.holds_any(port):
        drop(net, port_no, queues.take(net.frame, port), state.DROP_LINK)
