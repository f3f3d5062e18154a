"""The sending half of a QP: messages to packets, SACK, NACK and transport ACK to progress.

    post_write    a message is queued
    next_packet   the NIC has a free port: the next packet, if the QP may send one
    on_sack, on_nack, on_ack   what the peer says
    on_deadline   call at `next_deadline`, or later

After each of them the QP may have become able to send: ask `may_send`.
"""

from __future__ import annotations

from openmrc.engine import bits, loss, paths, window
from openmrc.engine.packet import (
    ACK_REQ,
    AETH_ACK,
    AETH_NAK_INVALID_REQUEST,
    CLASS_DATA,
    CLASS_RETRANSMIT,
    M_ALWAYS_SKIP,
    M_NONE,
    M_SKIP_ONCE,
    NACK_TRIMMED,
    NACK_TRIMMED_LASTHOP,
    NACK_UNEXP_EVENT,
    NO_TRIM,
    PROBE_ANSWER,
    RCVD_UNIT_BYTES,
    RTX,
    TIMESTAMP_UNIT_PS,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
)
from openmrc.engine.policy import HEARD_CLEAN, HEARD_MARKED, HEARD_TRIMMED
from openmrc.engine.state import (
    ACKED,
    AGO_MAX,
    AGO_SHIFT,
    DONE_SEND,
    LOST,
    NEVER,
    REMOTE_ACCESS,
    REMOTE_INVALID_REQUEST,
    REMOTE_OPERATION,
    RESENT,
    RTS,
    SENT,
    clear,
    complete,
    psn_of,
    signed,
    unwrap,
)
from openmrc.jit import compiled, inlined, inner

KNOWN_BITS = 31  # of rcvd_bytes that a slot remembers
KNOWN_MASK = (1 << KNOWN_BITS) - 1
NOT_READY = -1  # next_packet: window, queue or state forbid
PORTS_BUSY = -2  # next_packet: it may send, but on no free port


