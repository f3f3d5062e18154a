"""The next step of a network's event loop, or why it returns; the same for every transport."""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import inlined
from openmrc.sim.net import events, messages
from openmrc.sim.net import state as ss

GO_ON = -1
FROM_HEAP = -1  # in place of an event of the wheel


@inlined
def start(net):
    """Before the first event: put the first fault and the messages that need no release into the
    heap.
    """
    ctl = net.ctl[0]
    if ctl.n_shards == 1:
        next_fault(net, 0)
    for i in range(net.message.shape[0]):
        if ctl.n_shards == 1 or net.entry_shard[i] == ctl.shard:
            messages.start(net, i)
    ctl.started = 1


@inlined
def rounded_up(budget):
    """Events of one call: the number between two checks, or a multiple of it."""
    return -(-budget // ss.EVENTS_BETWEEN_CHECKS) * ss.EVENTS_BETWEEN_CHECKS


@inlined
def take(net, until, done, packets_reserved):
    """Take the next event: whether to continue after `done` of them, its time, and which it is.

    The first is `GO_ON`, or else the value that `advance` returns, and no event is taken.
    `packets_reserved` is more than one event ever needs.
    """
    ctl = net.ctl[0]
    why, at, from_heap = _look(net, until, done, packets_reserved)
    event = FROM_HEAP
    if why == GO_ON:
        ctl.now = at
        ctl.events += 1
        if from_heap:
            events.rewind(net, at)
        else:
            event = events.take(net)
    return why, at, event


@inlined
def _look(net, until, done, packets_reserved):
    """Whether to continue, the time of the next event, and whether it is in the heap."""
    ctl = net.ctl[0]
    at = events.next_at(net)
    heap_at = net.heap[0].at if ctl.heap_n > 0 else NEVER
    from_heap = heap_at <= at
    if from_heap:
        at = heap_at
    why = GO_ON
    if done % ss.EVENTS_BETWEEN_CHECKS == 0 and ctl.heap_n + ctl.reserve > net.heap.shape[0]:
        why = ss.HEAP
    elif done % ss.EVENTS_BETWEEN_CHECKS == 0 and ctl.tap_n + ctl.tap_reserve > net.tap.shape[0]:
        why = ss.TAPPED
    elif ctl.messages_open == 0 or ctl.ended:
        why = ss.FINISHED
    elif ctl.n_free < packets_reserved:
        why = ss.ROOM
    elif at > until:
        ctl.now = until
        why = ss.FINISHED if at == NEVER else ss.REACHED
    elif at >= net.timeline.shape[0] * ctl.bin_ps:
        why = ss.TIMELINE
    return why, at, from_heap


@inlined
def next_fault(net, number):
    """Put the next action of the schedule into the heap: one at a time, because a schedule may be
    long.
    """
    net.ctl[0].fault_at = NEVER
    if number < net.fault.shape[0]:
        net.ctl[0].fault_at = net.fault[number].at_ps
        events.push(net, net.fault[number].at_ps, ss.AT_FAULT, number)
