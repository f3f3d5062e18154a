"""The sending half of a QP: cuts messages into packets, and turns SACKs, NACKs and transport ACKs
into progress.

    post_write    a message is queued
    next_packet   the NIC has a free port: the next packet, if the QP may send one
    on_sack, on_nack, on_ack   the peer's answers

After each of them the QP may be able to send: call `may_send`.
"""

from __future__ import annotations

from openmrc.engine import beliefs, bits, fate, loss, place, pool, probes, rotation, window
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.ev import index_of
from openmrc.engine.policy import HEARD_CLEAN, HEARD_MARKED, HEARD_TRIMMED
from openmrc.engine.verdict import HEARD, NEVER_SENT
from openmrc.jit import compiled, inlined, inner

KNOWN_BITS = 31  # bits of rcvd_bytes that a slot keeps
KNOWN_MASK = (1 << KNOWN_BITS) - 1
OVERTAKEN_RTTS = 2
NO_IMM = -1
NOT_READY = -1  # next_packet: the window, the send queue or the QP's state does not allow it
PORTS_BUSY = -2  # next_packet: it may send, but on no free port


@compiled
def post_write(st, qi, wr_id, length, remote_va, rkey, imm):
    """Queue an RDMA WRITE of `length` bytes, with immediate data unless `imm` is `NO_IMM`.

    False if the send queue is full or the QP is not in RTS.
    """
    q = st.qp[qi]
    if q.state != es.RTS or q.msg_end - q.msg_done > q.msg_mask:
        return False
    m = st.message[q.msg0 + (q.msg_end & q.msg_mask)]
    m.wr_id = wr_id
    m.length = length
    m.remote_va = remote_va
    m.rkey = rkey
    m.has_imm = imm >= 0
    m.imm = max(imm, 0)
    m.rqmsn = q.rqmsn_next & 0xFFFF if imm >= 0 else 0  # row 33
    m.first_seq = q.seq_end
    m.n_packets = es.packets_of(length, st.config[0].pmtu)
    q.seq_end += m.n_packets
    q.msg_end += 1
    if imm >= 0:
        q.rqmsn_next += 1
    if q.una == m.first_seq:
        if m.n_packets < q.n_planes:
            rotation.begin_anywhere(st, q)
        if st.config[0].share_window:
            pool.divide(st, q, 1)
    return True


@inlined
def abandon(q):
    """A QP in ERROR gives up its oldest request; return the index of its message, -1 if there is
    none left.
    """
    if q.msg_done == q.msg_end:
        return -1
    q.msg_done += 1
    return place.message(q, q.msg_done - 1)


@inlined
def message_of(q, msn):
    """Number of the open message that a packet's 16 bits name."""
    return q.msg_done + es.signed(int(msn) - q.msg_done, 16)


@inlined
def ask_size(st, qi, i, number):
    """Emit a packet on EV `i` of a QP that has sent nothing, as a retransmission of a PSN before
    its first one: full if `number` is even, empty if it is odd. Its SACK reflects `number`.
    """
    q = st.qp[qi]
    e = st.ev[place.ev(q, i)]
    p = es.emit(st, pk.WRITE_ONLY)
    es.address(p, q)
    p.flag_bits = pk.RTX | pk.ACK_REQ
    p.klass = pk.CLASS_RETRANSMIT
    p.psn = es.psn_of(q.first_psn, -1)
    p.payload_len = 0 if number & 1 else st.config[0].pmtu
    p.dma_len = p.payload_len
    p.timestamp = number
    p.plane = e.plane
    p.ev = e.value


@inlined
def _next_is_new(st, q):
    """True if a new packet may be sent: queued data, room in the PSN window, room for its immediate
    (MRC 1.3, 1.5).
    """
    if q.nxt >= q.seq_end or q.nxt >= q.una + q.mpr or rotation.waits_for_burst(st, q):
        return False
    m = st.message[q.msg0 + (q.msg_cur & q.msg_mask)]
    return m.has_imm == 0 or q.nxt > m.first_seq or q.wimm_open < st.config[0].max_wimm


