"""Shards advance in parallel, window by window, on any number of threads.

A window begins with the next event of all shards and ends before anything that happens in it can
affect another shard, or before a fault. Within it each shard takes in the packets that crossed in
the window before and handles its events, by itself: it does not matter which thread does it and
when. The thread that finishes the last shard settles what concerns several, and plans the next
window. So nothing depends on the number of threads, nor on the steps in which a run is requested:
those only interrupt a window.

An idle thread polls for some microseconds, then sleeps between polls. If little happens in a
window, one thread handles all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmrc.engine.state import NEVER
from openmrc.fabric import queues
from openmrc.jit import compiled, inlined, inner, record_type
from openmrc.jit.byref import at as referred
from openmrc.jit.byref import by_reference, whatever_is_at
from openmrc.jit.callref import call_int
from openmrc.jit.instructions import prefetch
from openmrc.jit.shared import doze, exchange, give_way, look
from openmrc.sim.net import cross, events, messages
from openmrc.sim.net import state as ss

CREW = record_type(
    ("lock", "i8"),  # held while any of the following is read or written
    ("moves", "i8"),  # counts changes that waiting threads poll for
    ("apart", "i8", (14,)),  # two cache lines
    ("advance", "i8"),  # address of the transport's `advance`
    ("packets_reserved", "i8"),  # that one event may need
    ("window_ps", "i8"),
    ("threads", "i8"),
    ("looks", "i8"),  # polls before a waiting thread sleeps
    ("alone_below", "i8"),  # a window of fewer events is over before other threads are awake
    # the window
    ("start", "i8"),
    ("end", "i8"),  # its last instant
    ("leg_end", "i8"),  # or the end of what was requested
    ("row", "i8"),  # 0 or 1: the lists for packets that cross
    ("due", "i8"),  # next entry of AGENDA
    ("planning", "i8"),  # it is over, and the next one has not begun
    ("windows", "i8"),  # number of windows so far
    # the step
    ("until", "i8"),
    ("budget", "i8"),  # events after which the step ends
    ("events", "i8"),
    ("todo", "i8"),  # shards that no thread has taken yet
    ("busy", "i8"),  # shards that a thread is handling
    ("stuck", "i8"),  # shards that need room
    ("handled", "i8"),  # events of this window so far
    ("alone", "i8"),  # so little happens that the first thread handles all
    ("halted", "i8"),  # no more shards are handed out
    ("stopped", "i8"),  # and no thread is at work: the step ended, for `why`
    ("why", "i8"),
)
SHARD = record_type(
    ("net", "i8"),  # addresses
    ("st", "i8"),
    ("own", "i8"),  # of the transport's own state; 0 without
    ("done_until", "i8"),
    ("events", "i8"),  # of the last window
    ("why", "i8"),  # what it needs; GO_ON if nothing
    ("turn", "i8"),
    ("begun", "i8"),  # it has taken in the packets that crossed
)  # one cache line
AGENDA = record_type(  # what happens between two windows, in time order
    ("at", "i8"),
    ("fault_at", "i8"),  # when the first fault after that happens
    ("shard", "i4"),  # in which shard, -1: in every one
    ("number", "i4"),  # of the fault; numbers after the faults are the transport's changes
)


@by_reference
class Plan(NamedTuple):
    """What the threads share."""

    crew: Any  # CREW, one record
    shard: Any  # SHARD
    agenda: Any  # AGENDA


MOVES_AT = 8  # bytes into CREW
IDLE, WAITING, BUSY = 0, 1, 2  # SHARD.turn
GO_ON = -1
HELP = 100  # why a step ended: some shards need room
WITHOUT_END = 1 << 40  # events of a shard's window
YIELDS = 10
DOZE_US = 50


@compiled
def resume(plan, like, st, until, budget):
    """Begin a step; return whether `work` is to follow, or 0: it has ended already."""
    c = plan.crew[0]
    shard = plan.shard
    agenda = plan.agenda
    c.until = until
    c.budget = budget
    c.events = 0
    c.stuck = 0
    c.halted = 0
    c.stopped = 0
    if c.planning:
        _plan(c, shard, agenda, like, st)
    else:
        _hand_out(c, shard)
        if c.todo == 0:
            _turn(c, shard, agenda, like, st)
    return 1 - c.stopped


@compiled
def work(plan, like, st, me):
    """The body of each thread until the step has ended; `me` is its number. Returns why it did."""
    c = plan.crew[0]
    shard = plan.shard
    agenda = plan.agenda
    lock = plan.crew.ctypes.data
    while True:
        _lock(lock)
        i = _take(c, shard, me)
        moves = c.moves
        stopped = c.stopped
        exchange(lock, 0)
        if i >= 0:
            why = _one(c, shard, i, like, st)
            _lock(lock)
            _finish(c, shard, i, why)
            if c.busy == 0 and (c.todo == 0 or c.halted):
                _turn(c, shard, agenda, like, st)
            exchange(lock, 0)
        elif stopped:
            return c.why
        else:
            _wait(lock + MOVES_AT, moves, c.looks)


@compiled
def level(plan, like):
    """Give each shard an equal share of the free packet indices, and return the share; no thread is
    at work.
    """
    shard = plan.shard
    n = shard.shape[0]
    free = 0
    for i in range(n):
        free += int(referred(like, shard[i].net).ctl[0].n_free)
    share = free // n
    giver = 0
    for taker in range(n):
        needs = referred(like, shard[taker].net).ctl[0]
        while needs.n_free < share:
            has = referred(like, shard[giver].net).ctl[0]
            for _ in range(min(has.n_free - share, share - needs.n_free)):
                queues.give_back(needs, like.hop, queues.take_free(has, like.hop))
            if has.n_free <= share:
                giver += 1
    return share


@inlined
def _lock(lock):
    while exchange(lock, 1) != 0:
        give_way()


@inner
def _wait(moves_at, moves, looks):
    """Wait until there may be something to do."""
    for _ in range(looks):
        if look(moves_at) != moves:
            return
    for _ in range(YIELDS):
        if look(moves_at) != moves:
            return
        give_way()
    while look(moves_at) == moves:
        doze(DOZE_US)


@inner
def _take(c, shard, me):
    """Take a shard that waits to be handled; -1 if there is none for this thread.

    Each thread begins with its own shard, which its caches may still hold.
    """
    if c.todo == 0 or c.halted or (me > 0 and c.alone):
        return -1
    n = shard.shape[0]
    first = me * n // c.threads
    for k in range(n):
        i = (first + k) % n
        if shard[i].turn == WAITING:
            shard[i].turn = BUSY
            c.todo -= 1
            c.busy += 1
            return i
    return -1


@inner
def _one(c, shard, i, like, st):
    """Handle a shard's part of a window; `GO_ON`, or what it needs before it can go on."""
    s = shard[i]
    net = referred(like, s.net)
    engine = referred(st, s.st)
    s.events = 0
    if c.end < 0:  # before the start of the run
        _advance(c, s, net, engine, -1, 0)
        return GO_ON
    if s.begun == 0:
        _begin(c, shard, i, like, net)
        s.begun = 1
    before = int(net.ctl[0].events)
    why = _advance(c, s, net, engine, int(c.leg_end), WITHOUT_END)
    s.events = int(net.ctl[0].events) - before
    return GO_ON if why == ss.REACHED or why == ss.FINISHED else why


