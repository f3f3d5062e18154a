"""Egress ports: three classes in strict priority, exact service times, ECN, trimming, limits,
health (MRC 6.3 to 6.5).

A packet that finds its port idle leaves at once: one event, its arrival. Only a port with waiting
packets has a second one, the end of its transmission. A packet is marked when it leaves the queue,
by the length of the queue behind it.

With cut-through, a packet arrives at a switch with its header, and counts in full from then on; at
a NIC it arrives with its last bit. It is not forwarded before its last bit if the port would run
out of data, or if a fault begins or ends before that: no packet is at two places at such a moment.
"""

from __future__ import annotations

from openmrc.engine import packet as pk
from openmrc.engine.packet import CE, CLASS_CONTROL
from openmrc.fabric import queues
from openmrc.jit import inlined, inner
from openmrc.jit.shared import add
from openmrc.sim.net import balance, cross, events, health, switch
from openmrc.sim.net.state import BIN_LOST, BIN_TRIMMED, REST_PS_MAX, TALLY, UNDAMAGED
from openmrc.units import PS_BITS

LOST, GONE = (int(dict(TALLY.fields or {})[name][1]) for name in ("lost", "gone"))  # offsets


@inlined
def new_packet(net):
    """Take an index for a packet; `room_left` says whether there are any."""
    return queues.take_free(net.ctl[0], net.hop)


@inlined
def free_packet(net, n):
    """Return an index to the free list."""
    queues.give_back(net.ctl[0], net.hop, n)


@inlined
def fill_hop(net, n, p, qp, ev, klass, trimmable):
    """Fill the fields that switches read from packet record `p`, index `n`, which a NIC is about to
    send.
    """
    ctl = net.ctl[0]
    h = net.hop[n]
    h.frame_bytes = ctl.header_bytes[p.opcode] + p.payload_len
    h.dst = p.dst
    h.qp = qp
    h.tag = -1
    h.ev = ev
    h.klass = klass
    h.marks = 0
    h.trimmable = trimmable
    ctl.injected += 1


@inner
def drop_by_fault(net, n):
    """Drop a packet because of a fault."""
    net.ctl[0].dropped_fault += 1
    _lose_to_fault(net, n)


@inner
def lose_on_way(net, n):
    """Drop a packet that a port sent, because of a fault before anything counts it at the other end
    of its link; HOP.port says which link.
    """
    add(net.tally, net.hop[n].port, GONE)  # a port of another shard, if it came from there
    drop_by_fault(net, n)


@inner
def drop_damaged(net, n):
    """Drop a packet at a NIC because its iCRC is wrong."""
    net.ctl[0].dropped_corrupt += 1
    net.tally[net.hop[n].port].damaged += 1
    _lose_to_fault(net, n)


@inlined
def _lose_to_fault(net, n):
    ctl = net.ctl[0]
    if ctl.first_fault_drop_at < 0:
        ctl.first_fault_drop_at = ctl.now
    _count_lost(net, n)