@inlined
def _fills(q, inflight):
    """Whether so many bytes in flight fill the window. A packet that begins below `cwnd` is sent
    whole. But while `cwnd` is nearer to one packet than to two, a second would double what the QP
    offers, and many such QPs at one port would send mostly what is trimmed: half a packet is held
    back then, so only one full packet is in flight.
    """
    spare = 0.5 * q.pkt if q.cwnd < 1.5 * q.pkt else 0.0
    return inflight >= q.cwnd - spare


@inlined
def _overtakes(q):
    """Whether lost packets may be retransmitted although the window is full of originals. After two
    round trips the originals wait not for bandwidth but for the retransmissions of other QPs, whose
    class overtakes them (row 15): a QP with more originals in flight than its neighbours would
    stall.
    """
    waits = q.last_heard - q.new_at > OVERTAKEN_RTTS * q.base_rtt
    return waits and q.lost > 0 and not _fills(q, q.inflight_again)


@inlined
def may_send(st, q):
    """True if `next_packet` would send, given a free port."""
    if q.state != es.RTS or (_fills(q, q.inflight) and not _overtakes(q)):
        return False
    return (q.lost > 0 and q.lost_hint < q.una + q.mpr) or _next_is_new(st, q)


@inner
def _oldest_lost(st, q):
    """The oldest sequence that waits to be sent again; there must be one."""
    seq = max(q.lost_hint, q.una)
    while not fate.waits(fate.slot_of(st, q, seq).fate):
        seq += 1
    q.lost_hint = seq
    return seq


@inner
def _message_of(st, q, seq):
    """Number of the posted, not yet completed message that a sequence belongs to."""
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
def write_opcode(index, n, has_imm):
    """Opcode of packet `index` of a message of `n` (MRC 1.3)."""
    if n == 1:
        return pk.WRITE_ONLY_IMM if has_imm else pk.WRITE_ONLY
    if index == 0:
        return pk.WRITE_FIRST
    if index == n - 1:
        return pk.WRITE_LAST_IMM if has_imm else pk.WRITE_LAST
    return pk.WRITE_MIDDLE


@inlined
def _fill_data(st, q, seq, m, p):
    """Fill in the headers of a data packet (MRC 1.3, 1.4, 2.3): a RETH in each, its VA advanced by
    one PMTU per packet.
    """
    c = st.config[0]
    index = seq - m.first_seq
    last = index == m.n_packets - 1
    es.clear(p)
    p.payload_len = min(c.pmtu, m.length - index * c.pmtu)
    p.opcode = write_opcode(index, m.n_packets, m.has_imm)
    es.address(p, q)
    p.psn = es.psn_of(q.first_psn, seq)
    p.va = m.remote_va + index * c.pmtu
    p.rkey = m.rkey
    p.dma_len = m.length
    p.imm = m.imm if last else 0
    p.rqmsn = m.rqmsn
    p.flag_bits = pk.ACK_REQ if last else 0
    return last


@inlined
def _note_again(q, seq, p):
    """Packet `seq` goes out again, as `p`."""
    p.klass = pk.CLASS_RETRANSMIT
    p.flag_bits |= pk.RTX | pk.ACK_REQ
    q.lost_hint = seq + 1
    q.n_rtx += 1


@inlined
def _note_new(st, q, s, m, seq, p, now):
    """The next packet of message `m` takes slot `s`, and goes out as `p`."""
    p.klass = pk.CLASS_DATA
    s.bytes_nominal = p.payload_len + st.config[0].nominal_overhead
    q.sent_bytes += int(s.bytes_nominal)
    s.fate = fate.NONE
    bits.unmark(st.bits, q.acked0, q.ring_mask, seq)
    if q.una == q.nxt:
        loss.first_sent(q, now)
    if seq == m.first_seq and m.has_imm:
        q.wimm_open += 1
    q.nxt += 1
    if seq == m.first_seq + m.n_packets - 1:
        q.msg_cur += 1


