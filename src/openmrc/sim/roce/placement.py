"""NICs that place packets as they come: those of one QP overtake each other where switches balance.

The receiving end keeps a bitmap of the window of sequences: each packet is placed once, at its own
address. It acknowledges what has arrived without a gap, every `ack_every` packets, at the end of a
message, and when a gap closes.

A gap is no loss. With `recovery = "selective"` the receiver reports, by a NAK for each, the packets
that are still missing `reordering` after a later one has arrived; again after a round trip more,
and after twice as long each time where nothing arrives. The requester sends exactly those again.
Only its timer finds out that the last packets of all are lost: it sends the last one again, and the
receiver reports what is missing before it. With `recovery = "timer"` the receiver reports nothing,
and the timer goes back to the oldest packet.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine import state as es
from openmrc.engine.state import NEVER
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.net import events
from openmrc.sim.net.state import AT_QP
from openmrc.sim.roce import nic, requester, stripes
from openmrc.wire.roce.opcodes import AETH_ACK, AETH_NAK_SEQUENCE

REPORTS_MAX = 32  # at once, of the oldest: one event may use no more packets than are reserved


@inlined
def _is_set(ro, qi, seq):
    return bits.test(ro.seen[qi], 0, ro.c[0].window - 1, seq)


@inlined
def _set(ro, qi, seq):
    bits.mark(ro.seen[qi], 0, ro.c[0].window - 1, seq)
    ro.qp[qi].n_ahead += 1


@inlined
def _clear(ro, qi, seq):
    bits.unmark(ro.seen[qi], 0, ro.c[0].window - 1, seq)
    ro.qp[qi].n_ahead -= 1


@inlined
def _acknowledge(net, st, ro, qi, now):
    rq = ro.qp[qi]
    rq.unacked = 0
    ro.c[0].acks += 1
    psn = es.psn_of(int(rq.first_psn), rq.expected - 1)
    nic.send_control(net, st, ro, qi, psn, AETH_ACK, now)


@inner
def _accept(net, st, ro, qi, p, now):
    """Count a new packet of a message; True if its QP's part is complete."""
    rq = ro.qp[qi]
    number = int(p.msn)
    part = requester.part_of(st, rq, number)
    at = rq.msg0 + (number & rq.msg_mask)
    ro.placed[at] += 1
    if ro.placed[at] < part.n_packets:
        return False
    ro.placed[at] = 0
    rq.msg_done += 1
    stripes.part_arrived(net, ro, int(rq.bundle), number, now)
    return True


@compiled
def on_data(net, st, ro, n, qi, now):
    """A data packet has arrived."""
    p = net.packet[n]
    rq = ro.qp[qi]
    nic.notify(net, st, ro, net.hop[n], qi, now)
    seq = int(es.unwrap(int(p.psn), int(rq.first_psn), rq.expected))
    if seq < rq.expected or _is_set(ro, qi, seq):
        ro.c[0].duplicates += 1
        if rq.expected > 0:
            _acknowledge(net, st, ro, qi, now)
        return 0
    nic.place(net, st, ro, net.hop[n], p, rq, seq, now)
    ends = _accept(net, st, ro, qi, p, now)
    rq.high = max(rq.high, seq + 1)
    rq.unacked += 1
    rq.timer_ps = ro.c[0].again_ps
    if seq > rq.expected:
        _set(ro, qi, seq)
        if rq.rto_at > now + ro.c[0].reordering_ps > now:
            _look_later(net, ro, qi, now)
        return 0
    rq.expected += 1
    closes = False
    while rq.n_ahead > 0 and _is_set(ro, qi, int(rq.expected)):
        _clear(ro, qi, int(rq.expected))
        rq.expected += 1
        closes = True
    if rq.n_ahead == 0:
        rq.rto_at = NEVER
    if ends or closes or rq.unacked >= ro.c[0].ack_every:
        _acknowledge(net, st, ro, qi, now)
    return 0


@inlined
def _look_later(net, ro, qi, now):
    """Look for what is missing below the highest sequence that has arrived by now, when it has been
    missing for long enough.
    """
    rq = ro.qp[qi]
    rq.rto_at = now + ro.c[0].reordering_ps
    rq.mark = rq.high
    events.plan(net, net.qp[qi], int(rq.rto_at), AT_QP, qi)


@inner
def _report(net, st, ro, qi, seq, end, reports, now):
    """Report what is missing from `seq` on, up to `end`, so that there are at most `REPORTS_MAX`
    reports; return where it ended, and how many there are now.
    """
    rq = ro.qp[qi]
    seq = max(seq, int(rq.expected))
    while seq < end and reports < REPORTS_MAX:
        if not _is_set(ro, qi, seq):
            ro.c[0].naks += 1
            psn = es.psn_of(int(rq.first_psn), seq)
            nic.send_control(net, st, ro, qi, psn, AETH_NAK_SEQUENCE, now)
            reports += 1
        seq += 1
    return seq, reports


@compiled
def on_missing(net, st, ro, qi, now):
    """The receiver's timer: report what is still missing."""
    rq = ro.qp[qi]
    if rq.rto_at > now:
        events.plan(net, net.qp[qi], int(rq.rto_at), AT_QP, qi)
        return 0
    if now >= rq.due_at:
        rq.again = rq.expected
        rq.due = rq.due_next
        rq.due_next = rq.told
        rq.due_at = now + rq.timer_ps
        rq.timer_ps = min(2 * rq.timer_ps, ro.c[0].rto_ps)  # unless something new arrives
    rq.again, reports = _report(net, st, ro, qi, int(rq.again), int(rq.due), 0, now)
    rq.told, reports = _report(net, st, ro, qi, int(rq.told), int(rq.mark), reports, now)
    if reports == REPORTS_MAX:
        rq.rto_at = now + REPORTS_MAX * ro.c[0].frame_ps
    elif rq.high > rq.mark:
        _look_later(net, ro, qi, now)
        return 0
    else:
        rq.rto_at = rq.due_at
    events.plan(net, net.qp[qi], int(rq.rto_at), AT_QP, qi)
    return 0


@compiled
def on_answer(ro, qi, psn, is_ack, now):
    """An acknowledgement, or a report of what is missing, has arrived; 1 if that is progress."""
    rq = ro.qp[qi]
    if is_ack:
        before = int(rq.una)
        news = requester.on_ack(ro, rq, psn, now)
        if rq.n_ahead > 0:
            for seq in range(before, rq.una):
                if _is_set(ro, qi, seq):
                    _clear(ro, qi, seq)
        return int(news)
    seq = int(es.unwrap(psn, int(rq.first_psn), rq.una))
    if rq.alive and rq.una <= seq < rq.nxt and not _is_set(ro, qi, seq):
        ro.c[0].go_backs += 1
        _set(ro, qi, seq)
    return 0


@compiled
def take_lost(ro, qi):
    """The oldest of the packets that a requester sends again; there must be one."""
    seq = int(ro.qp[qi].una)
    while not _is_set(ro, qi, seq):
        seq += 1
    _clear(ro, qi, seq)
    return seq


@compiled
def lose_last(ro, qi):
    """The requester's timer has expired: send the last packet again."""
    rq = ro.qp[qi]
    if rq.nxt > rq.una and not _is_set(ro, qi, rq.nxt - 1):
        _set(ro, qi, rq.nxt - 1)
    return 0