@inner
def _count_lost(net, n):
    ctl = net.ctl[0]
    add(net.tally, net.hop[n].port, LOST)  # a port of another shard, if it came from there
    net.timeline[ctl.now // ctl.bin_ps, BIN_LOST] += 1
    free_packet(net, n)


@inner
def drop_by_queue(net, n, control):
    """Drop a packet for which its class's queue has no room; HOP.port says where."""
    if control:
        net.ctl[0].dropped_control += 1
    else:
        net.ctl[0].dropped_queue += 1
    net.tally[net.hop[n].port].dropped += 1
    _count_lost(net, n)


@inlined
def _lasts_ps(kind, frame_bytes):
    """How long a transmission at a port of this kind lasts, ps; without a division, which takes
    longer than all else here, at rates at which a byte takes whole picoseconds.
    """
    if kind.byte_ps > 0:
        return frame_bytes * kind.byte_ps
    return frame_bytes * PS_BITS // kind.rate_bps


@inlined
def transmit(net, port, port_no, n, now):
    """Put a packet on the wire: it arrives after its last bit, or its header, and the link's
    delay.
    """
    ctl = net.ctl[0]
    h = net.hop[n]
    kind = net.port_kind[port.kind]
    port.free_at = now + _lasts_ps(kind, int(h.frame_bytes))
    port.sent_bytes += h.frame_bytes
    port.sent_packets += 1
    ctl.traversals += 1
    h.port = port_no
    h.to = port.peer
    if ctl.foretold:  # at a NIC it goes no further, and no port that is found here matters
        far = net.switch[max(port.peer, 0)]
        h.next = switch.egress(ctl, far, int(h.dst), int(h.ev))
    arrives_at = port.free_at + kind.delay_ps
    if port.faulty:
        if health.loses(net, port, port_no, h):
            lose_on_way(net, n)
            return
        arrives_at += health.late_ps(net, port_no, arrives_at)
    if port.tapped:
        _note(net, n, h, now)
    if ctl.head_bytes > 0:
        arrives_at -= _rest_ps(ctl, h, port.free_at - now, kind)
    if port.abroad:
        cross.leave(net, port.abroad - 1, n, arrives_at)
        return
    events.schedule_packet(net, n, h, arrives_at)


@inner
def _rest_ps(ctl, h, lasts_ps, kind):
    """The rest of a transmission of this length after the header, ps; 0 towards a NIC, which
    receives packets whole. The packet's record keeps it.
    """
    rest = 0
    if h.to >= 0 and h.frame_bytes > ctl.head_bytes:
        rest = lasts_ps - _lasts_ps(kind, ctl.head_bytes)
        if rest > REST_PS_MAX:
            rest = 0
    h.rest_ps = rest
    h.stored = 0
    return rest


@inner
def waits_for_rest(net, port_no, n, h, now):
    """Whether a packet whose header has arrived at a switch waits for the rest: its port would run
    out of data, or a fault changes something before. It then arrives again.
    """
    rest = int(h.rest_ps)
    kind = net.port_kind[net.port[port_no].kind]
    lasts = _lasts_ps(kind, int(h.frame_bytes))
    if rest <= lasts and now + rest < net.ctl[0].fault_at:
        return False
    h.rest_ps = 0
    h.stored = 1
    h.next = port_no
    events.schedule_packet(net, n, h, now + rest)
    return True


@inner
def _note(net, n, h, now):
    """Record a packet for the capture of this link."""
    ctl = net.ctl[0]
    t = net.tap[ctl.tap_n]
    t.at = now
    t.port = h.port
    t.qp = h.qp
    t.frame_bytes = h.frame_bytes
    t.marks = h.marks
    net.tap_packet[ctl.tap_n] = net.packet[n]
    ctl.tap_n += 1


@inner
def went_down_under(net, h, now):
    """Whether the link went down while the packet was in flight on it."""
    kind = net.port_kind[net.port[h.port].kind]
    return now + int(h.rest_ps) - kind.delay_ps <= net.health[h.port].cut_until


@inlined
def arm(net, port, port_no):
    """Schedule the end of the port's transmission."""
    if port.armed == 0:
        port.armed = 1
        events.schedule_port(net, port_no, port)


@inlined
def close_while_busy(net, ln, port, port_no, plane):
    """Mark a NIC's port as busy and schedule the end of its transmission, when the next packet is
    pulled.
    """
    ln.free_ports &= ~(1 << plane)
    arm(net, port, port_no)


@inlined
def dequeue(net, port, port_no):
    """Take the next packet by priority from a port that has one queued, marking it if the queue is
    long; -1 if none.
    """
    n = queues.take(net.hop, port)
    if n < 0 or net.hop[n].klass == CLASS_CONTROL:
        return n
    balance.note_load(net, port_no, port)
    if queues.marks(port, net.port_kind[port.kind], net.stream, port_no, 1.0):
        mark(net, net.hop[n], port_no)
    return n


@inlined
def mark(net, h, port_no):
    """Mark a packet with CE at a port, and count it unless it had the mark."""
    if h.marks & CE == 0:
        net.ctl[0].ecn_marked += 1
        net.tally[port_no].marked += 1
    h.marks |= CE


@inner
def _trim(net, port, port_no, n):
    """Trim a packet to its header and move it to the control class."""
    ctl = net.ctl[0]
    h = net.hop[n]
    h.frame_bytes = ctl.trimmed_bytes
    h.klass = CLASS_CONTROL
    h.trimmable = 0
    h.tag = -1
    kind = net.port_kind[port.kind]
    h.marks &= UNDAMAGED  # trimming removes the iCRC with the payload
    h.marks |= pk.TRIMMED_LASTHOP if kind.last_hop else pk.TRIMMED
    ctl.trimmed += 1
    net.tally[h.port].trimmed += 1
    net.timeline[ctl.now // ctl.bin_ps, BIN_TRIMMED] += 1
    if queues.admit(net.hop, port, kind, net.stream, port_no, n) == queues.QUEUE:
        queues.append(net.hop, port, n)
    else:
        drop_by_queue(net, n, True)


@inner
def _swap(net, a, b):
    """Exchange the contents of two packet indices, except for their links."""
    spare = net.hop.shape[0] - 1 - net.ctl[0].shard  # the last ones are never given out
    next_a = net.hop[a].next
    next_b = net.hop[b].next
    net.hop[spare] = net.hop[a]
    net.hop[a] = net.hop[b]
    net.hop[b] = net.hop[spare]
    net.hop[a].next = next_a
    net.hop[b].next = next_b
    net.packet[spare] = net.packet[a]
    net.packet[a] = net.packet[b]
    net.packet[b] = net.packet[spare]
    if net.ctl[0].by_usid:
        for i in range(net.carrier.shape[1]):
            of_a = net.carrier[a, i]
            net.carrier[a, i] = net.carrier[b, i]
            net.carrier[b, i] = of_a


@inner
def _refuse(net, port, port_no, n, verdict):
    """A packet finds its queue full: trim it or the last one queued, or drop it."""
    if verdict == queues.DROP:
        drop_by_queue(net, n, net.hop[n].klass == CLASS_CONTROL)
        return
    if verdict == queues.TRIM_LAST:
        _swap(net, n, queues.replace_last(net.hop, port, n))
    _trim(net, port, port_no, n)


@inlined
def enqueue(net, port_no, n, now):
    """A packet arrives at an egress port: send it if the port is idle, else queue it in its
    class.
    """
    port = net.port[port_no]
    h = net.hop[n]
    if port.armed == 0 and port.free_at <= now and port.up:
        transmit(net, port, port_no, n, now)
        return
    h.port = port_no
    if port.up == 0:
        drop_by_fault(net, n)
        return
    kind = net.port_kind[port.kind]
    verdict = queues.admit(net.hop, port, kind, net.stream, port_no, n)
    if verdict == queues.QUEUE:
        queues.append(net.hop, port, n)
    else:
        _refuse(net, port, port_no, n, verdict)
    balance.note_load(net, port_no, port)
    arm(net, port, port_no)


@inlined
def on_switch_port_free(net, port_no, now):
    """A switch port has finished sending: send the next packet; schedule its end if more wait."""
    port = net.port[port_no]
    port.armed = 0
    n = dequeue(net, port, port_no) if port.up else -1
    if n >= 0:
        transmit(net, port, port_no, n, now)
        if queues.holds_any(port):
            arm(net, port, port_no)


@inner
def flush(net, port):
    """Drop everything queued at a port."""
    while queues.holds_any(port):
        drop_by_fault(net, queues.take(net.hop, port))
