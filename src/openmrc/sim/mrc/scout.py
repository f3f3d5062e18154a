"""Fetches the data of coming events of MRC's NICs while others are handled: the stages after the
first (`sim.net.scout`). A QP names its window and its paths, an entry of the rotation an EV.
"""

from __future__ import annotations

from openmrc.engine import ahead
from openmrc.engine import packet as pk
from openmrc.engine.packet import LAST_DATA
from openmrc.jit import CACHE_LINE, inlined
from openmrc.jit.instructions import prefetch
from openmrc.sim.net import rounds, scout
from openmrc.sim.net.scout import BATCHES
from openmrc.sim.net.state import SCOUT_BATCH

LINE = CACHE_LINE

# How many batches after it was met a batch passes each stage.
RECORDS, WINDOWS, PATHS, EVS = 1, 2, 3, 4


@inlined
def look_ahead(net, st):
    """An event was taken: advance by one event, or by two while the lead is too short."""
    if net.ctl[0].scouts == 0:
        return
    scout.follow(net)
    for _ in range(2):
        batch = scout.step(net)
        if batch != scout.NOTHING:
            _pass_on(net, st, batch)


@inlined
def _pass_on(net, st, batch):
    """A batch is complete: those before it pass their stages."""
    _fetch_records(net, st, (batch - RECORDS) & (BATCHES - 1))
    _fetch_windows(net, st, (batch - WINDOWS) & (BATCHES - 1))
    _fetch_paths(net, st, (batch - PATHS) & (BATCHES - 1))
    _fetch_evs(net, st, (batch - EVS) & (BATCHES - 1))


@inlined
def _fetch_qp(net, st, qi):
    """Prefetch the cache lines of a QP that a packet sent or received touches."""
    prefetch(net.qp, qi, 0)
    ahead.fetch_record(st, qi)


@inlined
def _fetch_records(net, st, batch):
    """Prefetch what the records of a batch of events refer to: ports, QPs, waiting packets."""
    ctl = net.ctl[0]
    n_senders = scout.sort(net, batch)
    _fetch_senders(net, st, batch, n_senders)
    first = batch * SCOUT_BATCH
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        prefetch(net.packet, n, 0)
        prefetch(net.packet, n, LINE)
        _fetch_qp(net, st, int(net.hop[n].qp))


@inlined
def _fetch_senders(net, st, batch, n):
    """The same for a number of NIC ports, in place of which their QPs are noted."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    n_senders = 0
    for i in range(first, first + n):
        event = int(ctl.scout_senders[i])
        waiting = scout.waiting(net.port[event])
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
