"""The receiving half of a QP: packets to placements, SACK, NACK and transport ACK.

Data may come in any order over any path: every packet says where it belongs (RETH), so it is placed
at once, and a bitmap remembers which sequences have come. Messages complete when all their packets
have; the transport ACK and immediates follow message order (MRC 1.3).
"""

from __future__ import annotations

from openmrc.engine import bits, loss, paths
from openmrc.engine.packet import (
    ACK_REQ,
    ACKNOWLEDGE,
    AETH_ACK,
    AETH_NAK_ACCESS_ERROR,
    AETH_NAK_INVALID_REQUEST,
    CE,
    CLASS_CONTROL,
    M_ALWAYS_SKIP,
    M_NONE,
    M_SKIP_ONCE,
    NACK,
    NACK_NO_RESOURCE,
    NACK_PSN_OOR_WINDOW,
    NACK_TRIMMED,
    NACK_TRIMMED_LASTHOP,
    PROBE_ANSWER,
    PSN_HALF,
    RCVD_UNIT_BYTES,
    RTX,
    SACK,
    TRIMMED,
    TRIMMED_LASTHOP,
    WRITE_LAST_IMM,
    WRITE_ONLY_IMM,
)
from openmrc.engine.state import (
    DONE_DELIVERED,
    DONE_RECV_IMM,
    LOCAL_ACCESS,
    LOCAL_IMM_OVERRUN,
    LOCAL_NO_RECEIVE,
    MARKS_PER_QP,
    NEVER,
    PLACED_LENGTH,
    PLACED_OFFSET,
    PLACED_REGION,
    REGION_INDEX_BITS,
    REVERSE_FIXED,
    REVERSE_PROBED,
    REVERSE_RANDOM,
    REVERSE_SPRAYED,
    RTS,
    complete,
    emit,
    psn_of,
    signed,
    unwrap,
)
from openmrc.jit import compiled, inlined, inner

NOTHING, PLACED = 0, 1


@inlined
def _control(st, q, p):
    """Address a control packet to the peer, over the next plane, on that plane's reverse EV (row
    14).
    """
    p.src = q.nic
    p.dst = q.peer_nic
    p.dst_qpn = q.peer_qpn
    p.klass = CLASS_CONTROL
    c = st.config[0]
    if c.reverse == REVERSE_FIXED:
        e = st.ev[q.ev0]
        p.plane = e.plane
        p.ev = e.value
        return
    up = paths.control_planes(st, q)
    turn = int(q.control_turn)
    for _ in range(q.n_planes):
        turn = turn + 1 if turn + 1 < q.n_planes else 0
        if (up >> turn) & 1:
            break
    q.control_turn = turn
    p.plane = turn
    if c.reverse == REVERSE_RANDOM:
        p.ev = bits.draw(st.stream, q.index)
        return
    plane = st.plane[q.plane0 + turn]
    if c.reverse == REVERSE_SPRAYED and plane.n_evs > 0:
        pick = bits.draw_below(st.stream, q.index, int(plane.n_evs))
        p.ev = st.ev[q.ev0 + plane.ev0 + pick].value
    else:
        p.ev = plane.reverse_ev


@inlined
def _block(seq):
    """First sequence of the 64-block of the bitmap that holds `seq`."""
    return seq - (seq & 63)


@inner
def _sack_base(st, q, seq):
    """Row 6: the block of the triggering PSN, in turn with older blocks: one that has had news
    since
    its last report, then those with holes. So every received PSN is reported at least twice.
    """
    lowest = _block(q.cack + 1)
    own = max(_block(seq), lowest)
    if own > q.own_block:
        _report_again(q, q.own_block)
        q.own_block = own
    q.sack_turn += 1
    if own == lowest or q.sack_turn & 1:
        return own
    if q.trail_left > 0 and q.trail_block >= lowest:
        q.trail_left -= 1
        return q.trail_block
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
def _report_again(q, block):
    """A block below the newest has news: the next two turns for older blocks are its own."""
    q.trail_block = block
    q.trail_left = 2


@inlined
def _marks_of(st, q, ev):
    """The record that watches an EV of this QP's sender."""
    return st.marks[q.index * MARKS_PER_QP + bits.mix32(ev) % MARKS_PER_QP]


@inner
def _watch(st, q, p):
    """Row 23: count the CE marks that an EV brings in a row."""
    w = _marks_of(st, q, int(p.ev))
    if w.ev != p.ev or p.flag_bits & CE == 0:
        w.ev = p.ev
        w.n = 0
    if p.flag_bits & CE:
        w.n += 1


@inner
def _verdict(st, q, p):
    """What a SACK says of the path of a marked packet: leave it out once, or for good (row 23)."""
    k = int(st.config[0].always_skip_after)
    if k > 0:
        w = _marks_of(st, q, int(p.ev))
        if w.ev == p.ev and w.n >= k:
            w.n = 0
            return M_ALWAYS_SKIP
    return M_SKIP_ONCE


