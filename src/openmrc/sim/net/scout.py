"""Walks the lists of the wheel some tens of events ahead of the loop, and fetches what events need.

At thousands of NICs nearly everything that an event touches has left the caches since it was last
used, and it is found through a chain of records: the event names a port or a QP, the QP what it
sends. Waiting for each in turn costs more than all the computation. So batches of events pass
several stages: the data that one stage fetched has arrived when the next one follows the chain. The
first stages are here; those of QPs are the transports' own (`mrc.scout`, `roce.scout`).

Of what kind an event is nobody can predict, and a wrong guess of the processor costs as much as the
rest of a stage. So the first stage sorts a batch by kinds, without a branch, and keeps the few
events that the others are for: those of NICs.

A world that fits the caches does without (`CONTROL.scouts`): there the scout costs more than it
saves.

Prefetches are hints. An event scheduled behind the scout is not prefetched (its data is still in
the caches), a wrong prediction costs a cache line, and no result depends on either.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.jit import inlined, offset_of
from openmrc.jit.instructions import prefetch
from openmrc.sim.net.state import HOP, SCOUT_BATCH, SCOUTED, SWITCH

HOP_END = HOP.itemsize - 1
SILENT = offset_of(SWITCH, "silent")
NOTHING = -1  # in place of a batch: none is complete

LEAD = 5 * SCOUT_BATCH  # events that the scout is ahead
BATCHES = SCOUTED // SCOUT_BATCH
RESYNC = 4096  # events after which the scout restarts: its count of its lead is not exact


@inlined
def follow(net):
    """An event was taken."""
    ctl = net.ctl[0]
    ctl.scout_lead -= 1
    if ctl.scout_lead < 0 or ctl.events & (RESYNC - 1) == 0:
        ctl.scout_lead = 0
        ctl.scout_bucket = ctl.bucket
        ctl.scout = ctl.open_head


@inlined
def step(net):
    """Advance over one more event, if there is one and the lead is too short; return the batch
    that it completes, or `NOTHING`.
    """
    ctl = net.ctl[0]
    if ctl.scout_lead >= LEAD:
        return NOTHING
    event = int(ctl.scout)
    if event < 0:
        event = _enter_next_bucket(net)
        if event < 0:
            return NOTHING
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
        return turn // SCOUT_BATCH
    return NOTHING


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
def sort(net, batch):
    """Sort a batch by kinds, and fetch what its events refer to: waiting packets, switches, ports.
    Returns how many of its events are ports of NICs, which `CONTROL.scout_senders` has from the
    batch's first place on; packets that reach a QP are noted in `scout_arrivals` in the same way.
    """
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
        n = max(waiting(net.port[ctl.scout_ports[i]]), 0)
        prefetch(net.hop, n, 0)
        prefetch(net.hop, n, HOP_END)
    n_arrivals = 0
    for i in range(n_packets):
        n = int(ctl.scout_packets[i])
        h = net.hop[n]
        ctl.scout_arrivals[first + n_arrivals] = n
        n_arrivals += 1 if h.to < 0 and h.qp >= 0 else 0
        prefetch(net.switch, max(h.to, 0), SILENT)
        prefetch(net.port, max(h.next, 0), 0)
    ctl.scout_n_arrivals[batch] = n_arrivals
    return n_senders


@inlined
def waiting(port):
    """The packet that a port sends next, -1 if none waits."""
    head = port.head
    behind = head[1] if head[1] >= 0 else head[2]
    return int(head[0] if head[0] >= 0 else behind)
