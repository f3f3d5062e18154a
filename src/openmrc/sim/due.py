"""What a network's event loop does next, or why it comes back: the same for every transport."""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import inlined
from openmrc.sim import events, messages
from openmrc.sim.state import (
    AT_FAULT,
    BUDGET,
    EVENTS_BETWEEN_CHECKS,
    FINISHED,
    HEAP,
    REACHED,
    ROOM,
    TAPPED,
    TIMELINE,
)

GO_ON = -1


@inlined
def start(net):
    """Before the first event: put the first fault and the messages that wait for nobody into the
    heap.
    """
    next_fault(net, 0)
    for i in range(net.message.shape[0]):
        messages.start(net, i)
    net.ctl[0].started = 1


@inlined
def look(net, until, done, budget, packets_reserved):
    """Whether to go on after `done` events, when the next one is, and whether the heap has it.

    The first is `GO_ON`, or what `advance` returns. `packets_reserved` are more than one event ever
    needs.
    """
    ctl = net.ctl[0]
    at = events.next_at(net)
    heap_at = net.heap[0].at if ctl.heap_n > 0 else NEVER
    from_heap = heap_at <= at
    if from_heap:
        at = heap_at
    why = GO_ON
    if done % EVENTS_BETWEEN_CHECKS == 0 and done >= budget:
        why = BUDGET
    elif done % EVENTS_BETWEEN_CHECKS == 0 and ctl.heap_n + ctl.reserve > net.heap.shape[0]:
        why = HEAP
    elif done % EVENTS_BETWEEN_CHECKS == 0 and ctl.tap_n + ctl.tap_reserve > net.tap.shape[0]:
        why = TAPPED
    elif ctl.messages_open == 0 or ctl.ended:
        why = FINISHED
    elif ctl.n_free < packets_reserved:
        why = ROOM
    elif at > until:
        ctl.now = until
        why = FINISHED if at == NEVER else REACHED
    elif at >= net.timeline.shape[0] * ctl.bin_ps:
        why = TIMELINE
    return why, at, from_heap


@inlined
def next_fault(net, number):
    """The schedule enters the heap action by action: it may be longer than memory is cheap."""
    if number < net.fault.shape[0]:
        events.push(net, net.fault[number].at_ps, AT_FAULT, number)
