"""Plausibility checks of a packet against the packets before it.

A plaintext protocol cannot know who wrote a packet. It can check that the headers agree with each
other, with their message, and with the behaviour of a peer. Packets that do not agree are refused
here, before they can complete a message early or never, or cause more answers than data.

The checks cost time for each packet, and memory for each message and QP, and are for endpoints to
which anybody can send (`CONFIG.guarded`). The simulator has no hostile senders, and compares every
byte that is placed with what was sent.
"""

from __future__ import annotations

from openmrc.engine import packet as pk
from openmrc.engine.state import packets_of
from openmrc.jit import inlined, inner

# A peer that writes where it may not sends its oldest refused packet again and again, marked as a
# retransmission; an attacker's guess comes once, or as a burst of copies. A PSN that is refused
# this often, at least half a round trip apart, is answered as MRC 1.3 says: it ends the QP.
REFUSED_MAX = 3

# Answers to packets that need none (duplicates, outside the window): a burst of this many, then one
# each round trip, and one for every few new packets. One of them tells the sender all that the
# others would; without a limit a copied packet would cost more than a new one.
ANSWERS_AT_ONCE = 32.0
PACKETS_PER_ANSWER = 16


@inlined
def shape_is_right(p, pmtu):
    """Opcode, payload length and message length agree (MRC 1.3, 1.4)."""
    opcode = p.opcode
    if opcode == pk.WRITE_MIDDLE:
        return p.payload_len == pmtu and p.dma_len > 2 * pmtu
    if opcode == pk.WRITE_FIRST:
        return p.payload_len == pmtu and p.dma_len > pmtu
    if opcode == pk.WRITE_LAST or opcode == pk.WRITE_LAST_IMM:
        return p.dma_len > pmtu and p.payload_len == (p.dma_len - 1) % pmtu + 1
    return p.dma_len <= pmtu and p.payload_len == p.dma_len


@inlined
def _first_of(opcode, seq, n):
    """Smallest and largest sequence that the first packet of this packet's message of `n` may
    have.
    """
    if opcode == pk.WRITE_LAST or opcode == pk.WRITE_LAST_IMM:
        return seq - n + 1, seq - n + 1
    if opcode == pk.WRITE_FIRST or opcode == pk.WRITE_ONLY or opcode == pk.WRITE_ONLY_IMM:
        return seq, seq
    return seq - n + 2, seq - 1


@inner
def fits_message(st, at, p, seq):
    """For a whole data packet with a sequence not received yet: record its claims about the message
    of record `at`; False if they contradict the message's other packets.
    """
    pmtu = st.config[0].pmtu
    m = st.under_way[at]
    n = packets_of(p.dma_len, pmtu)
    first_min, first_max = _first_of(int(p.opcode), seq, n)
    origin = p.va - seq * pmtu
    if st.rx_message[at].received > 0:
        first_min = max(first_min, m.first_min)
        first_max = min(first_max, m.first_max)
        if m.origin != origin or m.rkey != p.rkey or m.length != p.dma_len:
            return False
        if first_min > first_max:
            return False
    m.origin = origin
    m.rkey = p.rkey
    m.first_min = first_min
    m.first_max = first_max
    m.length = p.dma_len
    return True


@inner
def persists(st, q, p, seq, now):
    """For a packet without write access: True if only the QP's peer can have sent it."""
    if st.config[0].guarded == 0:
        return True
    if seq != q.cack + 1:
        return False
    g = st.guard[q.index]
    if g.refused == 0 or g.refused_psn != p.psn:
        g.refused = 1
        g.refused_psn = p.psn
        g.refused_at = now
    elif p.flag_bits & pk.RTX and now - g.refused_at >= q.base_rtt // 2:
        g.refused += 1
        g.refused_at = now
    return g.refused >= REFUSED_MAX


@inlined
def earn_answers(st, q):
    """A new packet arrived: add to the QP's budget of answers."""
    st.guard[q.index].answers += 1.0 / PACKETS_PER_ANSWER


@inner
def may_answer(st, q, now):
    """Take one answer from the QP's budget; False if it is spent."""
    if st.config[0].guarded == 0:
        return True
    g = st.guard[q.index]
    earned = (now - g.answers_at) / max(q.base_rtt, 1)
    g.answers = min(g.answers + earned, ANSWERS_AT_ONCE)
    g.answers_at = now
    if g.answers < 1.0:
        return False
    g.answers -= 1.0
    return True
