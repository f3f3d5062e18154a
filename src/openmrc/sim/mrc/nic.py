"""A NIC: one port per plane, each with a round robin over the QPs that may send; arriving packets
go to the engine.

Control packets queue at the port. Data is pulled: when a port is free and has no control packet,
the next QP in its round robin is asked for a packet, so each packet uses everything that its QP has
learned until the packet leaves.
"""

from __future__ import annotations

from openmrc.engine import endpoint, verdict
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import inlined, inner
from openmrc.sim.net import events, link, messages, rounds, switch
from openmrc.sim.net import state as ss


@inlined
def make_ready(net, st, qi):
    """Append a QP that may send to the round robin of each port that it may use."""
    q = st.qp[qi]
    missing = q.planes_ok & ~net.qp[qi].ready
    if missing != 0 and endpoint.may_send(st, q):
        _stand_in_rounds(net, int(q.nic), qi, missing)


@inner
def _stand_in_rounds(net, nic, qi, missing):
    """Append a QP to the round robin of these ports of its NIC."""
    n_planes = int(net.ctl[0].n_planes)
    for plane in range(n_planes):
        if (missing >> plane) & 1:
            rounds.stand_behind(net, nic * n_planes + plane, plane, qi)


@inlined
def _fill_hop(net, n, p, qp, flow):
    """Fill the fields that switches read from packet record `p`, index `n`."""
    ctl = net.ctl[0]
    ev = int(p.ev)
    if ctl.hashed:
        if ctl.hashes_tuple:
            flow = switch.tuple_flow(int(p.src), int(p.dst), int(p.plane))
        ev = switch.hashed_ev(flow, ev)
    klass = ctl.class_of[p.klass]
    trimmable = (
        1 if ctl.trim and p.klass != pk.CLASS_CONTROL and not p.flag_bits & pk.NO_TRIM else 0
    )
    link.fill_hop(net, n, p, qp, ev, klass, trimmable)
    if ctl.by_usid:
        switch.write_carrier(net, n, p)


@inlined
def qp_index(net, qpn):
    """Index of the QP with this number."""
    ctl = net.ctl[0]
    return ((qpn - ctl.qpn_offset) * ctl.qpn_inverse) & 0xFF_FFFF


@inlined
def send_out(net, st, now):
    """Queue the engine's control packets at their ports."""
    ctl = net.ctl[0]
    for i in range(st.count[es.OUT]):
        p = st.out[i]
        n = link.new_packet(net)
        net.packet[n] = p
        if p.dst_qpn == pk.ENDPOINT_QPN:
            _fill_hop(net, n, p, -1, int(p.src))
        else:
            qp = qp_index(net, int(p.dst_qpn))
            _fill_hop(net, n, p, qp, int(net.qp[qp].flow))
        plane = int(p.plane)
        port_no = p.src * ctl.n_planes + plane
        link.enqueue(net, port_no, n, now)
        port = net.port[port_no]
        if port.free_at > now:
            link.close_while_busy(net, net.nic[p.src], port, port_no, plane)
    st.count[es.OUT] = 0


@inner
def pump(net, st, nic, now):
    """Give every free port a packet, QP by QP in the port's round robin.

    If several are free the QP uses the one whose turn it is (row 13): no port waits.
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
    """Send the next packet of a QP, if it still may; then append it to the round robin again."""
    ctl = net.ctl[0]
    q = st.qp[qi]
    n = int(ctl.free_head)
    p = net.packet[n]
    plane = endpoint.next_packet(st, q, int(ln.free_ports), now, p)
    if plane < 0:  # its window has closed, or it no longer uses this plane
        return
    link.new_packet(net)
    lq = net.qp[qi]
    _fill_hop(net, n, p, int(lq.other), int(lq.flow))
    ctl.data_packets += 1
    seq = st.count[es.SENT_SEQ]
    net.hop[n].tag = seq & ss.TAG_MASK
    if p.flag_bits & pk.RTX:
        entry = messages.entry_of(st, q, st.count[es.SENT_MESSAGE])
        messages.note_retransmitted(net, entry, now)
    else:
        mask = int(lq.unit_mask)
        net.unit[lq.unit0 + (seq & mask)] = messages.unit_of(seq, mask, int(p.payload_len))
    port_no = q.nic * ctl.n_planes + plane
    port = net.port[port_no]
    link.transmit(net, port, port_no, n, now)
    link.close_while_busy(net, ln, port, port_no, plane)
    make_ready(net, st, qi)
    plan_qp(net, st, qi)


@inlined
def plan_qp(net, st, qi):
    """Make sure that the QP's next deadline is in the heap."""
    events.plan(net, net.qp[qi], endpoint.next_deadline(st, qi), ss.AT_QP, qi)


