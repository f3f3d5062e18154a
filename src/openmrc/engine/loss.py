"""When a packet counts as lost, and the timers that detect it (rows 6 to 9 and 17).

There is one judge: a packet is lost if its answer is overdue and something sent later is known
received (`judge_overdue`). Where nothing sent later can be, a probe asks; where nothing at all
comes any more, the RTO decides.
"""

from __future__ import annotations

from openmrc.engine import (
    account,
    beliefs,
    bits,
    fate,
    nscc,
    pool,
    probes,
    rotation,
    timers,
    window,
)
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, FALSE_ALARM
from openmrc.engine.fate import slot_of
from openmrc.engine.qp import ALLOWED
from openmrc.jit import inlined, inner
from openmrc.units import S

EXP_CNT_INFINITE = 25  # MRC 1.8
# How long a round trip counts as recent: one to two such periods; half as long, if so many were
# measured since.
RTT_TURN_RTTS, RTT_TURN_SAMPLES = 8, 4
QUERY_DOUBLINGS = 3  # of the probes that are sent at once, and then of the time between them
DOUBLINGS_MAX = 30  # keeps an infinite backoff within int64


@inlined
def epoch_length(rto, epoch, linear_cnt):
    """Row 9: the duration of epoch number `epoch` (from 0), ps: one RTO `linear_cnt` times, then 2,
    4, 8 ... RTO.
    """
    if epoch < linear_cnt:
        return rto
    return rto << min(epoch - linear_cnt + 1, DOUBLINGS_MAX)


@inlined
def retries_spent(epoch, linear_cnt, exp_cnt):
    """Row 9: true if the last epoch has passed."""
    return exp_cnt != EXP_CNT_INFINITE and epoch >= linear_cnt + exp_cnt


@inlined
def note_rtt(q, again, rtt):
    """Record a measured round trip, of an original (0) or of a retransmission (1). The largest
    recent one of its kind is the time allowed for answers; the kinds differ because retransmissions
    overtake data.
    """
    q.rtt_largest[again] = max(q.rtt_largest[again], rtt)
    q.rtt_samples += 1


@inlined
def note_passed(q):
    """A probe was answered. It tells when the round trips of before are no longer those of now, and
    not how long data may take: it may be alone on its path.
    """
    q.rtt_samples += 1


@inlined
def note_sample(q, again, rtt):
    """Record the time from the sending of a packet to the answer to it."""
    q.rtt_least = min(q.rtt_least, rtt)
    note_rtt(q, again, rtt)


@inlined
def is_too_early(q, sent_at, now):
    """Whether an answer that arrives now comes too early for a packet sent then: a round trip takes
    at least half of the shortest one measured.
    """
    return now - sent_at < min(q.base_rtt, q.rtt_least) // 2


@inlined
def note_trim(q, now):
    """Record that a packet was trimmed at the last hop, where data waits for all
    retransmissions.
    """
    q.trimmed_at = now
    q.trimmed_units = q.rcvd_high
    note_rtt(q, 0, q.base_rtt + int(q.qa_threshold))


@inlined
def patience(q, again, now):
    """The age from which a packet's answer is overdue, ps (rows 7, 8): the largest recent round
    trip of its kind, plus an allowance.
    """
    period = RTT_TURN_RTTS * q.base_rtt
    early = period // 2 if q.rtt_samples >= RTT_TURN_SAMPLES else 0
    if now >= q.rtt_turn_at - early:
        recent = now < q.rtt_turn_at + period
        for k in range(2):
            q.rtt_before[k] = q.rtt_largest[k] if recent else 0
            q.rtt_largest[k] = 0
        q.rtt_samples = 0
        q.rtt_turn_at = now + period
    rtt = max(max(q.rtt_largest[again], q.rtt_before[again]), q.base_rtt)
    return rtt + allowance(q, rtt)