@compiled
def next_packet(st, q, free_ports, now, p):
    """Write the QP's next packet into record `p`, given the mask of free ports.

    Returns the plane to send it on, `NOT_READY`, or `PORTS_BUSY`; `st.count` holds its sequence and
    the number of its message. Call it again after each packet, and after any event of this QP.
    """
    if not may_send(st, q):
        return NOT_READY
    c = st.config[0]
    again = q.lost > 0
    seq = _oldest_lost(st, q) if again else q.nxt
    s = fate.slot_of(st, q, seq)
    avoid = int(s.ev) if again else -1
    # another dead path would cost as much as the first
    careful = again and s.fate >= fate.DOUBTED
    if careful:
        free_ports &= rotation.planes_without(st, q, avoid)
    ev = -1
    if c.burst > 1 and not again:
        ev = rotation.carried_on(st, q, free_ports)
    if ev >= 0:
        plane_no = int(st.ev[q.ev0 + ev].plane)
    else:
        plane_no = rotation.choose_plane(st, q, free_ports)
    if plane_no < 0:
        return PORTS_BUSY if q.planes_ok != 0 else NOT_READY
    if again:
        if seq >= q.una + q.mpr:  # MRC 1.5: a shrunken window delays retransmissions too
            return NOT_READY
        number = _message_of(st, q, seq)
    else:
        number = q.msg_cur
    m = st.message[q.msg0 + (number & q.msg_mask)]
    _fill_data(st, q, seq, m, p)
    p.msn = number & 0xFFFF
    st.count[es.SENT_SEQ] = seq
    st.count[es.SENT_MESSAGE] = number
    p.timestamp = es.timestamp_of(now)
    trial = -1
    if q.waiting > 0 and (not again or rotation.nothing_proven(st, q)):
        trial = probes.next_trial(st, q, int(p.payload_len), free_ports, again)
    if trial >= 0:
        ev = trial
        plane_no = int(st.ev[q.ev0 + ev].plane)
        if p.payload_len < st.blame[st.ev[q.ev0 + ev].blame].lost:
            trial = -1  # it fits: no trial, but a packet as any other
    else:
        plane = st.plane[q.plane0 + plane_no]
        if careful:
            ev = rotation.proven(st, q, plane_no)
        if ev < 0:
            ev = rotation.choose_ev(st, q, plane_no, avoid, now)
            if c.burst > 1 and not again:
                rotation.begin_burst(st, q, ev)
        rotation.charge_turn(q, plane, c.burst)
    st.ev[q.ev0 + ev].used += 1
    p.plane = plane_no
    p.ev = st.ev[q.ev0 + ev].value
    if c.trimming == 0 or q.untrimmable:
        p.flag_bits |= pk.NO_TRIM
    if again:
        _note_again(q, seq, p)
    else:
        _note_new(st, q, s, m, seq, p, now)
    fate.send(q, s, ev, now)
    if again or q.overdue_at == es.NEVER:
        q.overdue_at = min(q.overdue_at, now + loss.patience(q, 1 if again else 0, now))
    if not again:
        q.new_at = now
    q.tx_data_at = now
    if trial >= 0:  # row 11
        p.flag_bits |= pk.NO_TRIM | pk.ACK_REQ
        probes.begin_trial(st, q, trial, now)
        fate.enter(st, q, seq, fate.TRIAL, now)
    if not may_send(st, q):  # row 5: the last packet that it can send for now
        p.flag_bits |= pk.ACK_REQ
    return plane_no


@inlined
def _acknowledge(st, q, seq, now):
    """Record that a sequence is known received, for the first time."""
    s = fate.slot_of(st, q, seq)
    bits.mark(st.bits, q.acked0, q.ring_mask, seq)
    flies = s.fate == fate.SENT
    early = flies and fate.again(s) and loss.is_too_early(q, s.sent_at, now)
    if early or fate.received(s.before):
        loss.on_arrival_before(st, q, s, now)
        fate.enter(st, q, seq, fate.OTHER_ARRIVAL, now)
    elif flies:
        if s.before == fate.NONE:
            beliefs.on_delivery(st, q, int(s.ev), s.sent_at, int(s.bytes_nominal), now)
        fate.enter(st, q, seq, fate.ARRIVAL, now)
    else:
        loss.on_arrival(st, q, seq, now)
    s.known_units = q.rcvd_high & KNOWN_MASK
    if s.before == fate.NONE:
        q.evidence_at = max(q.evidence_at, s.sent_at)


