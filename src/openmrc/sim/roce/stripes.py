"""Messages striped over the QPs of a pair: each is cut into equal parts, and is complete when all
parts are.

The parts of a message are equal to within a byte; a message of fewer bytes than QPs leaves some QPs
without a part. Messages with immediates are delivered to the receiver in the order of posting, as
on one QP: an application that stripes counts the arrivals of all its QPs. The acknowledgements of a
series are processed in that order too.
"""

from __future__ import annotations

from openmrc.jit import inlined, inner
from openmrc.sim.net import messages
from openmrc.sim.net.state import FAILED
from openmrc.sim.roce.requester import part_of

ALL = -1  # WHOLE.arrived: all parts have, and an older message has not


@inner
def _hand_over(net, st, ro, mi):
    """Post the next message of an entry to the QPs of its bundle; False if they are full."""
    m = net.message[mi]
    b = ro.bundle[net.qp[m.qp].region]
    if b.posted - b.tx_next > b.ring_mask:
        return False
    length = messages.next_length(net, mi)
    w = ro.whole[b.ring0 + (b.posted & b.ring_mask)]
    w.entry = mi
    w.parts = 0
    qps = int(ro.c[0].qps)
    pmtu = net.ctl[0].pmtu
    for i in range(qps):
        rq = ro.qp[b.sender + i]
        part = part_of(st, rq, rq.msg_end)
        part.wr_id = mi
        part.length = length // qps + (1 if i < length % qps else 0)
        part.n_packets = (part.length + pmtu - 1) // pmtu
        part.first_seq = rq.seq_end
        part.remote_va = b.va
        part.has_imm = m.imm
        b.va += part.length
        rq.seq_end += part.n_packets
        rq.msg_end += 1
        if part.n_packets > 0:
            w.parts += 1
    w.tx_left = w.parts
    b.posted += 1
    messages.note_posted(net, mi)
    return True


@inner
def post(net, st, ro, mi, now):
    """An entry's next message is due: post it, after any that wait for room."""
    m = net.message[mi]
    if m.posted_at < 0:
        m.posted_at = now
    lq = net.qp[m.qp]
    if lq.failed:
        messages.lose(net, mi, FAILED)
        return
    for _ in range(messages.let_through(net, mi)):
        if lq.waiting_head >= 0 or not _hand_over(net, st, ro, mi):
            messages.stand_in_line(net, lq, mi)


@inner
def fill(net, st, ro, bundle):
    """Post messages that wait for room in a bundle's send queues; True if there were any."""
    lq = net.qp[ro.bundle[bundle].sender]
    posted = False
    while lq.waiting_head >= 0:
        if not _hand_over(net, st, ro, int(lq.waiting_head)):
            break
        messages.leave_line(net, lq)
        posted = True
    return posted


@inlined
def _whole(ro, b, number):
    return ro.whole[b.ring0 + (number & b.ring_mask)]


@inner
def on_progress(net, st, ro, qi, now):
    """A QP has made progress: parts of messages, and perhaps whole messages, are complete."""
    rq = ro.qp[qi]
    b = ro.bundle[rq.bundle]
    if net.qp[b.sender].failed:
        return
    while rq.msg_done < rq.msg_end:
        part = part_of(st, rq, rq.msg_done)
        if part.first_seq + part.n_packets > rq.una:
            break
        number = int(rq.msg_done)
        rq.msg_done = number + 1
        if part.n_packets > 0:
            _part_acknowledged(net, ro, b, number, now)
    rq.cur = max(rq.cur, rq.msg_done)


@inner
def _part_acknowledged(net, ro, b, number, now):
    w = _whole(ro, b, number)
    w.tx_left -= 1
    if w.tx_left > 0:
        return
    if net.message[w.entry].many == 0:
        messages.acknowledged(net, int(w.entry), now)
    while b.tx_next < b.posted and _whole(ro, b, b.tx_next).tx_left == 0:
        mi = int(_whole(ro, b, b.tx_next).entry)
        b.tx_next += 1
        if net.message[mi].many:
            messages.acknowledged(net, mi, now)


@inner
def part_arrived(net, ro, bundle, number, now):
    """A part of message `number` is completely in the receiver's memory."""
    b = ro.bundle[bundle]
    w = _whole(ro, b, number)
    w.arrived += 1
    if w.arrived < w.parts:
        return
    w.arrived = ALL
    m = net.message[w.entry]
    m.delivered_at = now
    if m.imm == 0:
        messages.let_receiver(net, m, now)
    while _whole(ro, b, b.rx_next).arrived == ALL:
        w = _whole(ro, b, b.rx_next)
        w.arrived = 0
        b.rx_next += 1
        m = net.message[w.entry]
        if m.imm:
            messages.let_receiver(net, m, now)
