"""The receiving end of a reliable connection: the next PSN, and nothing else (IB 9.7.4, 9.7.5).

A packet behind a gap is discarded, and the first one is answered with a NAK that names the PSN that
is missing; no other NAK follows until that one has come. A packet that came before is answered with
an acknowledgement again. What is in order is acknowledged every `ack_every` packets and at the end
of each message.
"""

from __future__ import annotations

from openmrc.engine.state import unwrap
from openmrc.jit import inlined
from openmrc.sim.roce.requester import part_of

# what a packet is, and so what becomes of it
IN_ORDER, AGAIN, TOO_EARLY = 0, 1, 2
# what to answer
NOTHING, ACK, NAK = 0, 1, 2


@inlined
def judge(rq, psn):
    """What a packet's PSN makes it."""
    seq = unwrap(psn, int(rq.first_psn), rq.expected)
    if seq == rq.expected:
        return IN_ORDER
    return AGAIN if seq < rq.expected else TOO_EARLY


@inlined
def accept(st, rq, sender, number):
    """The expected packet, of message `number`, is taken; True if it ends the part of that.

    `sender` is the other end: its parts are what the responder's memory will hold.
    """
    part = part_of(st, sender, number)
    rq.expected += 1
    rq.nak_sent = 0
    rq.unacked += 1
    return rq.expected == part.first_seq + part.n_packets


@inlined
def answer(ro, rq, what, ends):
    """What to answer to a packet."""
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