@inlined
def _advance(c, s, net, engine, until, budget):
    """The transport's `advance`, for a shard."""
    if s.own == 0:
        return call_int(c.advance, (net, engine, until, budget))
    return call_int(c.advance, (net, engine, whatever_is_at(s.own), until, budget))


@inner
def _begin(c, shard, i, like, net):
    """A window begins for a shard: it takes in the packets that crossed."""
    n = shard.shape[0]
    ctl = net.ctl[0]
    ctl.outbox = c.row * n
    for other in range(n):
        net.outgoing[ctl.outbox + other, cross.COUNT] = 0
    ctl.crosses_at = NEVER
    events.rewind(net, int(c.start))
    row = (1 - c.row) * n + i
    for other in range(n):
        _fetch_first(net, referred(like, shard[other].net).outgoing, row)
    for other in range(n):
        _take_in(net, referred(like, shard[other].net).outgoing, row)


@inner
def _fetch_first(net, outgoing, row):
    """Prefetch the first packets of a list."""
    for strand in range(min(outgoing[row, cross.COUNT], cross.STRANDS)):
        _fetch(net, outgoing[row, cross.FIRST + strand])


@inlined
def _fetch(net, n):
    prefetch(net.hop, n, 0)
    prefetch(net.after, net.ctl[0].n_ports + n, 0)