@inlined
def _advance_una(st, q, now):
    """Move `una` past everything received contiguously; progress restarts the epochs (row 9)."""
    before = q.una
    while q.una < q.nxt:
        run = bits.ones_from(st.bits, q.acked0, q.ring_mask, q.una)
        if run == 0:
            break
        q.una = min(q.una + run, q.nxt)
    if q.una > before:
        if q.epoch > 0:  # the expiry of the current epoch may be far away
            q.rto_at = min(q.rto_at, now + q.rto)
        q.epoch = 0
        q.epoch_at = now
        loss.answered(q, now)
        if st.config[0].share_window and q.una == q.seq_end:
            pool.divide(st, q, -1)


@inlined
def _only_header_came(place, bitmap, received):
    """True if a snapshot shows its own trigger missing: that packet was trimmed (row 5). A header
    overtakes all data, so it gives no RTT sample, and a NACK reports on its path.
    """
    if received or place < 0 or place >= 64:
        return False
    return bits.above(bitmap, place) & bits.ONE == bits.ZERO


@inlined
def _is_second_copy(s, units):
    """Whether the trigger of a SACK is a duplicate: an older snapshot showed slot `s` received (row
    7).
    """
    return fate.received(s.fate) and es.signed(units - s.known_units, KNOWN_BITS) > 0


@inlined
def _sample(st, q, seq, timestamp, units, now):
    """The RTT sample of a SACK triggered by sequence `seq`, ps, or -1.

    A second copy of an original was made in the network, and may be late by any time.
    """
    s = fate.slot_of(st, q, seq)
    second = _is_second_copy(s, units)
    if s.before != fate.NONE:
        return _sample_again(st, q, s, timestamp, second, now)
    if second:
        return -1
    loss.note_sample(q, 0, now - s.sent_at)
    return now - s.sent_at


@inner
def _sample_again(st, q, s, timestamp, second, now):
    """The same for a retransmitted packet: the timestamp that the SACK echoes identifies the copy.

    If it is not the latest copy, an earlier one arrived and was not lost: its round trip is the
    time that answers may take. If it is the second to arrive, neither was lost.
    """
    latest = timestamp == es.timestamp_of(s.sent_at)
    if second or not latest:
        loss.on_arrival_before(st, q, s, now)
    if not latest:
        loss.note_rtt(q, 0, es.age_of(timestamp, now))
        return -1
    q.again_evidence_at = max(q.again_evidence_at, s.sent_at)
    loss.note_sample(q, 1, now - s.sent_at)
    return -1 if second else now - s.sent_at


@inlined
def _ev_of_trigger(st, q, seq, value):
    """The EV that a SACK or NACK reflects; the slot has it unless the packet was sent again
    since.
    """
    s = fate.slot_of(st, q, seq)
    if int(st.ev[q.ev0 + s.ev].value) == value:
        return int(s.ev)
    return index_of(st, q, value)


@inner
def _on_reflected_ev(st, q, ev, m, sent_at, now):
    """Apply what a SACK reports on the path that it reflects, of a packet sent at `sent_at`:
    marked, to be avoided, or good enough for control packets.
    """
    if ev < 0:
        return
    rotation.learn(st, q, ev, HEARD_CLEAN if m == pk.M_NONE else HEARD_MARKED, sent_at, now)
    if m == pk.M_SKIP_ONCE:
        if not st.config[0].ignore_marks:
            beliefs.on_mark(st, q, ev, now)
    elif m == pk.M_ALWAYS_SKIP:
        beliefs.on_always_skip(st, q, ev, now)


