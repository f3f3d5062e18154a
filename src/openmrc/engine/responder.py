"""The receiving half of a QP: places payloads, and sends SACKs, NACKs and transport ACKs.

Data may arrive in any order over any path: every packet carries its address (RETH), so it is placed
at once, and a bitmap records which sequences have arrived. A message completes when all its packets
have arrived; the transport ACK and immediates follow message order (MRC 1.3).
"""

from __future__ import annotations

from openmrc.engine import bits, loss, plausible, policy, rotation, verdict
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import inlined, inner

# Blocks of the bitmap below the newest that have changed: the one that was newest before, and one
# that a late packet belongs to.
LEFT, LATE = 0, 1


@inlined
def _control(st, q, p):
    """Address a control packet to the peer, over the next plane, on that plane's reverse EV; on a
    random one while it is not known to deliver (row 14).
    """
    es.address(p, q)
    p.klass = pk.CLASS_CONTROL
    c = st.config[0]
    if c.reverse == policy.REVERSE_FIXED:
        e = st.ev[q.ev0]
        p.plane = e.plane
        p.ev = e.value
        return
    up = rotation.control_planes(st, q)
    turn = int(q.control_turn)
    for _ in range(q.n_planes):
        turn = turn + 1 if turn + 1 < q.n_planes else 0
        if (up >> turn) & 1:
            break
    q.control_turn = turn
    p.plane = turn
    if c.reverse == policy.REVERSE_RANDOM:
        p.ev = bits.draw(st.stream, q.index)
        return
    plane = st.plane[q.plane0 + turn]
    if c.local_evs and not plane.reverse_known:
        p.ev = rotation.random_ev(st, q, turn, -1, True)
    elif c.reverse == policy.REVERSE_SPRAYED and plane.n_evs > 0:
        pick = bits.draw_below(st.stream, q.index, int(plane.n_evs))
        p.ev = st.ev[q.ev0 + plane.ev0 + pick].value
    else:
        p.ev = plane.reverse_ev


@inlined
def _block(seq):
    """First sequence of the 64-block of the bitmap that holds `seq`."""
    return seq - (seq & 63)


@inlined
def _own_base(q, seq):
    """The block of a sequence, or the first block with a hole if that is later."""
    return max(_block(seq), _block(q.cack + 1))


@inner
def _sack_base(st, q, seq):
    """Row 6: the block of the triggering PSN, alternating with older blocks: first those that
    changed since their last report, then those with holes. So every received PSN is reported at
    least twice.
    """
    lowest = _block(q.cack + 1)
    own = _own_base(q, seq)
    if own > q.own_block:
        _report_again(q, LEFT, q.own_block)
        q.own_block = own
    if own == lowest:
        return own
    q.sack_turn += 1
    if q.sack_turn & 1:
        return own
    for k in range(2):
        if q.trail_left[k] > 0 and q.trail_block[k] >= lowest:
            q.trail_left[k] -= 1
            return q.trail_block[k]
    base = q.hole_cursor + 64
    if base < lowest or base >= own:
        base = lowest
    while base < own and bits.ones_from(st.bits, q.rx0, q.ring_mask, base) == 64:
        base += 64
    if base >= own:
        base = lowest
    q.hole_cursor = base
    return base


@inlined
def _report_again(q, why, block):
    """A block below the newest has changed: it gets two of the next turns for older blocks."""
    q.trail_block[why] = block
    q.trail_left[why] = 2


@inlined
def _late_news(q, block):
    """A packet arrived late, in a block below the newest. Retransmissions must not take the turns
    of the block that was the newest until now: nothing else would report its end.
    """
    left_now = q.trail_left[LEFT] > 0 and q.trail_block[LEFT] == block
    _report_again(q, LEFT if left_now else LATE, block)


@inlined
def _marks_of(st, q, ev):
    """The record that counts the marks of an EV of this QP's sender."""
    return st.marks[q.index * es.MARKS_PER_QP + bits.mix32(ev) % es.MARKS_PER_QP]


@inner
def _watch(st, q, p):
    """Row 23: count the CE marks in a row on an EV."""
    w = _marks_of(st, q, int(p.ev))
    if w.ev != p.ev or p.flag_bits & pk.CE == 0:
        w.ev = p.ev
        w.n = 0
    if p.flag_bits & pk.CE:
        w.n += 1


