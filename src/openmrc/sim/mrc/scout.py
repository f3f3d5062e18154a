"""Prefetches the data of coming events while others are handled.

At thousands of NICs nearly everything that an event touches has left the caches since it was last
used, and it is found through a chain of records: the event names a port or a QP, the QP its window
and its paths, an entry of the rotation an EV. Waiting for each in turn costs more than all the
computation. So a scout walks the lists of the wheel some tens of events ahead of the loop, and
batches of events pass several stages: the data that one stage fetched has arrived when the next one
follows the chain.

Of what kind an event is nobody can predict, and a wrong guess of the processor costs as much as the
rest of a stage. So the first stage sorts a batch by kinds, without a branch, and keeps the few
events that the others are for: those of NICs.

A world that fits the caches does without (`CONTROL.scouts`): there the scout costs more than it
saves.

Prefetches are hints. An event scheduled behind the scout is not prefetched (its data is still in
the caches), a wrong prediction costs a cache line, and no result depends on either.
"""

from __future__ import annotations

from openmrc.engine import ahead, bits
from openmrc.engine import packet as pk
from openmrc.engine.packet import LAST_DATA
from openmrc.jit import CACHE_LINE, inlined, offset_of
from openmrc.jit.instructions import prefetch
from openmrc.sim.net import rounds
from openmrc.sim.net.state import HOP, SCOUT_BATCH, SCOUTED, SWITCH

LINE = CACHE_LINE
HOP_END = HOP.itemsize - 1
SILENT = offset_of(SWITCH, "silent")

# How many batches after it was met a batch passes each stage.
RECORDS, WINDOWS, PATHS, EVS = 1, 2, 3, 4
LEAD = 5 * SCOUT_BATCH  # events that the scout is ahead
BATCHES = SCOUTED // SCOUT_BATCH
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


@inlined
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
    prefetch(net.after, max(following, 0), 0)
    n = max(event - ctl.n_ports, 0)
    prefetch(net.hop, n, 0)
    prefetch(net.hop, n, HOP_END)
    prefetch(net.port, min(event, ctl.n_ports - 1), 0)
    ctl.scout_lead += 1
    turn = int(ctl.scout_turn)
    ctl.scouted[turn & (SCOUTED - 1)] = event
    ctl.scout_turn = turn + 1
    if turn & (SCOUT_BATCH - 1) == SCOUT_BATCH - 1:
        _pass_on(net, st, turn // SCOUT_BATCH)


@inlined
def _pass_on(net, st, batch):
    """A batch is complete: those before it pass their stages."""
    _fetch_records(net, st, (batch - RECORDS) & (BATCHES - 1))
    _fetch_windows(net, st, (batch - WINDOWS) & (BATCHES - 1))
    _fetch_paths(net, st, (batch - PATHS) & (BATCHES - 1))
    _fetch_evs(net, st, (batch - EVS) & (BATCHES - 1))


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
    ahead.fetch_record(st, qi)


@inlined
def _fetch_records(net, st, batch):
    """Prefetch what the records of a batch of events refer to: ports, QPs, waiting packets."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    n_ports = 0
    n_packets = 0
    n_senders = 0
    for i in range(first, first + SCOUT_BATCH):
        event = int(ctl.scouted[i])
        ctl.scout_ports[n_ports] = event
        n_ports += 1 if ctl.n_nic_ports <= event < ctl.n_ports else 0
        ctl.scout_senders[first + n_senders] = event
        n_senders += 1 if event < ctl.n_nic_ports else 0
        ctl.scout_packets[n_packets] = event - ctl.n_ports
        n_packets += 1 if event >= ctl.n_ports else 0
    for i in range(n_ports):
        waiting = max(_waiting(net.port[ctl.scout_ports[i]]), 0)
        prefetch(net.hop, waiting, 0)
        prefetch(net.hop, waiting, HOP_END)
    _fetch_senders(net, st, batch, n_senders)
    n_arrivals = 0
    for i in range(n_packets):
        n = int(ctl.scout_packets[i])
        h = net.hop[n]
        ctl.scout_arrivals[first + n_arrivals] = n
        n_arrivals += 1 if h.to < 0 and h.qp >= 0 else 0
        prefetch(net.switch, max(h.to, 0), SILENT)
        prefetch(net.port, max(h.next, 0), 0)
    ctl.scout_n_arrivals[batch] = n_arrivals
    for i in range(first, first + n_arrivals):
        n = int(ctl.scout_arrivals[i])
        prefetch(net.packet, n, 0)
        prefetch(net.packet, n, LINE)
        _fetch_qp(net, st, int(net.hop[n].qp))


@inlined
def _waiting(port):
    """The packet that a port sends next, -1 if none waits."""
    head = port.head
    behind = head[1] if head[1] >= 0 else head[2]
    return int(head[0] if head[0] >= 0 else behind)


@inlined
def _fetch_senders(net, st, batch, n):
    """The same for a number of NIC ports, in place of which their QPs are noted."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    n_senders = 0
    for i in range(first, first + n):
        event = int(ctl.scout_senders[i])
        waiting = _waiting(net.port[event])
        qi = int(net.round[event, rounds.FIRST])
        if waiting >= 0:
            prefetch(net.hop, waiting, 0)
        elif qi >= 0:
            _fetch_qp(net, st, qi)
            ctl.scout_senders[first + n_senders] = qi
            ctl.scout_planes[first + n_senders] = event % ctl.n_planes
            n_senders += 1
    ctl.scout_n_senders[batch] = n_senders


@inlined
def _qp_of(h):
    """The QP of a packet; some QP if its index stands for a packet of an endpoint by now."""
    return max(int(h.qp), 0)


@inlined
def _fetch_windows(net, st, batch):
    """Prefetch what the records of QPs refer to: planes, slots, bitmaps, messages."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    for i in range(first, first + ctl.scout_n_senders[batch]):
        ahead.fetch_window(st, int(ctl.scout_senders[i]), int(ctl.scout_planes[i]))
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        h = net.hop[n]
        p = net.packet[n]
        ahead.fetch_received(st, _qp_of(h), p)
        if p.opcode <= LAST_DATA:
            prefetch(net.qp, net.qp[_qp_of(h)].other, 0)
            prefetch(st.region, net.qp[_qp_of(h)].region, 0)


@inlined
def _fetch_paths(net, st, batch):
    """Prefetch what planes and slots refer to: entries of the rotation, EVs; and the payload
    unit.
    """
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    for i in range(first, first + ctl.scout_n_senders[batch]):
        ahead.fetch_rotation(st, int(ctl.scout_senders[i]), int(ctl.scout_planes[i]))
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        h = net.hop[n]
        p = net.packet[n]
        if p.opcode <= LAST_DATA:
            sender = net.qp[net.qp[_qp_of(h)].other]
            prefetch(net.unit, sender.unit0 + (h.tag & sender.unit_mask), 0)
        elif p.opcode == pk.SACK:
            ahead.fetch_answered(st, _qp_of(h), p)


@inlined
def _fetch_evs(net, st, batch):
    """Prefetch what the rotation refers to: the EV of the next packet."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    for i in range(first, first + ctl.scout_n_senders[batch]):
        ahead.fetch_ev(st, int(ctl.scout_senders[i]), int(ctl.scout_planes[i]))
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        if net.packet[n].opcode == pk.SACK:
            ahead.fetch_ev(st, _qp_of(net.hop[n]), int(net.packet[n].plane))