@inlined
def on_sack(st, q, p, now):
    """Process a RELIABILITY_SACK (MRC 2.6, 2.7): update slots, window, paths and losses of a QP.

    Returns NEVER_SENT, and changes nothing, if it refers to packets that this QP never sent.
    """
    cack = es.unwrap(int(p.cack_psn), q.first_psn, q.una - 1)
    base = cack + es.signed(int(p.sack_offset), 16)
    ahead = es.signed(int(p.rcvd_units) - q.rcvd_high, 24)
    units = q.rcvd_high + ahead
    if not _can_be_true(q, cack, base, p.bitmap, units):
        return NEVER_SENT
    newest = ahead >= 0
    q.rcvd_high = max(q.rcvd_high, units)
    loss.heard(st, q, now)
    answer = (p.flag_bits & pk.PROBE_ANSWER) != 0
    marked = p.m == pk.M_SKIP_ONCE
    rtt = -1
    if answer:
        _on_probe_answer(st, q, p, marked, now)
    else:
        trigger = cack + es.signed(int(p.ack_offset), 16)
        known = q.nxt - q.slot_mask - 1 <= trigger < q.nxt and trigger >= 0
        if known and not _only_header_came(trigger - base, p.bitmap, trigger <= cack):
            rtt = _sample(st, q, trigger, int(p.timestamp), units, now)
            rtt = loss.without_quiet(q, rtt, now)
            ev = _ev_of_trigger(st, q, trigger, int(p.entropy))
            sent_at = fate.slot_of(st, q, trigger).sent_at
            _on_reflected_ev(st, q, ev, int(p.m), sent_at, now)
            if q.tried > 0 and ev >= 0:
                skips = marked and st.config[0].ignore_marks == 0
                probes.on_trial_answer(st, q, ev, int(p.timestamp), skips, now)
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
    if q.dynamic_mpr and newest and p.mpr > 0:
        q.mpr = min(int(p.mpr) * 128, q.slot_mask + 1)
    window.on_sack(st, q, now, max(ahead, 0) * pk.RCVD_UNIT_BYTES, rtt, marked, int(p.penalty))
    loss.settle_doubts(st, q, now)
    _look_ahead(st, q, now)
    return HEARD


@inlined
def _can_be_true(q, cack, base, bitmap, units):
    """False if it reports a sequence, or more bytes, than were ever sent.

    One false `rcvd_bytes` would make all true snapshots look old, and losses would go undetected.
    """
    if cack >= q.nxt or cack < q.una - 1 - q.slot_mask:
        return False
    if units * pk.RCVD_UNIT_BYTES >= q.sent_bytes + pk.RCVD_UNIT_BYTES:
        return False
    return not bits.any_bit(bits.above(bitmap, q.nxt - base))


@inlined
def _look_ahead(st, q, now):
    """After new information: judge again the packets for which only evidence was missing; at the
    end of the data, wait for the transport ACK. It left with the SACK, on another plane, so the two
    arrive close together.
    """
    if loss.outstanding(q):
        q.finish_at = es.NEVER
        if q.doubt < max(q.evidence_at, q.again_evidence_at):
            q.overdue_at = now
    elif q.msg_done < q.msg_cur and q.finish_at == es.NEVER:
        q.finish_at = now + loss.allowance(q, q.base_rtt)
        q.queries = 0


@inner
def _on_probe_answer(st, q, p, marked, now):
    """The SACK answers a probe: of an ASSUMED_BAD EV, or of the QP itself (whose delivery is
    evidence, row 7).
    """
    number = int(p.ack_offset) & 0xFFFF
    value = int(p.entropy)
    skips = marked and st.config[0].ignore_marks == 0
    if (q.query_id - number) & 0xFFFF < q.asked:
        sent_at = probes.on_query_answer(st, q, value, q.query_sent_at, skips, now)
        q.evidence_at = max(q.evidence_at, sent_at)
        q.again_evidence_at = max(q.again_evidence_at, sent_at)
        loss.note_passed(q)
        loss.answered(q, now)
    elif q.n_bad > 0 or st.config[0].account:
        left_at = es.left_at(int(p.timestamp), now)
        sent_at = probes.on_probe_answer(st, q, value, number, left_at, skips, now)
        if sent_at > 0:
            q.evidence_at = max(q.evidence_at, sent_at)
            loss.note_passed(q)