@inner
def _send_sack(st, q, trigger, base, flags, ack_offset):
    """Emit a SACK with the snapshot `base ..

    base + 63` (MRC 2.6, 2.7), reflecting packet `trigger`.
    """
    p = emit(st)
    p.opcode = SACK
    p.flag_bits = flags
    _control(st, q, p)
    p.entropy = trigger.ev
    p.timestamp = trigger.timestamp
    p.cack_psn = psn_of(q.peer_psn, q.cack)
    p.ack_offset = max(ack_offset, -0x8000)
    p.sack_offset = base - q.cack
    p.bitmap = bits.word_at(st.bits, q.rx0, q.ring_mask, base)
    p.rcvd_units = ((q.rx_bytes + RCVD_UNIT_BYTES - 1) // RCVD_UNIT_BYTES) & 0xFF_FFFF
    p.ooo_count = min(max(q.rx_high - q.cack, 0), 0x7FFF)
    p.penalty = q.penalty
    p.m = _verdict(st, q, trigger) if trigger.flag_bits & CE else M_NONE
    if st.config[0].dynamic_mpr:
        p.mpr = q.mpr_now // 128
    q.sack_credit = 0
    q.n_sack += 1


@inner
def _send_nack(st, q, trigger, reason):
    """Emit a NACK about a packet (MRC 2.8)."""
    p = emit(st)
    p.opcode = NACK
    _control(st, q, p)
    p.reason = reason
    p.psn = trigger.psn
    p.entropy = trigger.ev
    p.timestamp = trigger.timestamp
    q.n_nack += 1


@inner
def _send_ack(st, q, syndrome):
    """Emit the transport ACK of everything completed in order, or a NAK (MRC 2.5, row 17)."""
    p = emit(st)
    p.opcode = ACKNOWLEDGE
    _control(st, q, p)
    p.reason = syndrome
    p.msn = (q.rx_msn - 1) & 0xFF_FFFF


@inlined
def region_of(st, q, p):
    """Index of the memory region that a packet may write to, or -1 (checked for each packet, MRC
    1.4).
    """
    index = int(p.rkey) & ((1 << REGION_INDEX_BITS) - 1)
    if index >= st.region.shape[0]:
        return -1
    r = st.region[index]
    if r.rkey != p.rkey or r.nic != q.nic:
        return -1
    # a difference, for a sum may wrap around: `va` is whatever the peer says
    if p.payload_len < 0 or p.va < r.va or p.va - r.va > r.length - p.payload_len:
        return -1
    return index


@inlined
def _advance_cack(st, q):
    """Move `cack` over everything received in a row, and clear the words it leaves behind for later
    sequences.
    """
    while True:
        run = bits.ones_from(st.bits, q.rx0, q.ring_mask, q.cack + 1)
        if run == 0:
            break
        if (q.cack + run) >> 6 != q.cack >> 6 and q.cack >= 0:
            bits.clear_word(st.bits, q.rx0, q.ring_mask, q.cack)
        q.cack += run


@inner
def _complete_in_order(st, qi, q, now):
    """Release messages in order: immediates, then the transport ACK. False if the QP fell into
    error.
    """
    moved = False
    while st.rx_message[q.rmsg0 + (q.rx_msn & q.rmsg_mask)].done:
        m = st.rx_message[q.rmsg0 + (q.rx_msn & q.rmsg_mask)]
        if m.has_imm:
            if st.config[0].must_post_receives:
                if q.receives == 0:
                    _send_ack(st, q, AETH_NAK_INVALID_REQUEST)
                    loss.fail(st, q, LOCAL_NO_RECEIVE, now)
                    return
                q.receives -= 1
            complete(st, DONE_RECV_IMM, qi, q.rx_msn, int(m.imm))
        if m.wimm:
            q.wimm_held -= 1
        m.done = 0
        m.received = 0
        m.has_imm = 0
        m.wimm = 0
        q.rx_msn += 1
        moved = True
    if moved:
        _send_ack(st, q, AETH_ACK)


@inner
def _on_duplicate(st, q, p, seq):
    """A packet that is here already: SACK at once, and repeat the transport ACK if all is complete
    (rows 5, 17).
    """
    q.n_dup += 1
    _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)
    if q.cack == q.rx_high and q.rx_msn > 0:
        _send_ack(st, q, AETH_ACK)


@inlined
def received(st, q, seq):
    """A sequence has been received."""
    return seq <= q.cack or (seq <= q.rx_high and bits.test(st.bits, q.rx0, q.ring_mask, seq))


@inner
def _on_trimmed(st, q, p, seq):
    """Only the header came: ask for the packet again, unless it is here already (MRC 5.7)."""
    if received(st, q, seq):
        _on_duplicate(st, q, p, seq)
    elif p.flag_bits & TRIMMED_LASTHOP:
        _send_nack(st, q, p, NACK_TRIMMED_LASTHOP)
    else:
        _send_nack(st, q, p, NACK_TRIMMED)


