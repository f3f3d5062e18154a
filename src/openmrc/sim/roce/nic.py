"""A RoCE NIC: round robin over the QPs that may send; arriving packets go to requester or
responder.

As with MRC, control packets queue at the port and data is pulled: when a port is free and has no
control packet, the next ready QP is asked for a packet. A QP sends by one port of the bond at a
time; where switches balance, by any that is free: those with credit take turns.
"""

from __future__ import annotations

from openmrc.engine import state as es
from openmrc.engine.packet import CE, CLASS_CONTROL, CLASS_DATA
from openmrc.engine.state import RTS
from openmrc.jit import inlined, inner
from openmrc.jit.callref import call_int
from openmrc.sim.net import events, link, messages, rounds
from openmrc.sim.net.state import AT_QP, DAMAGED, TAG_MASK
from openmrc.sim.roce import dcqcn, ecmp, requester, responder, stripes
from openmrc.sim.roce import port as ports
from openmrc.sim.roce.state import AT_PACE
from openmrc.wire.roce.opcodes import ACKNOWLEDGE, AETH_ACK, AETH_NAK_SEQUENCE, CNP, LAST_DATA


@inlined
def make_ready(net, ro, qi, now):
    """Append a QP that may send to its NIC's round robin."""
    rq = ro.qp[qi]
    if net.qp[qi].ready == 0 and requester.may_send(ro, rq, now):
        rounds.stand_behind(net, int(rq.nic) * net.ctl[0].n_planes, 0, qi)


@inlined
def _take_plane(net, rq):
    """The port of the bond by which a QP sends next. Of several that are usable, one that is free,
    if any is.
    """
    if rq.planes == 0:
        return int(rq.plane)
    n_planes = int(net.ctl[0].n_planes)
    usable = int(rq.planes)
    free = usable & int(net.nic[rq.nic].free_ports)
    if free != 0:
        usable = free
    plane = int(rq.last_plane)
    for _ in range(n_planes):
        plane = plane + 1 if plane + 1 < n_planes else 0
        if (usable >> plane) & 1:
            break
    rq.last_plane = plane
    return plane


@inner
def send_control(net, st, ro, qi, psn, syndrome, now):
    """Send an ACK or NAK to the other end of a connection; without a syndrome, 0, a CNP."""
    ctl = net.ctl[0]
    rq = ro.qp[qi]
    plane = int(_take_plane(net, rq))
    if plane < 0:  # no port of the bond is usable: it is lost before it is a packet
        return
    n = link.new_packet(net)
    p = net.packet[n]
    p.opcode = ACKNOWLEDGE if syndrome else CNP
    p.psn = psn
    p.reason = syndrome
    p.msn = rq.msg_done  # for a responder: messages received
    p.payload_len = 0
    p.klass = CLASS_CONTROL
    p.src = rq.nic
    p.dst = rq.peer_nic
    p.dst_qpn = st.qp[qi].peer_qpn
    link.fill_hop(net, n, p, rq.other, rq.flow, CLASS_CONTROL, 0)
    port_no = int(rq.nic) * ctl.n_planes + plane
    ports.enqueue(net, ro, port_no, n, now)
    port = net.port[port_no]
    if port.free_at > now:
        link.close_while_busy(net, net.nic[rq.nic], port, port_no, plane)


@inner
def pump(net, st, ro, nic, now):
    """Give every free port a packet, QP by QP in the round robin."""
    ctl = net.ctl[0]
    ln = net.nic[nic]
    waiting = -1  # first QP of this round whose port was busy
    first = nic * ctl.n_planes  # one round robin for all ports: that of the first
    while ln.free_ports != 0 and net.round[first, rounds.FIRST] >= 0:
        qi = rounds.step_forward(net, first, 0)
        rq = ro.qp[qi]
        if not requester.may_send(ro, rq, now):
            plan_qp(net, ro, qi, now)
            continue
        plane = int(_take_plane(net, rq))
        if (ln.free_ports >> plane) & 1 == 0:
            make_ready(net, ro, qi, now)
            if waiting == qi:
                break
            if waiting < 0:
                waiting = qi
            continue
        waiting = -1
        high = int(rq.high)
        n = link.new_packet(net)
        p = net.packet[n]
        seq = requester.next_packet(net, st, ro, qi, now, p)
        link.fill_hop(net, n, p, rq.other, rq.flow, CLASS_DATA, 0)
        net.hop[n].tag = seq & TAG_MASK
        ctl.data_packets += 1
        if seq < high:
            messages.note_retransmitted(net, requester.part_of(st, rq, int(p.msn)).wr_id, now)
        port_no = nic * ctl.n_planes + plane
        port = net.port[port_no]
        requester.pace(ro, qi, int(net.hop[n].frame_bytes), now)
        link.transmit(net, port, port_no, n, now)
        link.close_while_busy(net, ln, port, port_no, plane)
        make_ready(net, ro, qi, now)
        plan_qp(net, ro, qi, now)