@inner
def on_trimmed_packet(st, q, seq, last_hop, now):
    """A NACK reports that only the header of a packet in flight arrived (MRC 2.8, row 26).

    Its path delivers, but a queue is full: the window is cut, the packet is retransmitted at once,
    and the EV skips a turn, unless it was the last hop's queue, which all paths share.
    """
    s = fate.slot_of(st, q, seq)
    ev = int(s.ev)
    window.on_trim(st, q, now)
    overhead = int(st.config[0].nominal_overhead)  # a header came, and no payload
    beliefs.on_delivery(st, q, ev, s.sent_at, overhead, now)
    rotation.learn(st, q, ev, HEARD_TRIMMED, s.sent_at, now)
    fate.enter(st, q, seq, fate.TRIM, now)
    if last_hop:
        loss.note_trim(q, now)
    else:
        beliefs.on_mark(st, q, ev, now)


@inner
def on_nack(st, q, p, now):
    """Process a RELIABILITY_NACK (MRC 2.8): each reason has its own reaction, to a packet in
    flight.

    Returns NEVER_SENT, and changes nothing, if it refers to packets that this QP never sent.
    """
    reason = int(p.reason)
    seq = es.unwrap(int(p.psn), q.first_psn, q.una)
    if seq >= q.nxt or seq < q.una - 1 - q.slot_mask:
        return NEVER_SENT
    if seq < q.una:
        return HEARD
    if reason == pk.NACK_UNEXP_EVENT:
        loss.fail(st, q, es.REMOTE_OPERATION, now)
        return HEARD
    s = fate.slot_of(st, q, seq)
    trimmed = reason == pk.NACK_TRIMMED or reason == pk.NACK_TRIMMED_LASTHOP
    if s.fate == fate.SENT and (
        s.before == fate.NONE or int(st.ev[q.ev0 + s.ev].value) == int(p.entropy)
    ):
        if trimmed:
            on_trimmed_packet(st, q, seq, reason == pk.NACK_TRIMMED_LASTHOP, now)
        else:
            fate.enter(st, q, seq, fate.REFUSAL, now)
    if reason in pk.NACKS_OF_RESOURCES:
        c = st.config[0]
        if now - q.charged_at >= loss.epoch_length(q.rto, q.epoch, int(c.linear_cnt)):
            loss.charge(st, q, now)
            if q.state != es.RTS:
                return HEARD
    loss.heard(st, q, now)
    return HEARD


@inner
def on_ack(st, q, p, now):
    """Process a transport ACK or NAK (MRC 1.3, row 17): it completes every message up to its MSN.

    Returns NEVER_SENT, and changes nothing, if it refers to packets that this QP never sent. A NAK
    is the last packet of its sender, so no ACK with a higher MSN can have overtaken it, and it
    concerns an open message.
    """
    syndrome = int(p.reason)
    done = q.msg_done + es.signed(int(p.msn) - q.msg_done, 16) + 1
    if done > q.msg_cur:
        return NEVER_SENT
    if syndrome != pk.AETH_ACK:
        if done < q.msg_done or q.msg_done == q.msg_end:
            return NEVER_SENT
        invalid = syndrome == pk.AETH_NAK_INVALID_REQUEST
        loss.fail(st, q, es.REMOTE_INVALID_REQUEST if invalid else es.REMOTE_ACCESS, now)
        return HEARD
    while q.msg_done < done:
        m = st.message[q.msg0 + (q.msg_done & q.msg_mask)]
        if q.una < m.first_seq + m.n_packets:
            _acknowledge_message(st, q, m, now)
        if m.has_imm:
            q.wimm_open -= 1
        es.complete(st, es.DONE_SEND, q.index, m.wr_id, 0)
        q.msg_done += 1
        q.epoch = 0
    _advance_una(st, q, now)
    loss.heard(st, q, now)
    _look_ahead(st, q, now)
    return HEARD


@inner
def _acknowledge_message(st, q, m, now):
    """The transport ACK overtook the SACKs: all packets of a completed message are received.

    It is not a snapshot: it does not say how much had been received. It counts as a snapshot of
    everything sent, so that the SACK that it overtook is not taken for the report of a second copy.
    """
    for seq in range(max(q.una, m.first_seq), m.first_seq + m.n_packets):
        if not bits.test(st.bits, q.acked0, q.ring_mask, seq):
            _acknowledge(st, q, seq, now)
            s = fate.slot_of(st, q, seq)
            s.known_units = (q.sent_bytes // pk.RCVD_UNIT_BYTES + 1) & KNOWN_MASK
