"""Prefetches the data of coming events while others are handled.

At thousands of NICs nearly everything that an event touches has left the caches since it was last
used, and it is found through a chain of records: the event names a port or a QP, the QP its window
and its paths, an entry of the rotation an EV. Waiting for each in turn costs more than all the
computation. So a scout walks the lists of the wheel some tens of events ahead of the loop, and each
event passes several stages: the data that one stage fetched has arrived when the next one follows
the chain.

A world that fits the caches does without (`CONTROL.scouts`): there the scout costs more than it
saves.

Prefetches are hints. An event scheduled behind the scout is not prefetched (its data is still in
the caches), a wrong prediction costs a cache line, and no result depends on either.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine.packet import LAST_DATA, SACK
from openmrc.engine.state import QP, signed, unwrap
from openmrc.jit import CACHE_LINE, inlined, inner
from openmrc.jit.instructions import prefetch
from openmrc.sim.net import rounds, switch
from openmrc.sim.net.state import HOP, SCOUTED

LINE = CACHE_LINE
_FIELDS = dict(QP.fields or {})
TIMERS = int(_FIELDS["reorder_window"][1])
HOP_END = HOP.itemsize - 1
RESPONDER = int(_FIELDS["rx0"][1])

# How many events ahead of the loop an event passes each stage.
RECORDS, WINDOWS, PATHS, EVS = 28, 20, 13, 7
LEAD = 40  # its own record is fetched this far ahead
RESYNC = 4096  # events after which the scout restarts: its count of its lead is not exact


@inlined
def look_ahead(net, st):
    """An event was taken: advance by one event, or by two while the lead is too short."""
    ctl = net.ctl[0]
    if ctl.scouts == 0:
        return
    ctl.scout_lead -= 1
    if ctl.scout_lead < 0 or ctl.events & (RESYNC - 1) == 0:
        ctl.scout_lead = 0
        ctl.scout_bucket = ctl.bucket
        ctl.scout = ctl.open_head
    for _ in range(2):
        if ctl.scout_lead >= LEAD:
            return
        _step(net, st)


@inner
def _step(net, st):
    """Advance over one more event, if there is one."""
    ctl = net.ctl[0]
    event = int(ctl.scout)
    if event < 0:
        event = _enter_next_bucket(net)
        if event < 0:
            return
    elif ctl.scout_peek >= 0:
        _peek(net)
    following = int(net.after[event])
    ctl.scout = following
    if following >= 0:
        prefetch(net.after, following, 0)
    if event >= ctl.n_ports:
        prefetch(net.hop, event - ctl.n_ports, 0)
        prefetch(net.hop, event - ctl.n_ports, HOP_END)
    else:
        prefetch(net.port, event, 0)
    ctl.scout_lead += 1
    turn = ctl.scout_turn + 1
    ctl.scout_turn = turn
    ctl.scouted[turn & (SCOUTED - 1)] = event
    _fetch_records(net, st, int(ctl.scouted[(turn - (LEAD - RECORDS)) & (SCOUTED - 1)]))
    _fetch_windows(net, st, int(ctl.scouted[(turn - (LEAD - WINDOWS)) & (SCOUTED - 1)]))
    _fetch_paths(net, st, int(ctl.scouted[(turn - (LEAD - PATHS)) & (SCOUTED - 1)]))
    _fetch_evs(net, st, int(ctl.scouted[(turn - (LEAD - EVS)) & (SCOUTED - 1)]))


@inlined
def _enter_next_bucket(net):
    """Return the first event of the next non-empty bucket, or -1; prefetch the bucket after it."""
    ctl = net.ctl[0]
    if ctl.n_wheel <= ctl.scout_lead:
        return -1
    here = ctl.scout_bucket & ctl.bucket_mask
    b = bits.next_set(net.bucket_bits, net.bucket_summary, (here + 1) & ctl.bucket_mask)
    if b < 0:
        return -1
    number = ctl.scout_bucket + ((b - here - 1) & ctl.bucket_mask) + 1
    if number > ctl.bucket + ctl.bucket_mask:  # once round the wheel
        return -1
    ctl.scout_bucket = number
    peek = bits.next_set(net.bucket_bits, net.bucket_summary, (b + 1) & ctl.bucket_mask)
    ctl.scout_peek = peek
    prefetch(net.bucket, peek, 0)
    return int(net.bucket[b].head)


@inlined
def _peek(net):
    """Prefetch the records after the head of the bucket that the scout enters next."""
    ctl = net.ctl[0]
    head = int(net.bucket[ctl.scout_peek].head)
    if head >= 0:
        prefetch(net.after, head, 0)
    ctl.scout_peek = -1


@inlined
def _fetch_qp(net, st, qi):
    """Prefetch the cache lines of a QP that a packet sent or received touches."""
    prefetch(net.qp, qi, 0)
    prefetch(st.qp, qi, 0)
    prefetch(st.qp, qi, LINE)
    prefetch(st.qp, qi, 2 * LINE)
    prefetch(st.qp, qi, 3 * LINE)
    prefetch(st.qp, qi, 4 * LINE)
    prefetch(st.qp, qi, TIMERS)
    prefetch(st.qp, qi, RESPONDER)
    prefetch(st.qp, qi, RESPONDER + LINE)


@inlined
def _next_to_send(net, event):
    """The QP that will send when this event frees a NIC's port, or -1."""
    if event >= net.ctl[0].n_nic_ports:
        return -1
    return int(net.round[event, rounds.FIRST])


