"""Egress ports: three classes in strict priority, exact service, ECN, trimming, limits, health
(reference 6).

A packet that finds its port idle leaves at once: one event, its arrival. Only a port that others
wait at has a second one, the end of its transmission. A mark is made when a packet leaves the
queue, by what it leaves behind.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.packet import CE, CLASS_CONTROL, CLASS_DATA, TRIMMED, TRIMMED_LASTHOP
from openmrc.jit import inlined, inner
from openmrc.sim import events
from openmrc.sim.state import BIN_LOST, BIN_TRIMMED, DAMAGED, UNDAMAGED

BITS_PS = 8_000_000_000_000  # bits per byte x picoseconds per second


@inlined
def new_packet(net):
    """An index for a packet; `room_left` says whether there are any."""
    ctl = net.ctl[0]
    n = int(ctl.free_head)
    ctl.free_head = net.hop[n].next
    ctl.n_free -= 1
    return n


@inlined
def free_packet(net, n):
    """Give an index back."""
    ctl = net.ctl[0]
    net.hop[n].next = ctl.free_head
    ctl.free_head = n
    ctl.n_free += 1


@inner
def drop_by_fault(net, n):
    """A packet is lost to a fault."""
    net.ctl[0].dropped_fault += 1
    _lose(net, n)


@inner
def drop_damaged(net, n):
    """A NIC discards a packet whose iCRC does not fit."""
    net.ctl[0].dropped_corrupt += 1
    _lose(net, n)


@inner
def _lose(net, n):
    ctl = net.ctl[0]
    if ctl.first_fault_drop_at < 0:
        ctl.first_fault_drop_at = ctl.now
    net.tally[net.hop[n].port].lost += 1
    net.timeline[ctl.now // ctl.bin_ps, BIN_LOST] += 1
    free_packet(net, n)


@inner
def drop_by_queue(net, n, control):
    """A packet finds no room in the queue of its class; HOP.port says where."""
    ctl = net.ctl[0]
    if control:
        ctl.dropped_control += 1
    else:
        ctl.dropped_queue += 1
    net.tally[net.hop[n].port].lost += 1
    net.timeline[ctl.now // ctl.bin_ps, BIN_LOST] += 1
    free_packet(net, n)


@inlined
def transmit(net, port, port_no, n, now):
    """Put a packet on the wire: it arrives after its last bit and the way (store and forward)."""
    ctl = net.ctl[0]
    h = net.hop[n]
    kind = net.port_kind[port.kind]
    port.free_at = now + int(h.frame_bytes) * BITS_PS // kind.rate_bps
    port.sent_bytes += h.frame_bytes
    ctl.traversals += 1
    h.port = port_no
    h.to = port.peer
    if port.faulty and _lost(net, port, port_no, h):
        drop_by_fault(net, n)
        return
    if port.tapped:
        _note(net, n, h, now)
    events.schedule_packet(net, n, h, port.free_at + kind.delay_ps)


@inner
def _note(net, n, h, now):
    """A capture wants what crosses this link."""
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
def _lost(net, port, port_no, h):
    """Whether a faulty port loses the packet that it sends; it may also damage it.

    What is damaged is what the iCRC covers. A trimmed packet has none (MRC 2.13).
    """
    if port.up == 0:
        return True
    health = net.health[port_no]
    if health.loss > 0:
        chance = health.loss_again if health.losing else health.loss
        health.losing = 1 if _happens(net, chance) else 0
        if health.losing:
            return True
    if health.corrupt > 0 and not h.marks & (TRIMMED | TRIMMED_LASTHOP):
        h.marks |= DAMAGED if _happens(net, health.corrupt) else 0
    return False


@inlined
def _happens(net, chance):
    """Draw for a fault: true with probability `chance` / 2^31."""
    return bits.draw(net.stream, 1) >> 1 < chance


@inner
def went_down_under(net, h, now):
    """Whether the link that a packet comes from went down while the packet was under way."""
    kind = net.port_kind[net.port[h.port].kind]
    return now - kind.delay_ps <= net.health[h.port].cut_until


@inlined
def arm(net, port, port_no):
    """Ask for an event when the port's transmission is over."""
    if port.armed == 0:
        port.armed = 1
        events.schedule_port(net, port_no, port)


@inlined
def append(net, port, klass, n):
    """Put a packet at the end of a port's queue."""
    net.hop[n].next = -1
    if port.head[klass] < 0:
        port.head[klass] = n
    else:
        net.hop[port.tail[klass]].next = n
    port.tail[klass] = n