@inner
def _take_in(net, outgoing, row):
    """Take in what one shard has sent to another; in the place of the first packet of each strand
    is the next one to take.
    """
    count = int(outgoing[row, cross.COUNT])
    for k in range(count):
        first = cross.FIRST + (k & (cross.STRANDS - 1))
        n = int(outgoing[row, first])
        if k + cross.STRANDS < count:
            following = int(net.after[net.ctl[0].n_ports + n])
            outgoing[row, first] = following
            _fetch(net, following)
        h = net.hop[n]
        events.schedule_packet(net, n, h, int(h.at))


@inlined
def _finish(c, shard, i, why):
    """A shard was handled."""
    s = shard[i]
    s.turn = IDLE
    s.why = why
    c.busy -= 1
    c.events += s.events
    c.handled += s.events
    if c.alone and c.handled > c.alone_below:
        c.alone = 0
        c.moves += 1
    if why == GO_ON:
        s.done_until = c.leg_end
    else:
        c.stuck += 1
    if c.events >= c.budget:
        c.halted = 1


@inner
def _turn(c, shard, agenda, like, st):
    """No thread is at work: decide what comes next."""
    if c.stuck > 0:
        _stop(c, HELP)
    elif c.todo > 0:
        _stop(c, ss.BUDGET)
    elif c.leg_end < c.end:
        _stop(c, ss.REACHED)
    else:
        _settle(shard, like, st)
        c.planning = 1
        _plan(c, shard, agenda, like, st)
        if c.halted and c.stopped == 0:
            _stop(c, ss.BUDGET)


@inlined
def _stop(c, why):
    """The step ends."""
    c.why = why
    c.stopped = 1
    c.moves += 1


@inner
def _hand_out(c, shard):
    """Determine the work up to the end of the window, or of what was requested."""
    c.leg_end = min(c.end, c.until)
    c.todo = 0
    events_before = 0
    for i in range(shard.shape[0]):
        s = shard[i]
        events_before += int(s.events)
        s.turn = IDLE
        if s.done_until < c.leg_end:
            s.turn = WAITING
            c.todo += 1
    c.alone = 1 if c.windows > 1 and events_before < c.alone_below else 0
    c.handled = 0
    c.moves += 1


@inner
def _settle(shard, like, st):
    """Settle what happened in a window and concerns several shards: the other ends of failed QPs
    learn of the failure, and so do the entries that wait for their messages.
    """
    for i in range(shard.shape[0]):
        net = referred(like, shard[i].net)
        ctl = net.ctl[0]
        qi = int(ctl.failed_qp)
        ctl.failed_qp = ss.NONE
        while qi >= 0:
            following = int(net.qp[qi].waiting_tail)
            messages.fail_other(net, referred(st, shard[i].st), int(net.qp[qi].other))
            qi = following
    for i in range(shard.shape[0]):
        net = referred(like, shard[i].net)
        mi = int(net.ctl[0].lost_entry)
        net.ctl[0].lost_entry = ss.NONE
        while mi >= 0:
            following = int(net.message[mi].deps)
            messages.orphan_all(net, mi)
            mi = following


