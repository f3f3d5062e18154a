"""A NIC: one port per plane, each with a round robin over the QPs that may send; what arrives goes
to the engine.

Control packets queue at the port. Data is pulled: when a port is free and no control packet waits
there, the next QP of its round is asked for a packet, so nothing a QP learns comes too late for a
packet that has not left.
"""

from __future__ import annotations

from openmrc.engine import loss, ports, requester, responder
from openmrc.engine.packet import (
    ACKNOWLEDGE,
    CLASS_CONTROL,
    CLASS_DATA,
    CLASS_RETRANSMIT,
    ENDPOINT_QPN,
    ENDPOINT_REQUEST,
    LAST_DATA,
    NACK,
    NO_TRIM,
    PROBE,
    RTX,
    SACK,
)
from openmrc.engine.state import NEVER, OUT, PLACED_LENGTH, PLACED_OFFSET, RTS, unwrap
from openmrc.jit import inlined, inner
from openmrc.sim import events, link, messages, rounds, switch
from openmrc.sim.state import AT_NIC, AT_QP, BIN_GOODPUT, BIN_RETRANSMITTED, DAMAGED

TAG_MASK = 0x7FFF_FFFF  # of a sequence number in HOP.tag


@inlined
def make_ready(net, st, qi):
    """Put a QP that may send at the end of the round of each port that it may use."""
    q = st.qp[qi]
    missing = q.planes_ok & ~net.qp[qi].ready
    if missing != 0 and requester.may_send(st, q):
        _stand_in_rounds(net, int(q.nic), qi, missing)


@inner
def _stand_in_rounds(net, nic, qi, missing):
    """Put a QP at the end of the rounds of these ports of its NIC."""
    n_planes = int(net.ctl[0].n_planes)
    for plane in range(n_planes):
        if (missing >> plane) & 1:
            rounds.stand_behind(net, nic * n_planes + plane, plane, qi)


@inlined
def _dress(net, n, p, qp, flow):
    """What the switches look at of packet record `p`, index `n`."""
    ctl = net.ctl[0]
    h = net.hop[n]
    h.frame_bytes = ctl.header_bytes[p.opcode] + p.payload_len
    h.dst = p.dst
    h.qp = qp
    h.tag = -1
    h.ev = int(p.ev)
    if ctl.hashed:
        if ctl.hashes_tuple:
            flow = switch.tuple_flow(int(p.src), int(p.dst), int(p.plane))
        h.ev = switch.hashed_ev(flow, int(p.ev))
    h.klass = CLASS_DATA if ctl.one_data_class and p.klass == CLASS_RETRANSMIT else p.klass
    h.marks = 0
    h.trimmable = 1 if ctl.trim and p.klass != CLASS_CONTROL and not p.flag_bits & NO_TRIM else 0
    if ctl.by_usid:
        switch.spell(net, n, p)
    ctl.injected += 1


@inlined
def _close_while_busy(net, ln, port, port_no, plane):
    """A NIC's port that transmits is not free, and its end is an event: then the next packet is
    pulled.
    """
    ln.free_ports &= ~(1 << plane)
    link.arm(net, port, port_no)


@inlined
def qp_index(net, qpn):
    """Index of the QP with this number."""
    ctl = net.ctl[0]
    return ((qpn - ctl.qpn_offset) * ctl.qpn_inverse) & 0xFF_FFFF


@inlined
def send_out(net, st, now):
    """Queue at their ports what the engine wants sent."""
    ctl = net.ctl[0]
    for i in range(st.count[OUT]):
        p = st.out[i]
        n = link.new_packet(net)
        net.packet[n] = p
        if p.dst_qpn == ENDPOINT_QPN:
            _dress(net, n, p, -1, int(p.src))
        else:
            qp = qp_index(net, int(p.dst_qpn))
            _dress(net, n, p, qp, int(net.qp[qp].flow))
        plane = int(p.plane)
        port_no = p.src * ctl.n_planes + plane
        link.enqueue(net, port_no, n, now)
        port = net.port[port_no]
        if port.free_at > now:
            _close_while_busy(net, net.nic[p.src], port, port_no, plane)
    st.count[OUT] = 0


@inner
def pump(net, st, nic, now):
    """Give every free port a packet, QP by QP in the turn of that port.

    Where several are free the QP takes the one whose turn it is with it (row 13): nobody waits.
    """
    ctl = net.ctl[0]
    ln = net.nic[nic]
    if ln.free_ports == 0:
        return
    for own in range(ctl.n_planes):
        round_no = nic * ctl.n_planes + own
        while (ln.free_ports >> own) & 1 and net.round[round_no, rounds.FIRST] >= 0:
            qi = rounds.step_forward(net, round_no, own)
            _send_data(net, st, ln, qi, now)