@inlined
def dequeue(net, port):
    """Take the next packet by priority from a port that has one queued, marking it if the queue is
    long; -1 if none.
    """
    klass = 0
    while port.head[klass] < 0:
        klass += 1
        if klass > CLASS_DATA:
            return -1
    n = int(port.head[klass])
    h = net.hop[n]
    port.head[klass] = h.next
    if klass == CLASS_CONTROL:
        port.control_bytes -= h.frame_bytes
    else:
        port.data_bytes -= h.frame_bytes
        kind = net.port_kind[port.kind]
        if port.data_bytes > kind.ecn_low:
            mark(net, port.data_bytes - kind.ecn_low, kind.ecn_high - kind.ecn_low, h)
    return n


@inner
def mark(net, over, span, h):
    """Random marking between the two thresholds, always above the upper one."""
    if over >= span or bits.draw_below(net.stream, 0, span) < over:
        if h.marks & CE == 0:
            net.ctl[0].ecn_marked += 1
        h.marks |= CE


@inner
def _trim(net, port, n):
    """Cut a packet to its header and give it to the control class."""
    ctl = net.ctl[0]
    h = net.hop[n]
    h.frame_bytes = ctl.trimmed_bytes
    h.klass = CLASS_CONTROL
    h.trimmable = 0
    h.tag = -1
    kind = net.port_kind[port.kind]
    h.marks &= UNDAMAGED  # the iCRC goes with the payload
    h.marks |= TRIMMED_LASTHOP if kind.last_hop else TRIMMED
    ctl.trimmed += 1
    net.tally[h.port].trimmed += 1
    net.timeline[ctl.now // ctl.bin_ps, BIN_TRIMMED] += 1
    if port.control_bytes + h.frame_bytes > kind.control_limit:
        drop_by_queue(net, n, True)
    else:
        port.control_bytes += h.frame_bytes
        append(net, port, CLASS_CONTROL, n)


@inner
def _swap(net, a, b):
    """Exchange what two packet indices stand for, their links apart."""
    spare = net.hop.shape[0] - 1  # the last index is never given out
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
def _overflow(net, port, n):
    """The data queue is full: trim the arriving packet or the last queued one, by a coin; drop what
    may not be cut.
    """
    h = net.hop[n]
    last = int(port.tail[CLASS_DATA]) if port.head[CLASS_DATA] >= 0 else -1
    if last >= 0 and h.klass == CLASS_DATA and net.hop[last].trimmable:
        grown = h.frame_bytes - net.hop[last].frame_bytes
        fits = port.data_bytes + grown <= net.port_kind[port.kind].limit_bytes
        if fits and bits.draw_below(net.stream, 0, 2) == 0:
            port.data_bytes += grown
            _swap(net, n, last)
            h = net.hop[n]
    if h.trimmable:
        _trim(net, port, n)
    else:
        drop_by_queue(net, n, False)


@inlined
def enqueue(net, port_no, n, now):
    """A packet comes to an egress port: on the wire if it is idle, else into its class's queue."""
    port = net.port[port_no]
    h = net.hop[n]
    if port.armed == 0 and port.free_at <= now and port.up:
        transmit(net, port, port_no, n, now)
        return
    h.port = port_no
    if port.up == 0:
        drop_by_fault(net, n)
        return
    klass = int(h.klass)
    if klass == CLASS_CONTROL:
        if port.control_bytes + h.frame_bytes > net.port_kind[port.kind].control_limit:
            drop_by_queue(net, n, True)
        else:
            port.control_bytes += h.frame_bytes
            append(net, port, klass, n)
    elif port.data_bytes + h.frame_bytes > net.port_kind[port.kind].limit_bytes:
        _overflow(net, port, n)
    else:
        port.data_bytes += h.frame_bytes
        append(net, port, klass, n)
    arm(net, port, port_no)


@inlined
def on_switch_port_free(net, port_no, now):
    """A switch port's transmission is over: send the next; an event for its end if more wait."""
    port = net.port[port_no]
    port.armed = 0
    if port.up == 0:
        return
    n = dequeue(net, port)
    if n >= 0:
        transmit(net, port, port_no, n, now)
        if port.head[0] >= 0 or port.head[1] >= 0 or port.head[2] >= 0:
            arm(net, port, port_no)


@inner
def flush(net, port):
    """Lose everything queued at a port."""
    for klass in range(CLASS_DATA + 1):
        n = int(port.head[klass])
        while n >= 0:
            following = int(net.hop[n].next)
            drop_by_fault(net, n)
            n = following
        port.head[klass] = -1
        port.tail[klass] = -1
    port.data_bytes = 0
    port.control_bytes = 0
