"""The receiving end of a reliable connection: the next PSN, and nothing else (IB 9.7.4, 9.7.5).

A packet after a gap is discarded, and the first one is answered with a NAK that names the missing
PSN; no other NAK follows until that packet has arrived. A duplicate is acknowledged again. Packets
in order are acknowledged every `ack_every` packets and at the end of each message.
"""

from __future__ import annotations

from openmrc.engine import state as es
from openmrc.jit import inlined
from openmrc.sim.roce.requester import part_of

# classes of packets by their PSN
IN_ORDER, AGAIN, TOO_EARLY = 0, 1, 2
# what to answer
NOTHING, ACK, NAK = 0, 1, 2


@inlined
def judge(rq, psn):
    """Classify a packet by its PSN."""
    seq = es.unwrap(psn, int(rq.first_psn), rq.expected)
    if seq == rq.expected:
        return IN_ORDER
    return AGAIN if seq < rq.expected else TOO_EARLY


@inlined
def accept(st, rq, number):
    """Accept the expected packet, of message `number`; True if it ends this QP's part of it."""
    part = part_of(st, rq, number)
    rq.expected += 1
    rq.nak_sent = 0
    rq.unacked += 1
    return rq.expected == part.first_seq + part.n_packets


@inlined
def answer(ro, rq, what, ends):
    """Choose the answer to a packet."""
    if what == IN_ORDER:
        if ends or rq.unacked >= ro.c[0].ack_every:
            rq.unacked = 0
            return ACK
        return NOTHING
    if what == AGAIN:
        ro.c[0].duplicates += 1
        rq.unacked = 0
        return ACK
    ro.c[0].discarded += 1
    if rq.nak_sent:
        return NOTHING
    rq.nak_sent = 1
    rq.unacked = 0
    return NAK
