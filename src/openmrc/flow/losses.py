"""Packets that are lost, and when the messages are whole that they belong to.

Whether a message meets a broken path or a random loss is drawn, as for packets: most short messages
lose nothing, and one in a ring that does delays all. A sender that learns leaves each broken path
that has cost it a packet; random losses it meets again. A packet that was lost is sent again once
it is overdue, and perhaps lost again at random; what was broken is taken to be left by then.
"""

from __future__ import annotations

import math

from openmrc.engine import bits
from openmrc.engine.state import NEVER
from openmrc.flow.rates import TINY
from openmrc.flow.state import AT_DELIVERED
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.net import events

DRAWN = 4294967296.0
FAR_PS = 1e18  # later than every run: eleven days
SURELY = 1 - 1e-9
SELDOM = 1e-9
AGAIN_MAX = 32  # times that one packet is lost: far less likely than anything else


@inlined
def drawn(fl, f):
    """A number from 0 to 1, evenly drawn."""
    return bits.draw(fl.stream, f) / DRAWN


@inlined
def _any_of(fl, f, expected):
    """Whether any of so many rare events happens that are expected."""
    return drawn(fl, f) >= math.exp(-expected)


@inner
def lose(fl, f, now):
    """A flow begins a message: some of its packets may be lost."""
    flow = fl.flow[f]
    c = fl.c[0]
    flow.last_lost_at = -1
    if flow.drops > 0:  # of the first window
        if _any_of(fl, f, flow.drops * math.ceil(flow.left_bytes / c.packet_bytes)):
            flow.last_lost_at = now
            flow.again_ps = c.late_ps
        flow.drops = 0
    share = flow.broken / flow.paths
    if share <= 0 and flow.loses <= 0:
        return
    packets = max(flow.left_bytes / c.packet_bytes, 1.0)
    meets = packets * share
    until_known = flow.rate_max * c.late_ps / c.packet_bytes  # packets sent meanwhile
    if c.learns:
        meets = min(meets, flow.broken + until_known * share)
    hits = meets + packets * flow.loses
    if not _any_of(fl, f, hits):
        return
    last = packets
    if flow.loses > 0 or c.learns == 0:
        last *= drawn(fl, f) ** (1.0 / max(hits, 1.0))
    if c.learns:
        last = min(last, flow.paths + until_known) if flow.loses <= 0 else last
        flow.broken = max(flow.broken - packets * share, 0.0)
    ends = _any_of(fl, f, -math.log1p(-min(share + flow.loses, SURELY)))
    once_ps = c.tail_ps if ends else c.late_ps
    flow.left_bytes += max(hits, 1.0) * c.packet_bytes
    flow.again_ps = once_ps
    times = 1
    while times < AGAIN_MAX and flow.loses > 0:
        hits = max(hits, 1.0) * flow.loses
        if not _any_of(fl, f, hits):
            break
        flow.again_ps += once_ps
        times += 1
    flow.last_lost_at = now + int(min(last * c.packet_bytes / max(flow.rate_max, TINY), FAR_PS))


@compiled
def lose_under_way(net, fl, share, reach):
    """Of these shares of the paths of each flow nothing passes any more. Messages that are sent and
    not yet placed lose the packets that have not come so far, a part `reach` of the way; the sender
    finds out once they are overdue, or when it may go on.
    """
    now = net.ctl[0].now
    c = fl.c[0]
    for i in range(net.ctl[0].heap_n):
        kind = net.heap[i].what >> events.KIND_SHIFT
        if kind != AT_DELIVERED:
            continue
        mi = net.heap[i].what & ((1 << events.KIND_SHIFT) - 1)
        line = fl.line[net.qp[net.message[mi].qp].region]
        f = int(line.flow0)
        entry = fl.entry[mi]
        sent_at = net.heap[i].at - entry.after_ps
        behind_ps = sent_at + int(reach[f] * entry.after_ps) - now
        if share[f] <= 0 or behind_ps <= 0 or sent_at > now:  # or it is still to be sent again
            continue
        length = float(net.message[mi].bytes)
        packets = min(fl.flow[f].rate_max * behind_ps, length) / c.packet_bytes
        if share[f] < 1 and not _any_of(fl, f, -math.log1p(-share[f]) * max(packets, 1.0)):
            continue
        late_ps = c.tail_ps if drawn(fl, f) < share[f] else c.late_ps
        entry.held_until = max(entry.held_until, sent_at + late_ps + entry.after_ps)
        if fl.flow[f].goes_on_at > now:
            entry.held_until = NEVER
            fl.flow[f].holds = 1
        else:
            line.delivered_at = max(line.delivered_at, entry.held_until)


@compiled
def send_again(net, fl, f):
    """A flow goes on: what was lost under way is sent again."""
    line_no = int(fl.flow[f].line)
    line = fl.line[line_no]
    fl.flow[f].holds = 0
    for mi in range(fl.entry.shape[0]):
        entry = fl.entry[mi]
        if entry.held_until == NEVER and net.qp[net.message[mi].qp].region == line_no:
            at = fl.flow[f].goes_on_at + entry.after_ps
            entry.held_until = at
            line.delivered_at = max(line.delivered_at, at)
            for _ in range(entry.held):
                events.push(net, at, AT_DELIVERED, mi)
            entry.held = 0