@inlined
def plan_qp(net, ro, qi, now):
    """Make sure that the QP's timer, and the time of its next packet, are in the heap."""
    rq = ro.qp[qi]
    if rq.paced_at > now and rq.pacing == 0 and requester.has_work(ro, rq):
        rq.pacing = 1
        events.push(net, max(requester.wake_at(ro, qi), now), AT_PACE, qi)
    events.plan(net, net.qp[qi], requester.next_deadline(ro, rq, now), AT_QP, qi)


@inner
def offer(net, st, ro, bundle, now):
    """Messages were posted to the QPs of a bundle: they may send."""
    b = ro.bundle[bundle]
    for qi in range(b.sender, b.sender + ro.c[0].qps):
        make_ready(net, ro, qi, now)
        plan_qp(net, ro, qi, now)


@inner
def post(net, st, ro, mi, now):
    """An entry of the workload is due: post its next message, or end a computation."""
    if net.message[mi].qp < 0:
        messages.end_computation(net, mi, now)
        return
    stripes.post(net, st, ro, mi, now)
    first = int(net.message[mi].qp)
    offer(net, st, ro, int(net.qp[first].region), now)
    pump(net, st, ro, int(ro.qp[first].nic), now)


@inner
def _settle(net, st, ro, qi, progress, now):
    """After a packet for a requester, or its timeout: completions, its round robin, its timer."""
    rq = ro.qp[qi]
    if progress:
        stripes.on_progress(net, st, ro, qi, now)
        if stripes.fill(net, st, ro, int(rq.bundle)):
            offer(net, st, ro, int(rq.bundle), now)
    if st.qp[qi].state != RTS:
        messages.lose_roster(net, net.qp[ro.bundle[rq.bundle].sender])
    make_ready(net, ro, qi, now)
    plan_qp(net, ro, qi, now)
    pump(net, st, ro, int(rq.nic), now)


@inlined
def place(net, st, ro, h, p, rq, seq, now):
    """Place payload: check that it is the unit that the sender read from its memory for this
    sequence.
    """
    length = int(p.payload_len)
    part = requester.part_of(st, rq, int(p.msn))
    pmtu = net.ctl[0].pmtu
    offset = (seq - part.first_seq) * pmtu
    is_right = (
        h.tag == seq & TAG_MASK
        and p.va == part.remote_va + offset
        and length == min(part.length - offset, pmtu)
    )
    messages.note_placed(net, length, is_right, now)
    if messages.rates_are_kept(net):
        messages.note_rate(net, part.wr_id, length, now)


@inlined
def notify(net, st, ro, h, qi, now):
    """A data packet has arrived: answer its mark with a CNP, if one is due."""
    if h.marks & CE and ro.c[0].paced and dcqcn.cnp_due(ro.notifier[qi], ro.rates[0], now):
        ro.c[0].cnps += 1
        send_control(net, st, ro, qi, 0, 0, now)


@inner
def _on_data(net, st, ro, n, qi, now):
    """A data packet has arrived at its responder."""
    h = net.hop[n]
    p = net.packet[n]
    rq = ro.qp[qi]
    what = responder.judge(rq, int(p.psn))
    ends = False
    notify(net, st, ro, h, qi, now)
    if what == responder.IN_ORDER:
        ends = responder.accept(st, rq, int(p.msn))
        place(net, st, ro, h, p, rq, rq.expected - 1, now)
        if ends:
            rq.msg_done += 1
            stripes.part_arrived(net, ro, int(rq.bundle), int(p.msn), now)
    do = responder.answer(ro, rq, what, ends)
    if do == responder.ACK:
        ro.c[0].acks += 1
        psn = es.psn_of(int(rq.first_psn), rq.expected - 1)
        send_control(net, st, ro, qi, psn, AETH_ACK, now)
    elif do == responder.NAK:
        ro.c[0].naks += 1
        psn = es.psn_of(int(rq.first_psn), rq.expected)
        send_control(net, st, ro, qi, psn, AETH_NAK_SEQUENCE, now)


