"""When a packet counts as lost, and the timers that find out (rows 6 to 9 and 17).

Three pure rules first; then their application to a QP: inference from a snapshot, false alarms, and
what its timers do (`timers.py`).
"""

from __future__ import annotations

from openmrc.engine import beliefs, bits, nscc, probes, timers, window
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, FALSE_ALARM
from openmrc.engine.qp import ALLOWED
from openmrc.jit import inlined, inner

EXP_CNT_INFINITE = 25  # MRC 1.8
WINDOW_DECAY_PS = 1_000_000_000_000  # row 7: what a false alarm added halves each second
REORDER_WINDOW_MAX_RTTS = 8  # beyond this an RTO would be as quick
DOUBLINGS_MAX = 30  # keeps an infinite backoff within int64


@inlined
def is_lost(sent_at, evidence_at, reorder_window):
    """Row 7 (a): something sent at least `reorder_window` later is known received."""
    return sent_at + reorder_window <= evidence_at


@inlined
def epoch_length(rto, epoch, linear_cnt):
    """Row 9: how long epoch number `epoch` (from 0) lasts: one RTO `linear_cnt` times, then 2, 4, 8
    ... RTO.
    """
    if epoch < linear_cnt:
        return rto
    return rto << min(epoch - linear_cnt + 1, DOUBLINGS_MAX)


@inlined
def retries_spent(epoch, linear_cnt, exp_cnt):
    """Row 9: the last epoch has passed."""
    return exp_cnt != EXP_CNT_INFINITE and epoch >= linear_cnt + exp_cnt


@inlined
def slot_of(st, q, seq):
    """The slot that holds a sequence number."""
    return st.slot[q.slot0 + (seq & q.slot_mask)]


@inlined
def tail_gap(q):
    """Row 8: silence after which a probe asks."""
    return 2 * (q.base_rtt + q.target)


@inner
def fail(st, q, error, now):
    """Move a QP to ERROR, for good (MRC 1.7)."""
    if not ALLOWED[q.state, es.ERROR]:
        return
    q.state = es.ERROR
    q.error = error
    q.error_at = now
    timers.stop(q)


@inner
def mark_lost(st, q, seq):
    """A slot in flight becomes one to send again."""
    s = slot_of(st, q, seq)
    s.state = es.LOST
    s.bad_ev = s.ev
    q.inflight -= int(s.bytes_nominal)
    q.lost += 1
    q.lost_hint = min(q.lost_hint, seq)


@inner
def _infer_one(st, q, seq, now):
    s = slot_of(st, q, seq)
    s.past |= es.INFERRED
    if window.on_loss(st, q, now):
        s.past |= es.CUT
    beliefs.on_loss(st, q, int(s.ev), s.sent_at, now)
    mark_lost(st, q, seq)
    q.n_inferred += 1


@inner
def infer(st, q, base, bitmap, now):
    """Judge what the snapshot `base .. base + 63` shows missing (row 7 b). Call it only for the
    newest snapshot.

    Originals are sent in order, so the first one that is too young ends the search.
    """
    low = max(base, q.una)
    known = bits.word_at(st.bits, q.acked0, q.ring_mask, base)
    holes = bits.missing_from(bitmap, known, min(q.nxt - base, 64))
    while bits.any_bit(holes):
        seq = base + bits.lowest(holes)
        holes = bits.drop_lowest(holes)
        if seq < low:
            continue
        s = slot_of(st, q, seq)
        if is_lost(s.sent_at, q.evidence_at, reorder_window(q, now)):
            if s.state == es.SENT:
                _infer_one(st, q, seq, now)
        elif s.past & es.RESENT == 0:
            break


@inlined
def reorder_window(q, now):
    """Row 7: the window now; what false alarms added fades over seconds.

    Paths differ by as much as their queues do, so twice the average queueing delay comes on top:
    nothing in an idle network, where a dead path must be found quickly.
    """
    if now - q.window_grown_at > WINDOW_DECAY_PS and q.reorder_window > q.base_rtt:
        q.reorder_window -= (q.reorder_window - q.base_rtt) // 2
        q.window_grown_at = now
    return q.reorder_window + int(2.0 * q.avg_delay)