@inlined
def _arriving(net, event):
    """The index of a QP's packet that reaches its NIC with this event, or -1."""
    n = event - net.ctl[0].n_ports
    if n < 0 or net.hop[n].to >= 0 or net.hop[n].qp < 0:
        return -1
    return n


@inner
def _fetch_records(net, st, event):
    """Prefetch what the event's record refers to: its port, its QP, the waiting packet."""
    ctl = net.ctl[0]
    if event < ctl.n_ports:
        head = net.port[event].head
        n = head[0] if head[0] >= 0 else head[1] if head[1] >= 0 else head[2]
        if n >= 0:
            prefetch(net.hop, n, 0)
        else:
            qi = _next_to_send(net, event)
            if qi >= 0:
                _fetch_qp(net, st, qi)
        return
    n = event - ctl.n_ports
    h = net.hop[n]
    if h.to >= 0:
        prefetch(net.port, switch.egress(ctl, net.switch[h.to], int(h.dst), int(h.ev)), 0)
        return
    prefetch(net.packet, n, 0)
    prefetch(net.packet, n, LINE)
    if h.qp >= 0:
        _fetch_qp(net, st, int(h.qp))


@inlined
def _fetch_to_send(st, qi, plane):
    """Prefetch what the record of the next QP to send refers to."""
    q = st.qp[qi]
    prefetch(st.plane, q.plane0 + plane, 0)
    prefetch(st.slot, q.slot0 + (q.nxt & q.slot_mask), 0)
    prefetch(st.message, q.msg0 + (q.msg_cur & q.msg_mask), 0)
    prefetch(st.bits, q.acked0 + ((q.nxt & q.ring_mask) >> 6), 0)


@inner
def _fetch_windows(net, st, event):
    """Prefetch what a QP's record refers to: planes, slots, bitmaps, messages."""
    qi = _next_to_send(net, event)
    if qi >= 0:
        _fetch_to_send(st, qi, event % net.ctl[0].n_planes)
        return
    n = _arriving(net, event)
    if n < 0:
        return
    h = net.hop[n]
    p = net.packet[n]
    q = st.qp[h.qp]
    if p.opcode <= LAST_DATA:
        seq = unwrap(int(p.psn), q.peer_psn, q.cack + 1)
        prefetch(st.bits, q.rx0 + ((seq & q.ring_mask) >> 6), 0)
        prefetch(st.plane, q.plane0 + int(p.plane), 0)
        prefetch(net.qp, net.qp[h.qp].other, 0)
        prefetch(st.rx_message, q.rmsg0 + (q.rx_msn & q.rmsg_mask), 0)
        prefetch(st.region, net.qp[h.qp].region, 0)
    elif p.opcode == SACK:
        prefetch(st.slot, _slot_answered(q, p), 0)
        _fetch_to_send(st, int(h.qp), int(p.plane))


@inlined
def _slot_answered(q, p):
    """Index of the slot of the packet that a SACK answers."""
    cack = unwrap(int(p.cack_psn), q.first_psn, q.una - 1)
    return q.slot0 + ((cack + signed(int(p.ack_offset), 16)) & q.slot_mask)


@inlined
def _place_in_order(st, q, plane):
    """Index of a QP's next EV in the rotation of a plane."""
    return q.order0 + plane * q.order_len + st.plane[q.plane0 + plane].pos


@inner
def _fetch_paths(net, st, event):
    """Prefetch what planes and slots refer to: entries of the rotation, EVs; and the payload
    unit.
    """
    qi = _next_to_send(net, event)
    if qi >= 0:
        prefetch(st.order, _place_in_order(st, st.qp[qi], event % net.ctl[0].n_planes), 0)
        return
    n = _arriving(net, event)
    if n < 0:
        return
    h = net.hop[n]
    p = net.packet[n]
    if p.opcode <= LAST_DATA:
        sender = net.qp[net.qp[h.qp].other]
        prefetch(net.unit, sender.unit0 + (h.tag & sender.unit_mask), 0)
    elif p.opcode == SACK:
        q = st.qp[h.qp]
        prefetch(st.ev, q.ev0 + st.slot[_slot_answered(q, p)].ev, 0)
        prefetch(st.order, _place_in_order(st, q, int(p.plane)), 0)


@inlined
def _fetch_next_ev(st, qi, plane):
    q = st.qp[qi]
    prefetch(st.ev, q.ev0 + st.order[_place_in_order(st, q, plane)], 0)


@inner
def _fetch_evs(net, st, event):
    """Prefetch what the rotation refers to: the EV of the next packet."""
    qi = _next_to_send(net, event)
    if qi >= 0:
        _fetch_next_ev(st, qi, event % net.ctl[0].n_planes)
        return
    n = _arriving(net, event)
    if n >= 0 and net.packet[n].opcode == SACK:
        _fetch_next_ev(st, int(net.hop[n].qp), int(net.packet[n].plane))
