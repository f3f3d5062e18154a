"""What a packet may say, given what came before: checks that the simulator's engine has no need of.

A plaintext protocol cannot know who wrote a packet. It can know that its headers agree with each
other, with the message that they belong to, and with what a peer would do. What does not is refused
here, before it can complete a message early or never, or spend more on answers than on data.
"""

from __future__ import annotations

from openmrc.engine import requester
from openmrc.engine.packet import (
    RTX,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
)
from openmrc.engine.state import signed
from openmrc.jit import inlined, inner

# A peer that writes where it may not sends its oldest refused packet again and again, marked as a
# retransmission; a stranger's guess comes once, or as a burst of copies. What is refused so often,
# at least half a round trip apart, is answered as MRC 1.3 says: it ends the QP.
REFUSED_MAX = 3

# Answers to what needs none (received before, outside the window): so many at once, one each round
# trip, and one for each so many new packets. One of them tells the sender all that the others
# would; without a limit a copied packet would cost more than a new one.
ANSWERS_AT_ONCE = 32.0
PACKETS_PER_ANSWER = 16


@inlined
def _first_of(opcode, seq, n):
    """Smallest and largest sequence that the first packet of a message of `n` packets may have."""
    if opcode == WRITE_LAST or opcode == WRITE_LAST_IMM:
        return seq - n + 1, seq - n + 1
    if opcode == WRITE_FIRST or opcode == WRITE_ONLY or opcode == WRITE_ONLY_IMM:
        return seq, seq
    return seq - n + 2, seq - 1


@inlined
def _shape_is_right(p, pmtu, n):
    """Opcode, payload length and message length agree (MRC 1.3, 1.4)."""
    opcode = int(p.opcode)
    if opcode == WRITE_ONLY or opcode == WRITE_ONLY_IMM:
        return n == 1 and p.payload_len == p.dma_len
    if opcode == WRITE_LAST or opcode == WRITE_LAST_IMM:
        return n > 1 and p.payload_len == p.dma_len - (n - 1) * pmtu
    return p.payload_len == pmtu and n > (1 if opcode == WRITE_FIRST else 2)


@inner
def fits_message(ep, st, q, p, seq):
    """A whole data packet with a sequence not received yet: note what it says of its message, or
    False if it contradicts itself or what the message's other packets said.
    """
    pmtu = st.config[0].pmtu
    n = requester.packets_of(p.dma_len, pmtu)
    if not _shape_is_right(p, pmtu, n):
        return False
    number = q.rx_msn + signed(int(p.msn) - q.rx_msn, 16)
    if number < q.rx_msn or number > q.rx_msn + q.rmsg_mask:
        return False  # complete already, or more messages than the peer may have open
    at = q.rmsg0 + (number & q.rmsg_mask)
    m = ep.under_way[at]
    first_min, first_max = _first_of(int(p.opcode), seq, n)
    origin = p.va - seq * pmtu
    if st.rx_message[at].received > 0:
        first_min = max(first_min, m.first_min)
        first_max = min(first_max, m.first_max)
        if m.origin != origin or m.rkey != p.rkey or ep.length[at] != p.dma_len:
            return False
        if first_min > first_max:
            return False
    m.origin = origin
    m.rkey = p.rkey
    m.first_min = first_min
    m.first_max = first_max
    ep.length[at] = p.dma_len
    return True


@inlined
def persists(q, live, p, now):
    """A packet that may not write, next in order: True if only the QP's peer can have sent it."""
    if live.refused == 0 or live.refused_psn != p.psn:
        live.refused = 1
        live.refused_psn = p.psn
        live.refused_at = now
    elif p.flag_bits & RTX and now - live.refused_at >= q.base_rtt // 2:
        live.refused += 1
        live.refused_at = now
    return live.refused >= REFUSED_MAX


@inlined
def earn_answers(live):
    """A new packet came."""
    live.answers += 1.0 / PACKETS_PER_ANSWER


@inlined
def may_answer(q, live, now):
    """Take one answer out of the QP's budget; False if it is spent."""
    earned = (now - live.answers_at) / max(q.base_rtt, 1)
    live.answers = min(live.answers + earned, ANSWERS_AT_ONCE)
    live.answers_at = now
    if live.answers < 1.0:
        return False
    live.answers -= 1.0
    return True
