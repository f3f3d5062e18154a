"""The sending end of a reliable connection: go-back-N (IB 9.7.5, 9.7.6).

Packets leave in order and without a window; only the rate limiter, a paused port, or
`OUTSTANDING_MAX` stops them. (Where switches balance, `placement` says what differs.) An
acknowledgement covers everything below it. A NAK for a sequence error, and a timer that expires
without progress, send the requester back to the oldest packet that is not acknowledged, and all
packets from there on are sent again. Both are charged to one retry counter, which progress resets;
when it is exhausted the QP is in error.

Timers adapt, as those of NICs do: the first without progress runs for `rto_first`, each that
follows twice as long, none longer than `rto`. Those shorter than `rto` together cost one retry, and
if `rto` is `rto_first` times a power of two they last about one `rto` together: so a QP survives a
silence of (retry_cnt + 1) x `rto`, however short its first timer was.
"""

from __future__ import annotations

from openmrc.engine import endpoint
from openmrc.engine import state as es
from openmrc.engine.packet import CLASS_DATA
from openmrc.engine.state import NEVER
from openmrc.jit import compiled, inlined, inner
from openmrc.jit.callref import call_int
from openmrc.sim.roce import dcqcn, delay

OPERATION_MASK = 0x1F  # of an opcode; the bits above name the service, which is 0 here
NUMBER_MASK = 0x7FFF_FFFF


@inlined
def part_of(st, rq, number):
    """The part of message `number` that a QP carries, at either end; it may have no bytes and no
    packets. The responder may ask until it has acknowledged it.
    """
    return st.message[rq.msg0 + (number & rq.msg_mask)]


@inlined
def has_work(ro, rq):
    """Whether there is a packet to send, once rate limiter and port permit."""
    is_next = rq.nxt < rq.seq_end and rq.nxt - rq.una < ro.c[0].window
    return rq.alive != 0 and (is_next or rq.n_ahead > 0)


@inlined
def may_send(ro, rq, now):
    """Whether `next_packet` has one, given a free port."""
    return has_work(ro, rq) and rq.paced_at <= now and rq.plane >= 0


@inlined
def next_packet(net, st, ro, qi, now, p):
    """Write the next packet into `p`; return its sequence. `may_send` must hold."""
    rq = ro.qp[qi]
    seq = int(rq.nxt)
    number = int(rq.cur)
    if rq.n_ahead > 0:
        seq = call_int(ro.calls[0].take_lost, (ro, qi))
        number = int(rq.msg_done)
    part = part_of(st, rq, number)
    while seq >= part.first_seq + part.n_packets:
        number += 1
        part = part_of(st, rq, number)
    pmtu = net.ctl[0].pmtu
    k = seq - part.first_seq
    p.opcode = endpoint.write_opcode(k, part.n_packets, part.has_imm) & OPERATION_MASK
    p.psn = es.psn_of(int(rq.first_psn), seq)
    p.payload_len = min(part.length - k * pmtu, pmtu)
    p.va = part.remote_va + k * pmtu
    p.dma_len = part.length
    p.dst_qpn = st.qp[qi].peer_qpn
    p.msn = number & NUMBER_MASK  # used by the simulation alone: the packet's message
    p.klass = CLASS_DATA
    p.src = rq.nic
    p.dst = rq.peer_nic
    if seq == rq.nxt:
        rq.cur = number
        rq.nxt = seq + 1
    if ro.c[0].rtt_ps > 0 and seq >= rq.high:
        delay.on_sent(ro.sample[qi], seq, now)
    rq.high = max(rq.high, rq.nxt)
    if rq.rto_at == NEVER:
        rq.rto_at = now + rq.timer_ps
    return seq


@compiled
def open_limiters(limiter, rates):
    """Before a run: all QPs begin at line rate."""
    for i in range(limiter.shape[0]):
        dcqcn.start(limiter[i], rates[0])


@inlined
def pace(ro, qi, frame_bytes, now):
    """A packet has begun to leave: the rate limiter determines when the next one may."""
    if ro.c[0].paced:
        dcqcn.on_sent(ro.limiter[qi], ro.rates[0], now, frame_bytes)
        ro.qp[qi].paced_at = dcqcn.may_send_at(ro.limiter[qi])


