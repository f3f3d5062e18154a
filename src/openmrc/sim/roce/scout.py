"""Fetches the data of coming events of RoCEv2's NICs while others are handled: the stages after the
first (`sim.net.scout`). A QP names the message that it sends or receives, and its bitmap.
"""

from __future__ import annotations

from openmrc.jit import CACHE_LINE, inlined
from openmrc.jit.instructions import prefetch
from openmrc.sim.net import rounds, scout
from openmrc.sim.net.scout import BATCHES
from openmrc.sim.net.state import SCOUT_BATCH
from openmrc.sim.roce.state import ROCE_QP
from openmrc.wire.roce.opcodes import LAST_DATA

LINES = tuple(range(0, ROCE_QP.itemsize, CACHE_LINE))
BITS = 64  # of a word of a bitmap

# How many batches after it was met a batch passes each stage.
RECORDS, MESSAGES = 1, 2


@inlined
def look_ahead(net, st, ro):
    """As `sim.mrc.scout.look_ahead`."""
    if net.ctl[0].scouts == 0:
        return
    scout.follow(net)
    for _ in range(2):
        batch = scout.step(net)
        if batch != scout.NOTHING:
            _fetch_records(net, ro, (batch - RECORDS) & (BATCHES - 1))
            _fetch_messages(net, st, ro, (batch - MESSAGES) & (BATCHES - 1))


@inlined
def _fetch_qp(net, ro, qi):
    """Prefetch the records of a QP's end."""
    for offset in LINES:
        prefetch(ro.qp, qi, offset)
    prefetch(net.qp, qi, 0)


@inlined
def _fetch_records(net, ro, batch):
    """Prefetch what the records of a batch of events refer to; note which QPs send."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    n_ports = scout.sort(net, batch)
    n_senders = 0
    for i in range(first, first + n_ports):
        event = int(ctl.scout_senders[i])
        qi = int(net.round[event // ctl.n_planes * ctl.n_planes, rounds.FIRST])
        if qi >= 0:
            _fetch_qp(net, ro, qi)
            ctl.scout_senders[first + n_senders] = qi
            n_senders += 1
    ctl.scout_n_senders[batch] = n_senders
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        prefetch(net.packet, n, 0)
        prefetch(net.packet, n, CACHE_LINE)
        _fetch_qp(net, ro, int(net.hop[n].qp))


@inlined
def _fetch_messages(net, st, ro, batch):
    """Prefetch what the records of QPs refer to."""
    ctl = net.ctl[0]
    first = batch * SCOUT_BATCH
    for i in range(first, first + ctl.scout_n_senders[batch]):
        rq = ro.qp[ctl.scout_senders[i]]
        prefetch(st.message, rq.msg0 + (rq.cur & rq.msg_mask), 0)
    for i in range(first, first + ctl.scout_n_arrivals[batch]):
        n = int(ctl.scout_arrivals[i])
        qi = max(int(net.hop[n].qp), 0)
        rq = ro.qp[qi]
        p = net.packet[n]
        at = rq.msg0 + (p.msn & rq.msg_mask)
        if p.opcode <= LAST_DATA:
            prefetch(st.message, at, 0)
        if net.calls[0].egress != 0:
            word = (int(p.psn) - rq.first_psn) & (ro.c[0].window - 1)
            prefetch(ro.seen, qi, word // BITS * 8)