@inner
def _skip_advice(st, q, p):
    """What a SACK says of the path of a marked packet: skip it once, or for good (row 23)."""
    k = int(st.config[0].always_skip_after)
    if k > 0:
        w = _marks_of(st, q, int(p.ev))
        if w.ev == p.ev and w.n >= k:
            w.n = 0
            return pk.M_ALWAYS_SKIP
    return pk.M_SKIP_ONCE


@inner
def _send_sack(st, q, trigger, base, flags, ack_offset):
    """Emit a SACK with the snapshot `base .. base + 63` (MRC 2.6, 2.7), reflecting `trigger`."""
    p = es.emit(st, pk.SACK)
    p.flag_bits = flags
    _control(st, q, p)
    p.entropy = trigger.ev
    p.timestamp = trigger.timestamp
    p.cack_psn = es.psn_of(q.peer_psn, q.cack)
    p.psn = p.cack_psn  # row 30
    p.ack_offset = max(ack_offset, -0x8000)
    p.sack_offset = base - q.cack
    p.bitmap = bits.word_at(st.bits, q.rx0, q.ring_mask, base)
    p.rcvd_units = ((q.rx_bytes + pk.RCVD_UNIT_BYTES - 1) // pk.RCVD_UNIT_BYTES) & 0xFF_FFFF
    p.ooo_count = min(max(q.rx_high - q.cack, 0), 0x7FFF)
    p.penalty = q.penalty
    p.m = _skip_advice(st, q, trigger) if trigger.flag_bits & pk.CE else pk.M_NONE
    if q.dynamic_mpr:
        p.mpr = q.mpr_now // 128
    if q.rx_high < base + 64:  # everything received since the last SACK is reported
        q.sack_credit = 0
    q.n_sack += 1


@inner
def _send_nack(st, q, trigger, reason):
    """Emit a NACK that answers a packet (MRC 2.8)."""
    p = es.emit(st, pk.NACK)
    _control(st, q, p)
    p.reason = reason
    p.psn = trigger.psn
    p.entropy = trigger.ev
    p.timestamp = trigger.timestamp
    q.n_nack += 1


@inner
def _send_ack(st, q):
    """Emit the transport ACK of everything completed in order (MRC 2.5, row 17): its PSN is that of
    the last packet that it covers (row 30).
    """
    _acknowledge(st, q, pk.AETH_ACK, es.psn_of(q.peer_psn, q.rx_done))


@inlined
def _acknowledge(st, q, syndrome, psn):
    """Emit an AETH: that of an ACK, or of a NAK for the packet `psn`."""
    p = es.emit(st, pk.ACKNOWLEDGE)
    _control(st, q, p)
    p.reason = syndrome
    p.psn = psn
    p.msn = (q.rx_msn - 1) & 0xFF_FFFF


@inlined
def region_of(st, q, p):
    """Index of the memory region that a packet may write to, or -1 (checked for each packet, MRC
    1.4).
    """
    index = int(p.rkey) & ((1 << es.REGION_INDEX_BITS) - 1)
    if index >= st.region.shape[0]:
        return -1
    r = st.region[index]
    if r.rkey != p.rkey or r.nic != q.nic:
        return -1
    # a difference, because a sum may wrap around: the peer chooses `va`
    if p.payload_len < 0 or p.va < r.va or p.va - r.va > r.length - p.payload_len:
        return -1
    return index


@inlined
def post_receive(q):
    """The application has posted one more receive."""
    q.receives += 1


@inlined
def _advance_cack(st, q):
    """Move `cack` over everything received contiguously, and clear the words behind it for later
    sequences.
    """
    while True:
        run = bits.ones_from(st.bits, q.rx0, q.ring_mask, q.cack + 1)
        if run == 0:
            break
        if (q.cack + run) >> 6 != q.cack >> 6 and q.cack >= 0:
            bits.clear_word(st.bits, q.rx0, q.ring_mask, q.cack)
        q.cack += run


@inlined
def _nothing_follows(st, q):
    """No message is in progress whose ACK would repeat the last one, and there is another plane."""
    under_way = st.rx_message[q.rmsg0 + (q.rx_msn & q.rmsg_mask)].received != 0
    return (
        q.cack == q.rx_high and not under_way and rotation.several(rotation.control_planes(st, q))
    )


@inner
def _complete_in_order(st, q, now):
    """Complete messages in order: immediates, then the transport ACK. An immediate without a posted
    receive fails the QP.
    """
    moved = False
    while st.rx_message[q.rmsg0 + (q.rx_msn & q.rmsg_mask)].done:
        m = st.rx_message[q.rmsg0 + (q.rx_msn & q.rmsg_mask)]
        if m.has_imm:
            if st.config[0].must_post_receives:
                if q.receives == 0:
                    last = es.psn_of(q.peer_psn, q.rx_done + m.total)
                    _acknowledge(st, q, pk.AETH_NAK_INVALID_REQUEST, last)
                    loss.fail(st, q, es.LOCAL_NO_RECEIVE, now)
                    return
                q.receives -= 1
            es.complete(st, es.DONE_RECV_IMM, q.index, q.rx_msn, int(m.imm))
        if m.wimm:
            q.wimm_held -= 1
        m.done = 0
        m.received = 0
        m.has_imm = 0
        m.wimm = 0
        q.rx_msn += 1
        q.rx_done += m.total
        moved = True
    if moved:
        _send_ack(st, q)
        if _nothing_follows(st, q):
            _send_ack(st, q)


@inlined
def _hears(st, q, p, now):
    """A packet arrived: from now on the reverse path must stay fresh (MRC 3.9, ports.py). While
    none is known to deliver, answers take the way that this packet came (row 14).
    """
    q.rx_heard_at = now
    rotation.note_arrival(q, int(p.plane), now)
    c = st.config[0]
    if c.reverse != policy.REVERSE_PROBED:
        return
    plane = st.plane[q.plane0 + p.plane]
    if not plane.reverse_known and not c.local_evs:
        rotation.answer_as_it_came(st, q, plane, int(p.ev))
    if q.reverse_probe_at == es.NEVER:
        q.reverse_probe_at = now + q.base_rtt


@inner
def _on_duplicate(st, q, p, seq, now):
    """A duplicate: SACK at once, and repeat the transport ACK if everything is complete (rows 5,
    17).
    """
    if plausible.may_answer(st, q, now):
        _hears(st, q, p, now)
        _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)
        if q.cack == q.rx_high and q.rx_msn > 0:
            _send_ack(st, q)
        if seq < 0:  # row 20: a duplicate of nothing
            return verdict.MTU_ASKED
    q.n_dup += 1
    return verdict.DUPLICATE