@inner
def on_cnp(ro, qi, now):
    """A CNP arrived: the rate is cut, at once or when a round trip is known."""
    if ro.c[0].rtt_ps > 0:
        ro.sample[qi].marked = 1
        return
    dcqcn.on_cnp(ro.limiter[qi], ro.rates[0], now)
    ro.qp[qi].paced_at = dcqcn.may_send_at(ro.limiter[qi])


@inlined
def on_progress(ro, qi, now):
    """Packets were acknowledged: a round trip may be known."""
    if ro.c[0].rtt_ps > 0:
        una = int(ro.qp[qi].una)
        delay.on_ack(ro.sample[qi], ro.limiter[qi], ro.rates[0], int(ro.c[0].rtt_ps), una, now)
        ro.qp[qi].paced_at = dcqcn.may_send_at(ro.limiter[qi])


@inner
def wake(ro, qi, now):
    """A QP waits for its rate limiter: apply the rounds that were due."""
    dcqcn.on_timer(ro.limiter[qi], ro.rates[0], now)
    ro.qp[qi].paced_at = dcqcn.may_send_at(ro.limiter[qi])


@inlined
def wake_at(ro, qi):
    """When to check a QP that waits for its rate limiter, ps: its rate may rise before."""
    return min(int(ro.qp[qi].paced_at), int(ro.limiter[qi].timer_at))


@inlined
def _go_back(rq):
    """Go back to the oldest packet that is not acknowledged."""
    rq.nxt = rq.una
    rq.cur = rq.msg_done


@inlined
def _advance(ro, rq, una, now):
    """Everything below `una` is acknowledged: progress."""
    rq.una = una
    rq.retries = 0
    rq.timer_ps = ro.c[0].rto_first_ps
    rq.nxt = max(rq.nxt, una)
    rq.rto_at = NEVER if una == rq.high else now + rq.timer_ps


@inlined
def on_ack(ro, rq, psn, now):
    """Everything up to and including `psn` has arrived; True if that is new."""
    una = es.unwrap(psn, int(rq.first_psn), rq.una) + 1
    if una <= rq.una or una > rq.high:
        return False
    _advance(ro, rq, una, now)
    return True


@inner
def on_nak(st, ro, qi, psn, now):
    """The responder lacks `psn`, and has everything below it; True if that is new."""
    rq = ro.qp[qi]
    una = es.unwrap(psn, int(rq.first_psn), rq.una)
    if rq.alive == 0 or una < rq.una or una >= rq.high:
        return False
    news = una > rq.una
    if news:
        _advance(ro, rq, una, now)
    ro.c[0].go_backs += 1
    _retry(st, ro, qi, 1, now)
    return news


@inner
def on_timeout(st, ro, qi, now):
    """The timer expired without progress: the next one is longer. Of the short timers only the last
    is charged.
    """
    ro.c[0].timeouts += 1
    rq = ro.qp[qi]
    longest = ro.c[0].rto_ps
    charge = 1 if 2 * rq.timer_ps >= longest else 0
    rq.timer_ps = min(2 * rq.timer_ps, longest)
    _retry(st, ro, qi, charge, now)


@inner
def _retry(st, ro, qi, charge, now):
    """Go back, if the retry counter allows."""
    rq = ro.qp[qi]
    rq.retries += charge
    if ro.c[0].rtt_ps > 0:
        delay.on_lost(ro.sample[qi])
    if rq.retries > ro.c[0].retry_cnt:
        endpoint.fail(st, st.qp[qi], es.RETRY_EXCEEDED, now)
        rq.alive = 0
        rq.rto_at = NEVER
        return
    if ro.calls[0].lose_last != 0:
        call_int(ro.calls[0].lose_last, (ro, qi))
    else:
        _go_back(rq)
    rq.rto_at = now + rq.timer_ps


@inlined
def next_deadline(ro, rq, now):
    """When the timer expires, ps. It also runs while no port is up."""
    if rq.rto_at == NEVER and rq.plane < 0 and has_work(ro, rq):
        rq.rto_at = now + rq.timer_ps
    return rq.rto_at