@inner
def _plan(c, shard, agenda, like, st):
    """Plan the next window, after the faults that happen when it begins; or end the step."""
    while True:
        at = int(NEVER)
        is_open = False
        ended = False
        for i in range(shard.shape[0]):
            net = referred(like, shard[i].net)
            ctl = net.ctl[0]
            is_open = is_open or ctl.messages_open > 1
            ended = ended or ctl.ended != 0
            at = min(at, _first_at(net))
        net = referred(like, shard[0].net)
        due_at = _due_at(c, agenda)
        at = min(at, due_at)
        if ended or not is_open:
            _stop(c, ss.FINISHED)
            return
        if at > c.until:
            for i in range(shard.shape[0]):
                ctl = referred(like, shard[i].net).ctl[0]
                ctl.now = max(int(ctl.now), int(c.until))
            _stop(c, ss.FINISHED if at == NEVER else ss.REACHED)
            return
        if at + c.window_ps >= net.timeline.shape[0] * net.ctl[0].bin_ps:
            _stop(c, ss.TIMELINE)
            return
        if at < due_at:
            break
        if not _has_room(c, shard, like):
            _stop(c, HELP)
            return
        fault_at = int(agenda[c.due].fault_at)
        for i in range(shard.shape[0]):
            referred(like, shard[i].net).ctl[0].fault_at = fault_at
        while _due_at(c, agenda) == at:
            _strike(c, shard, agenda[c.due], like, st, at)
            c.due += 1
    c.start = at
    c.end = min(at + c.window_ps, due_at) - 1
    c.row = 1 - c.row
    c.windows += 1
    c.planning = 0
    for i in range(shard.shape[0]):
        shard[i].begun = 0
        shard[i].done_until = at - 1
    _hand_out(c, shard)


@inlined
def _due_at(c, agenda):
    """When something happens between two windows next, ps."""
    if c.due < agenda.shape[0]:
        return int(agenda[c.due].at)
    return int(NEVER)


@inlined
def _first_at(net):
    """When something happens next in a shard, or in another for what has left it, ps."""
    at = min(events.next_at(net), int(net.ctl[0].crosses_at))
    if net.ctl[0].heap_n > 0:
        at = min(at, int(net.heap[0].at))
    return at


@inner
def _has_room(c, shard, like):
    """Whether every shard has room for all that a fault may cause at once; those without are
    marked.
    """
    enough = True
    for i in range(shard.shape[0]):
        net = referred(like, shard[i].net)
        ctl = net.ctl[0]
        why = GO_ON
        if ctl.heap_n + ctl.reserve > net.heap.shape[0]:
            why = ss.HEAP
        elif ctl.tap_n + ctl.tap_reserve > net.tap.shape[0]:
            why = ss.TAPPED
        elif ctl.n_free < c.packets_reserved:
            why = ss.ROOM
        shard[i].why = why
        enough = enough and why == GO_ON
    return enough


@inner
def _strike(c, shard, due, like, st, at):
    """Apply a fault, in one shard or in all of them; the others learn what they must know."""
    owner = int(due.shard)
    for i in range(shard.shape[0]):
        if i != owner and owner >= 0:
            continue
        net = referred(like, shard[i].net)
        net.ctl[0].fault_no = due.number
        _advance(c, shard[i], net, referred(st, shard[i].st), at - 1, 1)
    if owner < 0:
        return
    told = referred(like, shard[owner].net).ctl[0]
    for i in range(shard.shape[0]):
        net = referred(like, shard[i].net)
        ctl = net.ctl[0]
        ctl.cut_over_at = max(int(ctl.cut_over_at), int(told.cut_over_at))
        if ctl.rerouted_at != told.rerouted_at:
            ctl.rerouted_at = told.rerouted_at
            events.push(net, at + ctl.convergence_ps, ss.AT_CONVERGED, ctl.nic0)