@inlined
def receive(net, st, ro, n, now):
    """A packet has arrived at its NIC."""
    h = net.hop[n]
    if h.marks & DAMAGED:
        link.drop_damaged(net, n)
        return
    p = net.packet[n]
    net.ctl[0].delivered += 1
    qi = int(h.qp)
    calls = ro.calls[0]
    if p.opcode <= LAST_DATA:
        if calls.on_data != 0:
            call_int(calls.on_data, (net, st, ro, n, qi, now))
        else:
            _on_data(net, st, ro, n, qi, now)
        link.free_packet(net, n)
        return
    progress = False
    if p.opcode == ACKNOWLEDGE and calls.on_answer != 0:
        is_ack = int(p.reason == AETH_ACK)
        progress = call_int(calls.on_answer, (ro, qi, int(p.psn), is_ack, now)) != 0
    elif p.opcode == ACKNOWLEDGE:
        if p.reason == AETH_ACK:
            progress = requester.on_ack(ro, ro.qp[qi], int(p.psn), now)
        else:
            progress = requester.on_nak(st, ro, qi, int(p.psn), now)
    else:
        requester.on_cnp(ro, qi, now)
    link.free_packet(net, n)
    if progress:
        requester.on_progress(ro, qi, now)
    _settle(net, st, ro, qi, progress, now)


@inlined
def on_port_free(net, st, ro, port_no, now):
    """A NIC port has finished sending: a waiting control packet is next, else the next QP's
    packet.
    """
    port = net.port[port_no]
    port.armed = 0
    nic, plane = rounds.owner(net, port_no)
    n = ports.dequeue(net, ro, port_no, port, now)
    if n >= 0:
        link.transmit(net, port, port_no, n, now)
        link.arm(net, port, port_no)
        return
    ln = net.nic[nic]
    if (ln.up_ports >> plane) & 1 and not ports.held(ro, port_no):
        ln.free_ports |= 1 << plane
        pump(net, st, ro, nic, now)


@inner
def on_qp_timer(net, st, ro, qi, now):
    """A QP's entry in the heap is due; its deadline may have moved to a later time."""
    if ro.qp[qi].sends == 0:
        call_int(ro.calls[0].on_missing, (net, st, ro, qi, now))
        return
    if ro.qp[qi].rto_at <= now:
        requester.on_timeout(st, ro, qi, now)
    _settle(net, st, ro, qi, False, now)


@inner
def on_pace(net, st, ro, qi, now):
    """A QP's next packet may be due."""
    rq = ro.qp[qi]
    rq.pacing = 0
    requester.wake(ro, qi, now)
    make_ready(net, ro, qi, now)
    plan_qp(net, ro, qi, now)
    pump(net, st, ro, int(rq.nic), now)


@inner
def stop_data(net, port_no):
    """A NIC's port is paused: it sends control packets, and no data."""
    nic, plane = rounds.owner(net, port_no)
    net.nic[nic].free_ports &= ~(1 << plane)


@inner
def resume_data(net, st, ro, port_no, now):
    """A NIC's port may send data again."""
    nic, plane = rounds.owner(net, port_no)
    ln = net.nic[nic]
    port = net.port[port_no]
    if (ln.up_ports >> plane) & 1 == 0 or port.armed:
        return
    if port.free_at > now:
        link.arm(net, port, port_no)
    else:
        ln.free_ports |= 1 << plane
        pump(net, st, ro, nic, now)


@inner
def choose_planes(net, st, ro, nic, now):
    """Ports or routes have changed: every QP of a NIC rehashes over the remaining planes."""
    n = st.nic[nic]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        rq = ro.qp[qi]
        ecmp.choose_planes(net, rq)
        if rq.sends:
            make_ready(net, ro, qi, now)
            plan_qp(net, ro, qi, now)
    pump(net, st, ro, nic, now)
