"""Prefetches what the coming calls for a QP will touch. Hints: no result depends on them.

What a call touches is found through a chain of records: the record of the QP names its window and
its planes, those the rotation, an entry of the rotation an EV. Each function fetches one link of
the chain, and reads what the one before it has fetched: call them some time apart, in this order.
"""

from __future__ import annotations

from openmrc.engine import place
from openmrc.engine.packet import LAST_DATA, SACK
from openmrc.engine.state import QP, signed, unwrap
from openmrc.jit import CACHE_LINE, inlined, offset_of
from openmrc.jit.instructions import prefetch

_TIMERS = offset_of(QP, "last_heard")
_RESPONDER = offset_of(QP, "rx0")


@inlined
def fetch_record(st, qi):
    """The cache lines of a QP's record that a packet sent or received touches."""
    prefetch(st.qp, qi, 0)
    prefetch(st.qp, qi, CACHE_LINE)
    prefetch(st.qp, qi, 2 * CACHE_LINE)
    prefetch(st.qp, qi, 3 * CACHE_LINE)
    prefetch(st.qp, qi, 4 * CACHE_LINE)
    prefetch(st.qp, qi, _TIMERS)
    prefetch(st.qp, qi, _RESPONDER)
    prefetch(st.qp, qi, _RESPONDER + CACHE_LINE)


@inlined
def fetch_window(st, qi, k):
    """What the record of a QP refers to that sends next, on plane `k`."""
    q = st.qp[qi]
    prefetch(st.plane, place.plane(q, k), 0)
    prefetch(st.slot, place.slot(q, q.nxt), 0)
    prefetch(st.message, place.message(q, q.msg_cur), 0)
    prefetch(st.bits, q.acked0 + ((q.nxt & q.ring_mask) >> 6), 0)


@inlined
def fetch_received(st, qi, p):
    """What the record of a QP refers to that packet `p` arrives for."""
    q = st.qp[qi]
    if p.opcode <= LAST_DATA:
        seq = unwrap(int(p.psn), q.peer_psn, q.cack + 1)
        prefetch(st.bits, q.rx0 + ((seq & q.ring_mask) >> 6), 0)
        prefetch(st.plane, place.plane(q, int(p.plane)), 0)
        prefetch(st.rx_message, place.rx_message(q, q.rx_msn), 0)
    elif p.opcode == SACK:
        prefetch(st.slot, _slot_answered(q, p), 0)
        fetch_window(st, qi, int(p.plane))


@inlined
def _slot_answered(q, p):
    """Index of the slot of the packet that a SACK answers."""
    cack = unwrap(int(p.cack_psn), q.first_psn, q.una - 1)
    return place.slot(q, cack + signed(int(p.ack_offset), 16))


@inlined
def _next_in_order(st, q, k):
    """Index of a QP's next EV in the rotation of plane `k`."""
    return q.order0 + k * q.order_len + st.plane[place.plane(q, k)].pos


@inlined
def fetch_rotation(st, qi, k):
    """The place in the rotation of plane `k`."""
    prefetch(st.order, _next_in_order(st, st.qp[qi], k), 0)


@inlined
def fetch_answered(st, qi, p):
    """The EV of the packet that SACK `p` answers, and the place in the rotation of its plane."""
    q = st.qp[qi]
    prefetch(st.ev, place.ev(q, st.slot[_slot_answered(q, p)].ev), 0)
    prefetch(st.order, _next_in_order(st, q, int(p.plane)), 0)


@inlined
def fetch_ev(st, qi, k):
    """The EV of the next packet on plane `k`."""
    q = st.qp[qi]
    prefetch(st.ev, place.ev(q, st.order[_next_in_order(st, q, k)]), 0)