@inlined
def allowance(q, rtt):
    """The allowance for differences between paths, ps: a quarter of a round trip, or the time of
    two packets on the slowest plane.
    """
    return max(rtt // 4, q.two_packets)


@inlined
def evidence_against(q, s):
    """Send time of the newest packet known received that is evidence of loss for an older one in
    slot `s`.

    Retransmissions overtake data in every queue, so they are evidence against each other only.
    """
    if fate.again(s):
        return max(q.evidence_at, q.again_evidence_at)
    return q.evidence_at


@inner
def fail(st, q, error, now):
    """Move a QP to ERROR, permanently (MRC 1.7)."""
    if not ALLOWED[q.state, es.ERROR]:
        return
    q.state = es.ERROR
    q.error = error
    q.error_at = now
    timers.stop(q)
    account.note_failure(st, q, error, now)
    if st.config[0].share_window and q.una < q.seq_end:
        pool.divide(st, q, -1)


@inner
def _copy(st, q, seq, event, now):
    """Send a packet in flight again, although no path is charged with a loss yet."""
    fate.enter(st, q, seq, event, now)
    q.doubted_end = max(q.doubted_end, seq + 1)


@inner
def _copy_companions(st, q, ev, sent_at, now):
    """A packet sent at `sent_at` showed its path to be dead: packets sent on it later are lost too,
    and are sent again now (row 8). The same holds for its plane, if that fell silent. It does not
    hold if the path has delivered anything since: then it loses some packets, not all.
    """
    k = st.ev[q.ev0 + ev].plane
    whole = st.plane[q.plane0 + k].silent != 0
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        if fate.received(s.fate) and s.ev == ev and s.sent_at > sent_at:
            return
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        took = s.ev == ev or (whole and st.ev[q.ev0 + s.ev].plane == k)
        if took and s.fate == fate.SENT and s.before == fate.NONE and s.sent_at > sent_at:
            _copy(st, q, seq, fate.COMPANION, now)


@inner
def _charge_loss(st, q, ev, sent_at, size, now):
    """A transmission is judged lost: charge it to the window and the path. True if the window was
    cut for it.
    """
    cut = window.on_loss(st, q, ev, now)
    believed = st.ev[q.ev0 + ev].state != ASSUMED_BAD
    beliefs.on_loss(st, q, ev, sent_at, size, now)
    found = believed and st.ev[q.ev0 + ev].state == ASSUMED_BAD
    if found and q.nxt == q.seq_end:  # at the end no later packet can be evidence
        _copy_companions(st, q, ev, sent_at, now)
    return cut


@inner
def _judge_lost(st, q, seq, now):
    """The latest transmission of a packet is lost."""
    s = slot_of(st, q, seq)
    fate.enter(st, q, seq, fate.LOSS, now)
    if _charge_loss(st, q, int(s.ev), s.sent_at, int(s.bytes_nominal), now):
        fate.enter(st, q, seq, fate.WINDOW_CUT, now)


@inner
def _judge_before_lost(st, q, s, now):
    """If the transmission before the latest one is in doubt, it is lost, whatever happens to the
    latest. Its path is charged as of when the latest left.
    """
    if s.before == fate.DOUBTED:
        fate.enter_before(st, q, s, fate.LOSS, now)
        if _charge_loss(st, q, int(s.before_ev), s.sent_at, int(s.bytes_nominal), now):
            fate.enter_before(st, q, s, fate.WINDOW_CUT, now)


@inner
def settle_doubts(st, q, now):
    """Of packets in doubt, those sent before something that is known received are lost."""
    for seq in range(q.una, min(q.doubted_end, q.nxt)):
        s = slot_of(st, q, seq)
        if fate.received(s.fate) or fate.first_in_doubt_at(s) >= q.evidence_at:
            continue
        if s.fate == fate.DOUBTED:
            _judge_lost(st, q, seq, now)
        elif s.fate == fate.SENT:  # a copy that was trimmed says that queues are full
            _judge_before_lost(st, q, s, now)


@inner
def on_arrival(st, q, seq, now):
    """The latest transmission of a packet has arrived; if it waits, it need not be sent again."""
    s = slot_of(st, q, seq)
    cut = s.fate == fate.CUT
    if fate.enter(st, q, seq, fate.LATE_ARRIVAL, now):
        _take_back(st, q, int(s.ev), cut, now)
    else:
        fate.enter(st, q, seq, fate.ARRIVAL, now)


@inner
def on_arrival_before(st, q, s, now):
    """The transmission before the latest one of a slot has arrived: sending again was needless."""
    cut = s.before == fate.CUT
    if fate.enter_before(st, q, s, fate.LATE_ARRIVAL, now):
        _take_back(st, q, int(s.before_ev), cut, now)
    else:
        fate.enter_before(st, q, s, fate.ARRIVAL, now)


@inner
def _take_back(st, q, ev, cut, now):
    """A judgement was a false alarm: undo the cut of the window, if any, and restore the EV
    (row 7).
    """
    if cut:
        nscc.undo_loss(q)
    if st.ev[q.ev0 + ev].state == ASSUMED_BAD:
        beliefs.revive(st, q, ev, FALSE_ALARM, now)


@inlined
def outstanding(q):
    """True while a packet is in flight or waits for retransmission."""
    return q.una < q.nxt


@inlined
def heard(st, q, now):
    """A packet arrived from the peer: restart the measurement of silence."""
    if now - q.answer_at > _longest_gap(st, q):
        q.quiet_from = q.answer_at
        q.quiet_until = now
    q.last_heard = now
    q.answer_at = now


@inlined
def _longest_gap(st, q):
    """The longest time between two answers while packets are in flight, ps: a round trip, and two
    SACKs at the rate of the window. A queue delays answers, but they keep arriving.
    """
    rtt = q.base_rtt + q.avg_delay
    return rtt * (1.0 + 2.0 * st.config[0].sack_bytes / q.cwnd)


@inlined
def without_quiet(q, rtt, now):
    """An RTT sample that ends now, without the time in which no answer arrived at all although some
    were due: a process was not scheduled, at either end or in between. That is no queue (MRC 4.6).
    """
    quiet = max(q.quiet_until - max(now - rtt, q.quiet_from), 0)
    return max(rtt - quiet, min(rtt, q.base_rtt))


@inlined
def answered(q, now):
    """There is progress: probes for overdue packets start again at the smallest spacing."""
    if q.queries > 0:
        q.queries = 0
        q.query_at = min(q.query_at, q.query_sent_at + patience(q, 0, now))


@inlined
def first_sent(q, now):
    """The first packet is outstanding: start the timers."""
    q.last_heard = now
    q.answer_at = es.NEVER
    q.epoch_at = now
    q.rto_at = now + q.rto
    q.queries = 0
    q.query_at = now


@inner
def _query(st, q, now):
    """Send the QP's own probes on the next planes in turn: one at first, then twice as many each
    time that nothing at all is heard, to eight, and then eight after twice as long, to eight times.
    The first of them takes the EV that delivered last on its plane, until all planes were tried;
    the others random ones. Returns when to probe again (row 8), or when the NIC's budget for such
    probes allows one (row 11).
    """
    wait = probes.take_probe_token(st, q.nic, probes.OF_QUEUE_PAIRS, now)
    if wait > 0:
        return wait
    heard = q.queries > 0 and q.last_heard >= q.query_sent_at
    wanted = 1 if heard else 1 << min(q.queries, QUERY_DOUBLINGS)
    in_vain = q.queries >= QUERY_DOUBLINGS or rotation.nothing_proven(st, q)
    asked = 0
    k = int(q.tail_plane)
    for _ in range(wanted * q.n_planes):
        k = k + 1 if k + 1 < q.n_planes else 0
        plane = st.plane[q.plane0 + k]
        if not (q.planes_ok >> k) & 1 or plane.n_active == 0:
            continue
        ev = rotation.proven(st, q, k) if asked == 0 and q.queries < q.n_planes else -1
        if ev < 0:
            ev = rotation.path_to_ask(st, q, k, in_vain)
        q.query_id = probes.send_probe(st, q, ev, account.OF_QP, now)
        q.query_sent_at = now
        q.tail_plane = k
        asked += 1
        if asked == wanted or probes.take_probe_token(st, q.nic, probes.OF_QUEUE_PAIRS, now) > 0:
            break
    q.asked = asked
    half_epoch = epoch_length(q.rto, q.epoch, int(st.config[0].linear_cnt)) // 2
    if q.epoch > 0:
        wait = half_epoch
    else:
        again = min(max(q.queries - QUERY_DOUBLINGS, 0), QUERY_DOUBLINGS)
        wait = min(patience(q, 0, now) << again, half_epoch)
    q.queries += 1
    return now + wait


@inner
def _expire(st, q, now):
    """The RTO may have passed: judge everything that is overdue, and charge once; returns when to
    check again.

    After an RTO without any arrival, everything that a probe would ask about is overdue: packets
    sent a little later than the oldest are lost as well.
    """
    c = st.config[0]
    due = q.epoch_at + epoch_length(q.rto, q.epoch, int(c.linear_cnt))
    if now < due:
        return due
    limit = q.rto
    if q.last_heard <= now - q.rto:
        limit = min(q.rto, patience(q, 0, now))
    oldest = es.NEVER
    expired = False
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        if s.fate == fate.SENT:
            sent_at = fate.first_in_doubt_at(s)
            expired = expired or sent_at + q.rto <= now
            oldest = min(oldest, sent_at)
    stuck = (
        q.inflight == 0 and q.planes_ok == 0
    )  # everything is lost, and no plane can carry a retransmission
    if not expired and not stuck:
        return max(oldest + q.rto if oldest != es.NEVER else now + q.rto, now + 1)
    for seq in range(q.una, q.nxt):
        s = slot_of(st, q, seq)
        if s.fate == fate.SENT and fate.first_in_doubt_at(s) + limit <= now:
            _time_out(st, q, seq, s, now)
    charge(st, q, now)
    return now + epoch_length(q.rto, q.epoch, int(c.linear_cnt))


@inner
def _time_out(st, q, seq, s, now):
    """An RTO has passed for a packet in flight: it is lost, as is what of it is in doubt."""
    size = int(s.bytes_nominal)
    if s.before == fate.DOUBTED and fate.enter_before(st, q, s, fate.TIMEOUT, now):
        beliefs.on_loss(st, q, int(s.before_ev), fate.before_sent_at(s), size, now)
    fate.enter(st, q, seq, fate.TIMEOUT, now)
    beliefs.on_loss(st, q, int(s.ev), s.sent_at, size, now)
    window.on_loss(st, q, int(s.ev), now)


@inner
def on_finish(st, q, now):
    """Everything is received but the transport ACK is missing: probe for it (row 17), and charge as
    the RTO would.
    """
    q.finish_at = es.NEVER
    if q.msg_done == q.msg_end or outstanding(q):
        return
    due = q.epoch_at + epoch_length(q.rto, q.epoch, int(st.config[0].linear_cnt))
    if q.queries > 0 and now >= due:
        charge(st, q, now)
        if q.state != es.RTS:
            return
    q.finish_at = _query(st, q, now)


@inner
def charge(st, q, now):
    """Charge the retry counter once (row 9)."""
    c = st.config[0]
    q.epoch += 1
    q.n_epochs += 1
    q.epoch_at = now
    q.charged_at = now
    if retries_spent(int(q.epoch), int(c.linear_cnt), int(c.exp_cnt)):
        fail(st, q, es.RETRY_EXCEEDED, now)


@inner
def on_rto(st, q, now):
    """The RTO may have passed (row 9). It also runs for packets that cannot be sent because no
    plane is up.
    """
    at = es.NEVER
    if outstanding(q) or (q.planes_ok == 0 and q.nxt < q.seq_end):
        at = _expire(st, q, now)
    elif q.planes_ok == 0:
        at = now + S  # something may be posted
    if q.state == es.RTS:
        q.rto_at = at


@inlined
def _answer_due_from(st, q, seq, s, batch):
    """When the time allowed for an answer begins, ps: a SACK covers `sack_bytes`, and a QP may send
    slowly; a retransmission requests a SACK of its own.
    """
    if fate.again(s):
        return s.sent_at
    last = slot_of(st, q, min(seq + batch, q.nxt - 1))
    return s.sent_at if fate.again(last) else max(s.sent_at, last.sent_at)


@inner
def judge_overdue(st, q, now):
    """Look for packets whose answer is overdue (rows 7, 8): a packet is lost if anything sent later
    is known received; otherwise a probe is sent, and its answer is the evidence.

    Originals are sent in order, so the first one that is too young ends the search: retransmissions
    behind it are younger still.
    """
    limit_first = patience(q, 0, now)
    limit_again = patience(q, 1, now)
    batch = int(st.config[0].sack_bytes / q.pkt)
    q.overdue_at = es.NEVER
    q.doubt = es.NEVER
    seq = q.una
    while seq < q.nxt:
        run = bits.ones_from(st.bits, q.acked0, q.ring_mask, seq)
        seq += run
        if run > 0:
            continue
        s = slot_of(st, q, seq)
        if s.fate == fate.SENT:
            again = fate.again(s)
            due_at = _answer_due_from(st, q, seq, s, batch) + (
                limit_again if again else limit_first
            )
            if due_at > now:
                q.overdue_at = min(q.overdue_at, due_at)
                if again == 0:
                    break
            elif s.sent_at < evidence_against(q, s):
                _judge_before_lost(st, q, s, now)
                _judge_lost(st, q, seq, now)
            else:
                q.doubt = min(q.doubt, s.sent_at)
        seq += 1
    if q.overdue_at != es.NEVER:  # long round trips are forgotten then, and less time is allowed
        soon = q.rtt_turn_at - RTT_TURN_RTTS * q.base_rtt // 2
        q.overdue_at = min(q.overdue_at, soon if soon > now else q.rtt_turn_at)
    if q.doubt != es.NEVER:
        if q.query_at <= now:
            q.query_at = _query(st, q, now)
            if q.queries == 1 and _may_copy(q, now):
                _copy_overdue(st, q, limit_first, batch, now)
        q.overdue_at = min(q.overdue_at, q.query_at)


@inlined
def _may_copy(q, now):
    """Whether overdue packets may be sent again before there is evidence: at the end of the posted
    data, where no later packet can provide it, if there is another plane, and after a quarter of a
    round trip without an arrival. Not if answers take two base round trips: packets in such long
    queues are late more often than lost, and copies, which overtake them, would lengthen the
    queues.
    """
    quiet = now - q.last_heard >= q.base_rtt // 4
    rtt = max(q.rtt_largest[0], q.rtt_before[0])
    return q.nxt == q.seq_end and rotation.several(q.planes_ok) and quiet and rtt <= 2 * q.base_rtt


@inner
def _copy_overdue(st, q, limit, batch, now):
    """Together with the first probe, send the packets that it asks about again, as far as the
    window has room (row 8). No path is charged yet. If nothing at all has arrived since, one copy
    is enough.
    """
    room = q.cwnd - q.inflight
    copied = False
    seq = q.una
    while seq < q.nxt:
        run = bits.ones_from(st.bits, q.acked0, q.ring_mask, seq)
        seq += run
        if run > 0:
            continue
        s = slot_of(st, q, seq)
        if s.fate == fate.SENT and s.before == fate.NONE:
            room -= s.bytes_nominal
            if room < 0.0 or _answer_due_from(st, q, seq, s, batch) + limit > now:
                return
            if copied and q.last_heard <= s.sent_at:
                return
            copied = True
            _copy(st, q, seq, fate.DOUBT, now)
        seq += 1


@inlined
def on_deadline(st, q, now):
    """Run those of the loss-detection timers that are due."""
    if q.rto_at <= now:
        on_rto(st, q, now)
    if q.overdue_at <= now:
        judge_overdue(st, q, now)
    if q.finish_at <= now:
        on_finish(st, q, now)