@inlined
def _send_data(net, st, ln, qi, now):
    """Send the next packet of a QP, if it still may; then it stands behind all others."""
    ctl = net.ctl[0]
    q = st.qp[qi]
    n = int(ctl.free_head)
    p = net.packet[n]
    plane = requester.next_packet(st, q, int(ln.free_ports), now, p)
    if plane < 0:  # its window has closed, or this plane is no longer of use to it
        return
    link.new_packet(net)
    lq = net.qp[qi]
    _dress(net, n, p, int(lq.other), int(lq.flow))
    ctl.data_packets += 1
    seq = unwrap(int(p.psn), q.first_psn, q.una)
    net.hop[n].tag = seq & TAG_MASK
    if p.flag_bits & RTX:
        number = q.msg_done + ((p.msn - q.msg_done) & 0xFFFF)
        net.message[messages.entry_of(st, q, number)].retransmitted += 1
        ctl.retransmitted += 1
        net.timeline[now // ctl.bin_ps, BIN_RETRANSMITTED] += 1
    else:
        mask = int(lq.unit_mask)
        net.unit[lq.unit0 + (seq & mask)] = messages.unit_of(seq, mask, int(p.payload_len))
    port_no = q.nic * ctl.n_planes + plane
    port = net.port[port_no]
    link.transmit(net, port, port_no, n, now)
    _close_while_busy(net, ln, port, port_no, plane)
    make_ready(net, st, qi)
    plan_qp(net, st, qi)


@inlined
def plan_qp(net, st, qi):
    """See to it that the QP's next deadline is in the heap."""
    at = requester.next_deadline(st.qp[qi])
    lq = net.qp[qi]
    if at < lq.timer_at:
        at = max(at, net.ctl[0].now)
        lq.timer_at = at
        events.push(net, at, AT_QP, qi)


@inner
def plan_nic(net, st, nic):
    """The same for the endpoint's own deadline."""
    at = st.nic[nic].deadline
    ln = net.nic[nic]
    if at < ln.timer_at:
        at = max(at, net.ctl[0].now)
        ln.timer_at = at
        events.push(net, at, AT_NIC, nic)


@inner
def settle(net, st, qi, nic, now):
    """After the engine was called for a QP: what it wants sent, what it completed, its turn and its
    timer.
    """
    send_out(net, st, now)
    messages.collect(net, st, now)
    if st.qp[qi].state != RTS:
        messages.fail_qp(net, st, qi)
    make_ready(net, st, qi)
    plan_qp(net, st, qi)
    pump(net, st, nic, now)


@inlined
def _place(net, st, h, now):
    """Payload is placed: exactly the unit that the sender took from its memory, and for the first
    time.
    """
    ctl = net.ctl[0]
    length = st.count[PLACED_LENGTH]
    offset = st.count[PLACED_OFFSET]
    sender = net.qp[net.qp[h.qp].other]
    seq = offset // ctl.pmtu
    mask = int(sender.unit_mask)
    unit = sender.unit0 + (seq & mask)
    if (
        seq & TAG_MASK == h.tag
        and offset % ctl.pmtu == 0
        and net.unit[unit] == messages.unit_of(seq, mask, length)
    ):
        net.unit[unit] = 0
        ctl.verified_bytes += length
    else:
        ctl.wrong_bytes += length
    net.timeline[now // ctl.bin_ps, BIN_GOODPUT] += length


@inlined
def receive(net, st, n, nic, now):
    """A packet has come to its NIC."""
    h = net.hop[n]
    if h.marks & DAMAGED:
        link.drop_damaged(net, n)
        return
    p = net.packet[n]
    p.flag_bits |= h.marks
    net.ctl[0].delivered += 1
    opcode = p.opcode
    qi = int(h.qp)
    if opcode <= LAST_DATA:
        if responder.on_data(st, qi, p, now) == responder.PLACED:
            _place(net, st, h, now)
    elif opcode == SACK:
        requester.on_sack(st, qi, p, now)
    elif opcode == NACK:
        requester.on_nack(st, qi, p, now)
    elif opcode == ACKNOWLEDGE:
        requester.on_ack(st, qi, p, now)
    elif opcode == PROBE:
        responder.on_probe(st, qi, p, now)
    else:
        _on_endpoint_packet(net, st, nic, p, now)
    link.free_packet(net, n)
    if qi >= 0:
        settle(net, st, qi, nic, now)


@inner
def _on_endpoint_packet(net, st, nic, p, now):
    """An endpoint request or response may change what every QP of the NIC may do."""
    if p.opcode == ENDPOINT_REQUEST:
        ports.on_request(st, nic, p, now)
    else:
        ports.on_response(st, nic, p, now)
    after_ports(net, st, nic, now)


@inner
def after_ports(net, st, nic, now):
    """After a change of port states: all QPs of a NIC."""
    send_out(net, st, now)
    plan_nic(net, st, nic)
    n = st.nic[nic]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        make_ready(net, st, qi)
        plan_qp(net, st, qi)
    pump(net, st, nic, now)


@inlined
def on_port_free(net, st, port_no, now):
    """A NIC port's transmission is over: control packets that wait, else the next QP's packet."""
    ctl = net.ctl[0]
    port = net.port[port_no]
    port.armed = 0
    nic = port_no // ctl.n_planes
    plane = port_no - nic * ctl.n_planes
    ln = net.nic[nic]
    n = link.dequeue(net, port)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        link.arm(net, port, port_no)
        return
    if (ln.up_ports >> plane) & 1:
        ln.free_ports |= 1 << plane
        pump(net, st, nic, now)


@inner
def on_qp_timer(net, st, qi, at, now):
    """An entry of the heap for a QP has come up; it may be out of date."""
    lq = net.qp[qi]
    if lq.timer_at != at:
        return
    lq.timer_at = NEVER
    q = st.qp[qi]
    if requester.next_deadline(q) <= now:
        loss.on_deadline(st, q, now)
        ports.on_receiver_deadline(st, qi, now)
    settle(net, st, qi, int(q.nic), now)


@inner
def on_nic_timer(net, st, nic, at, now):
    """The same for an endpoint."""
    ln = net.nic[nic]
    if ln.timer_at != at:
        return
    ln.timer_at = NEVER
    if st.nic[nic].deadline <= now:
        ports.on_deadline(st, nic, now)
    after_ports(net, st, nic, now)