@inlined
def _hears(st, q, now):
    """Something came: the way back must stay fresh from now on (MRC 3.9, ports.py)."""
    q.rx_heard_at = now
    if q.reverse_probe_at == NEVER and st.config[0].reverse == REVERSE_PROBED:
        q.reverse_probe_at = now + q.base_rtt


@compiled
def on_data(st, qi, p, now):
    """A data packet, whole or trimmed.

    PLACED if its payload is to be placed: `st.count` holds region, offset, length.
    """
    q = st.qp[qi]
    if q.state != RTS:
        return NOTHING
    _hears(st, q, now)
    ahead = (int(p.psn) - psn_of(q.peer_psn, q.cack + 1)) & 0xFF_FFFF
    seq = q.cack + 1 + (ahead if ahead < PSN_HALF else ahead - 0x100_0000)
    if seq > q.cack + q.mpr_now:
        _send_nack(st, q, p, NACK_PSN_OOR_WINDOW)  # row 16
        return NOTHING
    if p.flag_bits & (TRIMMED | TRIMMED_LASTHOP):
        _on_trimmed(st, q, p, seq)
        return NOTHING
    if received(st, q, seq):
        _on_duplicate(st, q, p, seq)
        return NOTHING
    number = q.rx_msn + signed(int(p.msn) - q.rx_msn, 16)
    if number < q.rx_msn or number > q.rx_msn + q.rmsg_mask:
        _send_nack(st, q, p, NACK_NO_RESOURCE)
        return NOTHING
    region = region_of(st, q, p)
    if region < 0:
        _send_ack(st, q, AETH_NAK_ACCESS_ERROR)
        loss.fail(st, q, LOCAL_ACCESS, now)
        return NOTHING
    c = st.config[0]
    if c.always_skip_after > 0:
        _watch(st, q, p)
    m = st.rx_message[q.rmsg0 + (number & q.rmsg_mask)]
    if p.opcode == WRITE_LAST_IMM or p.opcode == WRITE_ONLY_IMM:
        if q.wimm_held >= c.max_wimm:
            _send_ack(st, q, AETH_NAK_INVALID_REQUEST)  # row 18
            loss.fail(st, q, LOCAL_IMM_OVERRUN, now)
            return NOTHING
        q.wimm_held += 1
        m.wimm = 1
        m.has_imm = 1
        m.imm = p.imm
    st.count[PLACED_REGION] = region
    st.count[PLACED_OFFSET] = p.va - st.region[region].va
    st.count[PLACED_LENGTH] = p.payload_len
    bits.mark(st.bits, q.rx0, q.ring_mask, seq)
    q.rx_high = max(q.rx_high, seq)
    if seq < q.own_block:
        _report_again(q, _block(seq))
    nominal = p.payload_len + c.nominal_overhead
    q.rx_bytes += nominal
    q.sack_credit += nominal
    if seq == q.cack + 1:
        _advance_cack(st, q)
    if m.received == 0:
        m.total = max((p.dma_len + c.pmtu - 1) // c.pmtu, 1)
    m.received += 1
    finished = m.received == m.total
    if finished:
        m.done = 1
        complete(st, DONE_DELIVERED, qi, number, 0)
    if p.flag_bits & (CE | RTX | ACK_REQ) or q.sack_credit >= c.sack_bytes:
        _send_sack(st, q, p, _sack_base(st, q, seq), 0, seq - q.cack)
    if finished and number == q.rx_msn:
        _complete_in_order(st, qi, q, now)
    return PLACED


@compiled
def on_probe(st, qi, p, now):
    """A reliability probe (MRC 2.9, row 6): a fresh snapshot from the first hole on; the newest
    block as well, if beyond.
    """
    q = st.qp[qi]
    if q.state != RTS:
        return
    _hears(st, q, now)
    # A probe goes where the sender wants to know; what answers it takes the plane that it came on.
    arrival = int(p.plane) - 1
    q.control_turn = arrival
    base = q.cack + 1
    _send_sack(st, q, p, base, PROBE_ANSWER, p.ack_offset)
    if q.rx_high > base + 63:
        q.control_turn = arrival
        _send_sack(st, q, p, _block(q.rx_high), PROBE_ANSWER, p.ack_offset)
    if q.cack == q.rx_high and q.rx_msn > 0:
        q.control_turn = arrival
        _send_ack(st, q, AETH_ACK)


@compiled
def set_dynamic_mpr(st, qi, packets):
    """Announce another receive window (MRC 1.5), a multiple of 128; takes effect with the next
    SACK.
    """
    q = st.qp[qi]
    q.mpr_now = min(packets, q.rx_mpr)


def sequence_of(q, psn):
    """The sequence number that a PSN from the peer means now (for people and tests)."""
    return unwrap(psn, q.peer_psn, q.cack + 1)