@inlined
def received(st, q, seq):
    """Whether a sequence has been received."""
    return seq <= q.cack or (seq <= q.rx_high and bits.test(st.bits, q.rx0, q.ring_mask, seq))


@inner
def on_trimmed_packet(st, q, p, seq, now):
    """Only the header of a packet that is still missing arrived: request it again (MRC 5.7).

    If it asked for a SACK, its sender may be unable to send before it learns what else has arrived
    (row 5).
    """
    _hears(st, q, p, now)
    if st.config[0].trim_nack == 0:  # MRC 1.9: as agreed; the sender probes instead
        return verdict.HEADER_ONLY
    last_hop = p.flag_bits & pk.TRIMMED_LASTHOP
    _send_nack(st, q, p, pk.NACK_TRIMMED_LASTHOP if last_hop else pk.NACK_TRIMMED)
    if p.flag_bits & pk.ACK_REQ:
        if q.sack_credit > 0:
            _send_sack(st, q, p, _own_base(q, seq), 0, seq - q.cack)
        q.asked_seq = max(q.asked_seq, seq)
    return verdict.HEADER_ONLY


@inner
def _on_bad_key(st, q, p, seq, now):
    """A packet without write access at its address: it ends the QP, if the QP's peer sent it."""
    if plausible.persists(st, q, p, seq, now):
        _acknowledge(st, q, pk.AETH_NAK_ACCESS_ERROR, int(p.psn))
        loss.fail(st, q, es.LOCAL_ACCESS, now)
    return verdict.BAD_KEY


