"""The event loop of the flow level: messages are posted, sent at the rates of their flows, and
delivered.

What releases what is the packet level's own code (`sim.net.messages`). All that happens at one
instant happens before rates are computed, once for all of it.
"""

from __future__ import annotations

import math

from openmrc.flow import jitter, losses, rates, turns, window
from openmrc.flow.losses import FAR_PS
from openmrc.flow.state import (
    AT_ACKNOWLEDGED,
    AT_DELIVERED,
    AT_FLOW,
    BACK,
    DATA,
    IDLE,
    NEVER,
    WAY,
)
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.net import events, messages
from openmrc.sim.net import state as ss
from openmrc.sim.net.state import BIN_GOODPUT

RESERVE = 4  # entries of the heap that one event may add, apart from releases
NOTHING_BYTES = 1e-6  # less is a rounding error


@inner
def _post(net, fl, mi, now):
    """An entry's next message has its releases: it joins the queue of its QP."""
    m = net.message[mi]
    if m.fate != ss.OPEN:
        return
    if m.posted_at < 0:
        m.posted_at = now
    lq = net.qp[m.qp]
    if lq.failed:
        messages.lose(net, mi, ss.FAILED)
        return
    for _ in range(messages.let_through(net, mi)):
        if lq.waiting_head >= 0 or not _hand_over(net, fl, int(lq.region), mi, now):
            messages.stand_in_line(net, lq, mi)


@inner
def _hand_over(net, fl, line_no, mi, now):
    """Put the next message of an entry into its line; False if that is full."""
    line = fl.line[line_no]
    if line.posted - line.done > line.ring_mask:
        return False
    m = fl.ring[line.ring0 + (line.posted & line.ring_mask)]
    m.entry = mi
    m.length = messages.next_length(net, mi)
    m.parts = min(fl.c[0].stripes, m.length)
    line.posted += 1
    messages.note_posted(net, mi)
    for i in range(m.parts):
        f = int(line.flow0) + i
        if fl.flow[f].entry == IDLE and _begin_next(fl, f, now):
            window.pace(fl, f, now)
            rates.join(fl, f)
            turns.stand_behind(fl, f, now)
    return True