@inner
def plan_nic(net, st, nic):
    """The same for the endpoint's own deadline."""
    events.plan(net, net.nic[nic], endpoint.next_nic_deadline(st, nic), ss.AT_NIC, nic)


@inlined
def settle(net, st, qi, nic, now):
    """After a call of the engine for a QP: send its packets, collect completions, update its place
    in the round robin and its timer.
    """
    send_out(net, st, now)
    messages.collect(net, st, now)
    if st.qp[qi].state != es.RTS:
        messages.fail_qp(net, st, qi)
    make_ready(net, st, qi)
    plan_qp(net, st, qi)
    pump(net, st, nic, now)


@inlined
def _place(net, st, h, p, now):
    """Place payload: check that it is the unit that the sender read from its memory, and that it
    arrives for the first time.
    """
    length = st.count[es.PLACED_LENGTH]
    offset = st.count[es.PLACED_OFFSET]
    sender = net.qp[net.qp[h.qp].other]
    seq = st.count[es.PLACED_SEQ]
    mask = int(sender.unit_mask)
    unit = sender.unit0 + (seq & mask)
    is_right = (
        seq & ss.TAG_MASK == h.tag
        and offset == seq * net.ctl[0].pmtu
        and net.unit[unit] == messages.unit_of(seq, mask, length)
    )
    if is_right:
        net.unit[unit] = 0
    messages.note_placed(net, length, is_right, now)
    if messages.rates_are_kept(net):
        q = st.qp[net.qp[h.qp].other]
        number = endpoint.message_of(q, p.msn)
        messages.note_rate(net, messages.entry_of(st, q, number), length, now)


@inlined
def receive(net, st, n, nic, now):
    """A packet has arrived at its NIC."""
    h = net.hop[n]
    if h.marks & ss.DAMAGED:
        link.drop_damaged(net, n)
        return
    p = net.packet[n]
    p.flag_bits |= h.marks
    net.ctl[0].delivered += 1
    qi = int(h.qp)
    said = endpoint.on_packet(st, nic, qi, p, now)
    if said == verdict.PLACED:
        _place(net, st, h, p, now)
    elif qi < 0:
        after_ports(net, st, nic, now)
    link.free_packet(net, n)
    if qi >= 0:
        settle(net, st, qi, nic, now)


@inner
def after_ports(net, st, nic, now):
    """After a change of port states: update all QPs of a NIC."""
    send_out(net, st, now)
    plan_nic(net, st, nic)
    n = st.nic[nic]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        make_ready(net, st, qi)
        plan_qp(net, st, qi)
    pump(net, st, nic, now)


@inlined
def on_port_free(net, st, port_no, now):
    """A NIC port has finished sending: a waiting control packet is next, else the next QP's
    packet.
    """
    port = net.port[port_no]
    port.armed = 0
    nic, plane = rounds.owner(net, port_no)
    ln = net.nic[nic]
    n = link.dequeue(net, port, port_no)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        link.arm(net, port, port_no)
        return
    if (ln.up_ports >> plane) & 1:
        ln.free_ports |= 1 << plane
        pump(net, st, nic, now)


@inner
def on_qp_timer(net, st, qi, now):
    """A QP's entry in the heap is due; its deadline may have moved to a later time."""
    if endpoint.next_deadline(st, qi) <= now:
        endpoint.on_deadline(st, qi, now)
    settle(net, st, qi, int(st.qp[qi].nic), now)


@inner
def on_nic_timer(net, st, nic, now):
    """The same for an endpoint."""
    if endpoint.next_nic_deadline(st, nic) <= now:
        endpoint.on_nic_deadline(st, nic, now)
    after_ports(net, st, nic, now)