@inner
def on_data(st, q, p, now):
    """Process a data packet, whole or trimmed, and return the verdict.

    PLACED if its payload is to be placed: `st.count` holds region, offset, length and sequence.
    """
    c = st.config[0]
    if p.payload_len > c.pmtu:
        return verdict.TOO_LONG
    seq = es.unwrap(int(p.psn), q.peer_psn, q.cack + 1)
    if seq > q.cack + q.mpr_now:
        if plausible.may_answer(st, q, now):
            _hears(st, q, p, now)
            _send_nack(st, q, p, pk.NACK_PSN_OOR_WINDOW)  # row 16
        return verdict.OUT_OF_WINDOW
    if received(st, q, seq):
        return _on_duplicate(st, q, p, seq, now)
    if p.flag_bits & (pk.TRIMMED | pk.TRIMMED_LASTHOP):
        return on_trimmed_packet(st, q, p, seq, now)
    region = region_of(st, q, p)
    if region < 0:
        return _on_bad_key(st, q, p, seq, now)
    if c.guarded and not plausible.shape_is_right(p, c.pmtu):
        return verdict.CONTRADICTORY
    number = q.rx_msn + es.signed(int(p.msn) - q.rx_msn, 16)
    if number < q.rx_msn or number > q.rx_msn + q.rmsg_mask:
        if c.guarded:  # already complete, or more messages than the peer may have open
            return verdict.CONTRADICTORY
        _hears(st, q, p, now)
        _send_nack(st, q, p, pk.NACK_NO_RESOURCE)
        return verdict.NO_RESOURCE
    at = q.rmsg0 + (number & q.rmsg_mask)
    if c.guarded and not plausible.fits_message(st, at, p, seq):
        return verdict.CONTRADICTORY
    _hears(st, q, p, now)
    if c.always_skip_after > 0:
        _watch(st, q, p)
    m = st.rx_message[at]
    if p.opcode == pk.WRITE_LAST_IMM or p.opcode == pk.WRITE_ONLY_IMM:
        if q.wimm_held >= c.max_wimm:
            _acknowledge(st, q, pk.AETH_NAK_INVALID_REQUEST, int(p.psn))  # row 18
            loss.fail(st, q, es.LOCAL_IMM_OVERRUN, now)
            return verdict.IMM_OVERRUN
        q.wimm_held += 1
        m.wimm = 1
        m.has_imm = 1
        m.imm = p.imm
    st.count[es.PLACED_REGION] = region
    st.count[es.PLACED_OFFSET] = p.va - st.region[region].va
    st.count[es.PLACED_LENGTH] = p.payload_len
    st.count[es.PLACED_SEQ] = seq
    bits.mark(st.bits, q.rx0, q.ring_mask, seq)
    q.rx_high = max(q.rx_high, seq)
    if seq < q.own_block:
        _late_news(q, _block(seq))
    nominal = p.payload_len + c.nominal_overhead
    q.rx_bytes += nominal
    q.sack_credit += nominal
    if seq == q.cack + 1:
        _advance_cack(st, q)
    if m.received == 0:
        m.total = es.packets_of(p.dma_len, c.pmtu)
    m.received += 1
    finished = m.received == m.total
    if finished:
        m.done = 1
        es.complete(st, es.DONE_DELIVERED, q.index, number, 0)
    if seq < q.asked_seq:  # late: the sender asked about later packets and waits for this one
        _send_sack(st, q, p, _own_base(q, seq), 0, seq - q.cack)
    elif q.sack_credit >= c.sack_bytes:
        _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)
        q.sack_credit = 0
    elif p.flag_bits & (pk.CE | pk.RTX | pk.ACK_REQ):
        _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)
    if p.flag_bits & pk.ACK_REQ:
        q.asked_seq = max(q.asked_seq, seq)
    if finished and number == q.rx_msn:
        _complete_in_order(st, q, now)
    if c.guarded:
        plausible.earn_answers(st, q)
    return verdict.PLACED


@inner
def _doubt_way_back(st, q, plane):
    """Two probes with no data in between suggest that the answer to the first was lost: the reverse
    EV of the plane is not known to deliver any more.
    """
    if st.config[0].reverse == policy.REVERSE_PROBED and q.probed_bytes == q.rx_bytes:
        plane.reverse_known = 0
    q.probed_bytes = q.rx_bytes


@inner
def on_probe(st, q, p, now):
    """Process a reliability probe (MRC 2.9, row 6): a fresh snapshot from the first hole on; that
    of the newest block as well, if it lies beyond.
    """
    _doubt_way_back(st, q, st.plane[q.plane0 + p.plane])
    _hears(st, q, p, now)
    # The sender probes the plane that it wants to know about, so the answers take the same one.
    arrival = int(p.plane) - 1
    q.control_turn = arrival
    base = q.cack + 1
    _send_sack(st, q, p, base, pk.PROBE_ANSWER, p.ack_offset)
    if q.rx_high > base + 63:
        q.control_turn = arrival
        _send_sack(st, q, p, _block(q.rx_high), pk.PROBE_ANSWER, p.ack_offset)
    if q.cack == q.rx_high and q.rx_msn > 0:
        q.control_turn = arrival
        _send_ack(st, q)
    return verdict.HEARD