@inner
def false_alarm(st, q, seq, now):
    """A packet judged lost had arrived: widen the window, believe its EV again, give the window cut
    back (row 7).
    """
    s = slot_of(st, q, seq)
    if s.past & es.INFERRED == 0:
        return
    cut = s.past & es.CUT
    s.past &= es.RESENT
    q.n_false += 1
    reorder_window(q, now)  # fades first
    widest = REORDER_WINDOW_MAX_RTTS * q.base_rtt
    q.reorder_window = min(q.reorder_window + q.base_rtt // 4, widest)
    q.window_grown_at = now
    if cut:
        nscc.undo_loss(q)
    ev = int(s.bad_ev)
    if ev >= 0 and st.ev[q.ev0 + ev].state == ASSUMED_BAD:
        beliefs.revive(st, q, ev, FALSE_ALARM, now)


@inlined
def outstanding(q):
    """True while some packet is sent or to be sent again."""
    return q.una < q.nxt


@inlined
def heard(q, now):
    """Something arrived from the peer: silence starts anew."""
    q.last_heard = now
    q.tail_at = now + tail_gap(q) if outstanding(q) else es.NEVER


@inlined
def first_sent(q, now):
    """The first packet is outstanding: start the clocks."""
    q.last_heard = now
    q.tail_at = now + tail_gap(q)
    q.epoch_at = now
    q.rto_at = now + q.rto


@inner
def _query(st, q, now):
    """The QP's own probe, on a usable EV of the next plane: each repetition takes another.

    0, or the time to come again when the NIC's budget for probes is spent (row 11).
    """
    wait = probes.take_probe_token(st, q.nic, now)
    if wait > 0:
        return wait
    for step in range(1, q.n_planes + 1):
        p = (q.tail_plane + step) % q.n_planes
        plane = st.plane[q.plane0 + p]
        if (q.planes_ok >> p) & 1 and plane.n_active > 0:
            first = q.order0 + p * q.order_len
            ev = int(st.order[first + bits.draw_below(st.stream, q.index, int(plane.n_active))])
            q.tail_plane = p
            q.query_id = probes.send_probe(st, q, ev, now)
            q.query_sent_at = now
            break
    return 0


@inner
def _expire(st, q, now):
    """The RTO may have passed: judge all that is overdue, charge once; returns when to look again.

    After an RTO in which nothing at all was heard, overdue is what a tail probe would ask about:
    the packets that were sent a little later than the oldest are as lost as it is.
    """
    c = st.config[0]
    due = q.epoch_at + epoch_length(q.rto, q.epoch, int(c.linear_cnt))
    if now < due:
        return due
    patience = q.rto
    if q.last_heard <= now - q.rto:
        patience = min(q.rto, tail_gap(q))
    oldest = es.NEVER
    covered = 0
    expired = False
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        if s.state == es.SENT:
            expired = expired or s.sent_at + q.rto <= now
            oldest = min(oldest, s.sent_at)
    stuck = (
        q.inflight == 0 and q.planes_ok == 0
    )  # all is lost, and there is no way to send it again
    if not expired and not stuck:
        return max(oldest + q.rto if oldest != es.NEVER else now + q.rto, now + 1)
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        if s.state == es.SENT and s.sent_at + patience <= now:
            s.past &= es.RESENT
            beliefs.on_loss(st, q, int(s.ev), s.sent_at, now)
            window.on_loss(st, q, now)
            mark_lost(st, q, seq)
            covered += 1
    q.n_timeouts += covered
    charge(st, q, now)
    return now + epoch_length(q.rto, q.epoch, int(c.linear_cnt))


@inner
def on_finish(st, q, now):
    """Everything is received, the transport ACK is missing: probe for it (row 17), first after the
    silence of row 8, then as the RTO would.
    """
    q.finish_at = es.NEVER
    if q.msg_done == q.msg_end or outstanding(q):
        return
    wait = _query(st, q, now)
    if wait > 0:
        q.finish_at = wait
        return
    if q.finish_asked:
        charge(st, q, now)
    q.finish_asked = 1
    if q.state == es.RTS:
        q.finish_at = now + epoch_length(q.rto, q.epoch, int(st.config[0].linear_cnt))


@inner
def charge(st, q, now):
    """One charge of the retry counter (row 9)."""
    c = st.config[0]
    q.epoch += 1
    q.n_epochs += 1
    q.epoch_at = now
    q.charged_at = now
    if retries_spent(int(q.epoch), int(c.linear_cnt), int(c.exp_cnt)):
        fail(st, q, es.RETRY_EXCEEDED, now)


@inner
def _next_tail(st, q):
    """Row 8: the same spacing until the RTO fires; from then on once in the middle of each epoch,
    so that the NIC's budget for probes is left to the EVs.
    """
    if q.epoch == 0:
        return tail_gap(q)
    return max(tail_gap(q), epoch_length(q.rto, q.epoch, int(st.config[0].linear_cnt)) // 2)


@inner
def on_rto(st, q, now):
    """The RTO may have passed (row 9)."""
    at = _expire(st, q, now) if outstanding(q) else es.NEVER
    if q.state == es.RTS:
        q.rto_at = at


@inner
def on_tail(st, q, now):
    """Nothing was heard for a while (row 8)."""
    wait = _query(st, q, now) if outstanding(q) else es.NEVER
    q.tail_at = now + _next_tail(st, q) if wait == 0 else wait


@inner
def on_ask(st, q, now):
    """No snapshot covered the oldest packet in time (row 7)."""
    wait = _query(st, q, now) if outstanding(q) else es.NEVER
    q.ask_at = es.NEVER if wait == 0 else wait


@inlined
def on_deadline(st, q, now):
    """Do what is due among the timers that find losses."""
    if q.rto_at <= now:
        on_rto(st, q, now)
    if q.tail_at <= now:
        on_tail(st, q, now)
    if q.ask_at <= now:
        on_ask(st, q, now)
    if q.finish_at <= now:
        on_finish(st, q, now)


assert es.ACKED > es.LOST > es.SENT