@inlined
def _part_bytes(fl, length, part):
    """Bytes on the wire of a part of a message."""
    c = fl.c[0]
    payload = length // c.stripes + (1 if part < length % c.stripes else 0)
    return float(payload + -(-payload // c.pmtu) * c.header_bytes)


@inner
def _begin_next(fl, f, now):
    """A flow begins its part of the next message; False if there is none."""
    flow = fl.flow[f]
    line = fl.line[flow.line]
    while flow.number < line.posted:
        m = fl.ring[line.ring0 + (flow.number & line.ring_mask)]
        if flow.part < m.length:
            flow.entry = m.entry
            flow.left_bytes = _part_bytes(fl, m.length, flow.part)
            flow.ahead_bytes = 0.0
            flow.began_at = now
            flow.at = now
            if flow.spread > 0:
                flow.portion = 1 + flow.spread * (2 * losses.drawn(fl, f) - 1)
            losses.lose(fl, f, now)
            return True
        flow.number += 1
    flow.entry = IDLE
    return False


@inner
def _flow_due(net, fl, f, now):
    """A flow may have sent its part of a message."""
    flow = fl.flow[f]
    rates.send_up_to(flow, now)
    if flow.entry == IDLE:
        return
    if flow.left_bytes > NOTHING_BYTES:
        _plan(net, fl, f)
        return
    line_no = int(flow.line)
    line = fl.line[line_no]
    m = fl.ring[line.ring0 + (flow.number & line.ring_mask)]
    flow.number += 1
    m.parts -= 1
    if m.parts == 0:
        _sent(net, fl, flow, line, m, now)
    goes_on = _begin_next(fl, f, now)
    if goes_on and not window.pace(fl, f, now):
        _plan(net, fl, f)
        return
    rates.leave(fl, f)
    if goes_on:  # at another rate
        rates.join(fl, f)


@inner
def _sent(net, fl, flow, line, m, now):
    """All parts of a message are sent: it is delivered in order, after its last packet's way."""
    f = int(line.flow0)
    entry = fl.entry[m.entry]
    links = int(entry.links)
    at = now + entry.after_ps + jitter.late_ps(fl, f, 0, links, entry.follow, now)
    if flow.last_lost_at >= 0:  # it was sent once more
        again_at = min(flow.last_lost_at, now) + flow.again_ps
        at = max(at, again_at + entry.after_ps + jitter.late_ps(fl, f, 0, links, 1.0, now))
    jitter.note(fl, f, 0, entry.packets, now)
    at = max(at, line.delivered_at)
    line.delivered_at = at
    _note_placed(net, m, flow.began_at, at)
    events.push(net, at, AT_DELIVERED, int(m.entry))
    while line.done < line.posted:
        if fl.ring[line.ring0 + (line.done & line.ring_mask)].parts > 0:
            break
        line.done += 1
    lq = net.qp[net.message[m.entry].qp]
    while lq.waiting_head >= 0 and _hand_over(net, fl, int(lq.region), int(lq.waiting_head), now):
        messages.leave_line(net, lq)


@inner
def _wait_ps(fl, f, entry):
    """How long an acknowledgement waits: it goes first, but at each port behind the packet that is
    being sent. The ports between switches are as busy as those of both ends.
    """
    c = fl.c[0]
    busy = 0.0
    for k in range(WAY - DATA):
        r = max(int(fl.way[f, DATA + k]), int(fl.faint[f, k]))
        if r >= 0 and fl.pool[r].bytes_per_ps > 0:
            busy += fl.pool[r].load / fl.pool[r].bytes_per_ps / (WAY - DATA)
    return int(entry.links * busy * c.packet_ps / 2)


@inner
def _note_placed(net, m, began_at, at):
    """Count the payload of a message in the bins of its time."""
    ctl = net.ctl[0]
    ctl.verified_bytes += m.length
    ctl.placed_at = max(ctl.placed_at, at)
    last = min(at // ctl.bin_ps, net.timeline.shape[0] - 1)
    first = min(began_at // ctl.bin_ps, last)
    before = 0
    for k in range(first, last + 1):
        share = 1.0
        if k < last:
            share = ((k + 1) * ctl.bin_ps - began_at) / max(at - began_at, 1)
        upto = int(m.length * share)
        net.timeline[k, BIN_GOODPUT] += upto - before
        if net.rate.shape[1] > 0:
            net.rate[k, net.column[m.entry]] += upto - before
        before = upto


@inner
def _plan(net, fl, f):
    """Wake a flow when it has sent its part at its present rate."""
    flow = fl.flow[f]
    if flow.entry == IDLE or flow.left_bytes > flow.rate * FAR_PS:
        return
    at = flow.at + math.ceil(flow.left_bytes / flow.rate)
    events.plan(net, flow, at, AT_FLOW, f)


@inner
def _delivered(net, fl, mi, now):
    """A message is delivered: what waits for it at the receiver is released; the sender knows a
    little later.
    """
    m = net.message[mi]
    if m.fate != ss.OPEN:
        return
    entry = fl.entry[mi]
    if entry.held_until > now:
        if entry.held_until < NEVER:
            events.push(net, entry.held_until, AT_DELIVERED, mi)
        else:
            entry.held += 1
        return
    m.delivered_at = now
    messages.let_receiver(net, m, now)
    f = int(fl.line[net.qp[m.qp].region].flow0)
    late_ps = jitter.late_ps(fl, f, DATA, int(entry.links), 1.0, now)
    jitter.note(fl, f, DATA, 1.0, now)
    at = now + entry.ack_ps + late_ps + _wait_ps(fl, f, entry)
    if m.sent0 < m.end:
        events.push(net, at, AT_ACKNOWLEDGED, mi)
    else:  # nobody waits for it
        messages.acknowledged(net, mi, at)


@inner
def _settle(net, fl, now):
    """Compute the rates that what happened at this instant has changed."""
    c = fl.c[0]
    while c.n_dirty > 0 or c.n_fresh > 0:
        rates.compute(fl, now)
        for i in range(c.n_met):
            _plan(net, fl, int(fl.met[i]))
        rates.forget(fl)


@inner
def _happen(net, fl, now):
    """Handle the heap's first entry."""
    kind, number = events.pop(net)
    if kind == AT_FLOW:
        if events.comes_due(fl.flow[number], now):
            _flow_due(net, fl, number, now)
    elif kind == AT_DELIVERED:
        _delivered(net, fl, number, now)
    elif kind == AT_ACKNOWLEDGED and net.message[number].fate == ss.OPEN:
        messages.acknowledged(net, number, now)
    elif kind == AT_ACKNOWLEDGED or net.message[number].fate != ss.OPEN:
        return
    elif net.message[number].qp < 0:
        messages.end_computation(net, number, now)
    else:
        _post(net, fl, number, now)


@compiled
def settle(net, fl):
    """The pools have changed at this instant: compute rates."""
    _settle(net, fl, net.ctl[0].now)


@compiled
def advance(net, fl, until, budget):
    """Run events up to and including time `until`, ps, about `budget` of them; return why it
    stopped, as the packet level's loops do.
    """
    ctl = net.ctl[0]
    if ctl.started == 0:
        for i in range(net.message.shape[0]):
            messages.start(net, i)
        ctl.started = 1
    done = 0
    while done < budget:
        if ctl.messages_open == 0 or ctl.ended:
            return ss.FINISHED
        at = net.heap[0].at if ctl.heap_n > 0 else NEVER
        if at > until or at == NEVER:
            return ss.REACHED if until != NEVER else ss.FINISHED
        if ctl.heap_n + ctl.reserve >= net.heap.shape[0]:
            return ss.HEAP
        if at // ctl.bin_ps >= net.timeline.shape[0]:
            return ss.TIMELINE
        ctl.now = at
        while (
            ctl.heap_n > 0
            and net.heap[0].at == at
            and (ctl.heap_n + ctl.reserve < net.heap.shape[0])
        ):
            ctl.events += 1
            done += 1
            _happen(net, fl, at)
        if ctl.heap_n == 0 or net.heap[0].at > at:
            _settle(net, fl, at)
    return ss.BUDGET


@compiled
def reenter(net, fl, way, faint):
    """The flows that send do so by other ways from now on, through pools that may have changed:
    enter them anew. All rates are to be computed.
    """
    for r in range(fl.pool.shape[0]):
        fl.pool[r].head = -1
        fl.pool[r].load = 0.0
        fl.pool[r].faint = 0.0
        fl.pool[r].full = 1  # until it is known
    for f in range(fl.flow.shape[0]):
        for k in range(WAY):
            fl.way[f, k] = way[f, k]
        for k in range(BACK):
            fl.faint[f, k] = faint[f, k]
        if fl.flow[f].entry != IDLE:
            fl.flow[f].left_bytes -= fl.flow[f].rate * (net.ctl[0].now - fl.flow[f].at)
            fl.flow[f].at = net.ctl[0].now
            fl.flow[f].rate = 0.0
            rates.join(fl, f)
    for r in range(fl.pool.shape[0]):
        rates.make_dirty(fl, r)


@compiled
def fail(net, fl, line_no):
    """A queue pair is in error: its messages fail, and it sends no more."""
    line = fl.line[line_no]
    m = fl.ring[line.ring0 + (line.done & line.ring_mask)]
    lq = net.qp[net.message[m.entry].qp]
    messages.lose_roster(net, lq)
    for i in range(fl.c[0].stripes):
        f = int(line.flow0) + i
        if fl.flow[f].entry != IDLE:
            fl.flow[f].entry = IDLE
            rates.leave(fl, f)
    line.posted = line.done