@inlined
def packets_of(length, pmtu):
    """Packets of a message: one per PMTU, one for an empty message."""
    return max((length + pmtu - 1) // pmtu, 1)


@compiled
def post_write(st, qi, wr_id, length, remote_va, rkey, has_imm, imm):
    """Queue an RDMA WRITE (with immediate data if `has_imm`).

    False if the send queue is full or the QP is not in RTS.
    """
    q = st.qp[qi]
    if q.state != RTS or q.msg_end - q.msg_done > q.msg_mask:
        return False
    m = st.message[q.msg0 + (q.msg_end & q.msg_mask)]
    m.wr_id = wr_id
    m.length = length
    m.remote_va = remote_va
    m.rkey = rkey
    m.has_imm = has_imm
    m.imm = imm
    m.rqmsn = q.rqmsn_next & 0xFFFF
    m.first_seq = q.seq_end
    m.n_packets = packets_of(length, st.config[0].pmtu)
    q.seq_end += m.n_packets
    q.msg_end += 1
    if has_imm:
        q.rqmsn_next += 1
    return True


@inlined
def _next_is_new(st, q):
    """True if a new packet may be cut: queued data, room in the PSN window, room for its immediate
    (MRC 1.3, 1.5).
    """
    if q.nxt >= q.seq_end or q.nxt >= q.una + q.mpr:
        return False
    m = st.message[q.msg0 + (q.msg_cur & q.msg_mask)]
    return m.has_imm == 0 or q.nxt > m.first_seq or q.wimm_open < st.config[0].max_wimm


@inlined
def may_send(st, q):
    """True if `next_packet` would send, given a free port."""
    if q.state != RTS or q.inflight >= q.cwnd:
        return False
    return (q.lost > 0 and q.lost_hint < q.una + q.mpr) or _next_is_new(st, q)


@inner
def _oldest_lost(st, q):
    """The oldest LOST sequence; there is one."""
    seq = max(q.lost_hint, q.una)
    while loss.slot_of(st, q, seq).state != LOST:
        seq += 1
    q.lost_hint = seq
    return seq


@inner
def _message_of(st, q, seq):
    """Number of the message that a sequence belongs to, among those posted and not completed."""
    low = q.msg_done
    high = min(q.msg_cur, q.msg_end - 1)
    while low < high:
        middle = (low + high + 1) // 2
        if st.message[q.msg0 + (middle & q.msg_mask)].first_seq <= seq:
            low = middle
        else:
            high = middle - 1
    return low


@inlined
def _fill_data(st, q, seq, m, p):
    """The headers of a data packet (MRC 1.3, 1.4, 2.3): RETH in each, VA advanced by one PMTU a
    packet.
    """
    c = st.config[0]
    index = seq - m.first_seq
    last = index == m.n_packets - 1
    clear(p)
    p.payload_len = min(c.pmtu, m.length - index * c.pmtu)
    if m.n_packets == 1:
        p.opcode = WRITE_ONLY_IMM if m.has_imm else WRITE_ONLY
    elif last:
        p.opcode = WRITE_LAST_IMM if m.has_imm else WRITE_LAST
    elif index == 0:
        p.opcode = WRITE_FIRST
    else:
        p.opcode = WRITE_MIDDLE
    p.src = q.nic
    p.dst = q.peer_nic
    p.dst_qpn = q.peer_qpn
    p.psn = psn_of(q.first_psn, seq)
    p.va = m.remote_va + index * c.pmtu
    p.rkey = m.rkey
    p.dma_len = m.length
    p.imm = m.imm if last else 0
    p.rqmsn = m.rqmsn
    p.flag_bits = ACK_REQ if last else 0
    return last


@compiled
def next_packet(st, q, free_ports, now, p):
    """Write the QP's next packet into record `p`, given the mask of free ports.

    Returns the plane it goes out on, `NOT_READY`, or `PORTS_BUSY`. Ask again after each packet, and
    after any event of this QP.
    """
    if not may_send(st, q):
        return NOT_READY
    plane_no = paths.choose_plane(st, q, free_ports)
    if plane_no < 0:
        return PORTS_BUSY if q.planes_ok != 0 else NOT_READY
    c = st.config[0]
    again = q.lost > 0
    if again:
        seq = _oldest_lost(st, q)
        if seq >= q.una + q.mpr:  # MRC 1.5: a shrunken window delays retransmissions too
            return NOT_READY
        s = loss.slot_of(st, q, seq)
        number = _message_of(st, q, seq)
        m = st.message[q.msg0 + (number & q.msg_mask)]
        avoid = int(s.bad_ev)
    else:
        seq = q.nxt
        s = loss.slot_of(st, q, seq)
        number = q.msg_cur
        m = st.message[q.msg0 + (number & q.msg_mask)]
        avoid = -1
    _fill_data(st, q, seq, m, p)
    p.msn = number & 0xFFFF
    p.timestamp = (now // TIMESTAMP_UNIT_PS) & 0xFFFF
    ev = paths.choose_ev(st, q, plane_no, avoid)
    paths.charge_turn(q, st.plane[q.plane0 + plane_no])
    p.plane = plane_no
    p.ev = st.ev[q.ev0 + ev].value
    if c.trimming == 0:
        p.flag_bits |= NO_TRIM
    if again:
        p.klass = CLASS_RETRANSMIT
        p.flag_bits |= RTX | ACK_REQ
        q.lost -= 1
        q.lost_hint = seq + 1
        q.n_rtx += 1
        s.past |= RESENT
        s.first_ago = min(int(s.first_ago) + ((now - s.sent_at) >> AGO_SHIFT) + 1, AGO_MAX)
    else:
        p.klass = CLASS_DATA
        s.bytes_nominal = p.payload_len + c.nominal_overhead
        q.sent_bytes += int(s.bytes_nominal)
        s.first_ago = 0
        s.past = 0
        s.bad_ev = -1
        bits.unmark(st.bits, q.acked0, q.ring_mask, seq)
        if q.una == q.nxt:
            loss.first_sent(q, now)
        if seq == m.first_seq and m.has_imm:
            q.wimm_open += 1
        q.nxt += 1
        if seq == m.first_seq + m.n_packets - 1:
            q.msg_cur += 1
    s.state = SENT
    s.sent_at = now
    s.ev = ev
    q.inflight += int(s.bytes_nominal)
    q.tx_data_at = now
    if not may_send(st, q):  # row 5: the last packet it can send for now
        p.flag_bits |= ACK_REQ
    return plane_no


@inner
def _acknowledge(st, q, seq, now):
    """A sequence is known received for the first time."""
    s = loss.slot_of(st, q, seq)
    bits.mark(st.bits, q.acked0, q.ring_mask, seq)
    if s.state == SENT:
        q.inflight -= int(s.bytes_nominal)
        if s.past & RESENT == 0:
            paths.on_delivery(st, q, int(s.ev), s.sent_at, now)
        elif now - s.sent_at < q.base_rtt // 2:
            loss.false_alarm(st, q, seq, now)  # no answer to the retransmission can be here yet
    elif s.state == LOST:
        q.lost -= 1
        loss.false_alarm(st, q, seq, now)
    s.state = ACKED
    s.known_units = q.rcvd_high & KNOWN_MASK
    q.evidence_at = max(q.evidence_at, s.sent_at - (int(s.first_ago) << AGO_SHIFT))


@inlined
def _advance_una(st, q, now):
    """Move `una` over everything received in a row; progress starts the epochs anew (row 9)."""
    before = q.una
    while q.una < q.nxt:
        run = bits.ones_from(st.bits, q.acked0, q.ring_mask, q.una)
        if run == 0:
            break
        q.una = min(q.una + run, q.nxt)
    if q.una > before:
        if q.epoch > 0:  # the expiry waited for may be far away
            q.rto_at = min(q.rto_at, now + q.rto)
        q.epoch = 0
        q.epoch_at = now
        q.ask_at = NEVER


@inlined
def _is_second_copy(s, units):
    """Whether what triggered a SACK had been received before: an older snapshot showed slot `s`
    received (row 7).
    """
    return s.state == ACKED and signed(units - s.known_units, KNOWN_BITS) > 0


@inlined
def _sample(st, q, seq, units, now):
    """What a SACK triggered by sequence `seq` says of time: the round trip of its packet, or -1.

    A packet sent twice has none. The second copy of a retransmission proves a false alarm; that of
    an original was made on the way, by whomever, and is late by any time.
    """
    s = loss.slot_of(st, q, seq)
    again = s.past & RESENT
    if _is_second_copy(s, units):
        if again:
            loss.false_alarm(st, q, seq, now)
        return -1
    return -1 if again else now - s.sent_at


@inlined
def _ev_of_trigger(st, q, seq, value):
    """The EV that a SACK or NACK reflects; the slot knows it unless the packet was sent again
    since.
    """
    s = loss.slot_of(st, q, seq)
    if int(st.ev[q.ev0 + s.ev].value) == value:
        return int(s.ev)
    return paths.index_of(st, q, value)


@inner
def _on_reflected_ev(st, q, ev, m, now):
    """What a SACK says of the path that it reflects: marked, to be left, or simply good enough to
    answer on.
    """
    if ev < 0:
        return
    paths.learn(st, q, ev, HEARD_CLEAN if m == M_NONE else HEARD_MARKED, now)
    if m == M_SKIP_ONCE:
        if not st.config[0].ignore_marks:
            paths.on_mark(st, q, ev)
    elif m == M_ALWAYS_SKIP:
        paths.on_always_skip(st, q, ev, now)


@compiled
def on_sack(st, qi, p, now):
    """A RELIABILITY_SACK (MRC 2.6, 2.7): slots, window, paths and losses of QP `qi`.

    False, and nothing is changed, if it speaks of what this QP never sent.
    """
    q = st.qp[qi]
    if q.state != RTS:
        return True
    cack = unwrap(int(p.cack_psn), q.first_psn, q.una - 1)
    base = cack + signed(int(p.sack_offset), 16)
    ahead = signed(int(p.rcvd_units) - q.rcvd_high, 24)
    units = q.rcvd_high + ahead
    if not _can_be_true(q, cack, base, p.bitmap, units):
        return False
    newest = ahead >= 0
    q.rcvd_high = max(q.rcvd_high, units)
    c = st.config[0]
    answer = (p.flag_bits & PROBE_ANSWER) != 0
    marked = p.m == M_SKIP_ONCE
    rtt = -1
    if answer:
        _on_probe_answer(st, q, p, marked, now)
    else:
        trigger = cack + signed(int(p.ack_offset), 16)
        if q.nxt - q.slot_mask <= trigger < q.nxt and trigger >= 0:
            rtt = _sample(st, q, trigger, units, now)
            _on_reflected_ev(st, q, _ev_of_trigger(st, q, trigger, int(p.entropy)), int(p.m), now)
    for seq in range(q.una, cack + 1):
        if not bits.test(st.bits, q.acked0, q.ring_mask, seq):
            _acknowledge(st, q, seq, now)
    if base + 63 >= q.una and base < q.nxt:
        fresh = bits.news(p.bitmap, bits.word_at(st.bits, q.acked0, q.ring_mask, base))
        while bits.any_bit(fresh):
            seq = base + bits.lowest(fresh)
            fresh = bits.drop_lowest(fresh)
            if q.una <= seq < q.nxt:
                _acknowledge(st, q, seq, now)
    _advance_una(st, q, now)
    if c.dynamic_mpr and newest and p.mpr > 0:
        q.mpr = min(int(p.mpr) * 128, q.slot_mask + 1)
    window.on_sack(st, q, c, now, max(ahead, 0) * RCVD_UNIT_BYTES, rtt, marked, int(p.penalty))
    if newest:
        loss.infer(st, q, base, p.bitmap, now)
    loss.heard(q, now)
    _look_ahead(st, q, now)
    return True


@inlined
def _can_be_true(q, cack, base, bitmap, units):
    """Nothing that was never sent is received: neither a sequence, nor more bytes than there were.

    One false `rcvd_bytes` would make all true snapshots look old, and losses would go unseen.
    """
    if cack >= q.nxt or cack < q.una - 1 - q.slot_mask:
        return False
    if units * RCVD_UNIT_BYTES >= q.sent_bytes + RCVD_UNIT_BYTES:
        return False
    return not bits.any_bit(bits.above(bitmap, q.nxt - base))


@inlined
def _look_ahead(st, q, now):
    """After news: ask about the oldest packet if only a snapshot is missing; wait for the transport
    ACK at the end.
    """
    if loss.outstanding(q):
        q.finish_at = NEVER
        s = loss.slot_of(st, q, q.una)
        doubtful = s.state == SENT and loss.is_lost(
            s.sent_at, q.evidence_at, loss.reorder_window(q, now)
        )
        if not doubtful:
            q.ask_at = NEVER
        elif q.ask_at == NEVER:
            q.ask_at = now + q.base_rtt // 2
    elif q.msg_done < q.msg_cur and q.finish_at == NEVER:
        q.finish_at = now + loss.tail_gap(q)
        q.finish_asked = 0


@inner
def _on_probe_answer(st, q, p, marked, now):
    """The SACK answers a probe: of an EV on trial, or of the QP itself (whose delivery is evidence,
    row 7).
    """
    number = int(p.ack_offset) & 0xFFFF
    if number == q.query_id:
        q.evidence_at = max(q.evidence_at, q.query_sent_at)
    elif q.n_bad > 0:
        skips = marked and st.config[0].ignore_marks == 0
        sent_at = paths.on_probe_answer(st, q, int(p.entropy), number, skips, now)
        q.evidence_at = max(q.evidence_at, sent_at)


@compiled
def on_nack(st, qi, p, now):
    """A RELIABILITY_NACK (MRC 2.8): each reason has its own reaction, to a packet in flight.

    False, and nothing is changed, if it speaks of what this QP never sent.
    """
    q = st.qp[qi]
    if q.state != RTS:
        return True
    reason = int(p.reason)
    seq = unwrap(int(p.psn), q.first_psn, q.una)
    if seq >= q.nxt or seq < q.una - 1 - q.slot_mask:
        return False
    if seq < q.una:
        return True
    if reason == NACK_UNEXP_EVENT:
        loss.fail(st, q, REMOTE_OPERATION, now)
        return True
    s = loss.slot_of(st, q, seq)
    trimmed = reason == NACK_TRIMMED or reason == NACK_TRIMMED_LASTHOP
    if s.state == SENT and (
        s.past & RESENT == 0 or int(st.ev[q.ev0 + s.ev].value) == int(p.entropy)
    ):
        ev = int(s.ev)
        if trimmed:
            window.on_trim(st, q, st.config[0], now)
            paths.on_delivery(st, q, ev, s.sent_at, now)
            paths.learn(st, q, ev, HEARD_TRIMMED, now)
        s.past &= RESENT
        loss.mark_lost(st, q, seq)
        if reason == NACK_TRIMMED:
            paths.on_mark(st, q, ev)
    if not trimmed:
        c = st.config[0]
        if now - q.charged_at >= loss.epoch_length(q.rto, q.epoch, int(c.linear_cnt)):
            loss.charge(st, q, now)
            if q.state != RTS:
                return True
    loss.heard(q, now)
    return True


@compiled
def on_ack(st, qi, p, now):
    """A transport ACK or NAK (MRC 1.3, row 17): completes every message up to its MSN.

    False, and nothing is changed, if it speaks of what this QP never sent. A NAK is the last that
    its sender says, so no ACK can have overtaken it by its MSN, and it is about an open message.
    """
    q = st.qp[qi]
    if q.state != RTS:
        return True
    syndrome = int(p.reason)
    done = q.msg_done + signed(int(p.msn) - q.msg_done, 16) + 1
    if done > q.msg_cur:
        return False
    if syndrome != AETH_ACK:
        if done < q.msg_done or q.msg_done == q.msg_end:
            return False
        invalid = syndrome == AETH_NAK_INVALID_REQUEST
        loss.fail(st, q, REMOTE_INVALID_REQUEST if invalid else REMOTE_ACCESS, now)
        return True
    while q.msg_done < done:
        m = st.message[q.msg0 + (q.msg_done & q.msg_mask)]
        if q.una < m.first_seq + m.n_packets:
            _acknowledge_message(st, q, m, now)
        if m.has_imm:
            q.wimm_open -= 1
        complete(st, DONE_SEND, qi, m.wr_id, 0)
        q.msg_done += 1
        q.epoch = 0
    _advance_una(st, q, now)
    loss.heard(q, now)
    _look_ahead(st, q, now)
    return True


@inner
def _acknowledge_message(st, q, m, now):
    """The transport ACK overtook the SACKs: a completed message has all its packets received.

    It is no snapshot: how much had been received it does not say. It counts as one of all that was
    sent, so that the SACK that it overtook is not taken for the report of a second copy.
    """
    for seq in range(max(q.una, m.first_seq), m.first_seq + m.n_packets):
        if not bits.test(st.bits, q.acked0, q.ring_mask, seq):
            _acknowledge(st, q, seq, now)
            s = loss.slot_of(st, q, seq)
            s.known_units = (q.sent_bytes // RCVD_UNIT_BYTES + 1) & KNOWN_MASK


@inlined
def next_deadline(q):
    """When to call `on_deadline`, ps; it may move later without notice, never earlier but by a call
    on this QP.
    """
    first = min(min(q.tail_at, q.rto_at), min(q.ask_at, q.finish_at))
    return min(first, min(q.ev_probe_at, q.reverse_probe_at))
