"""The loop of all switches: handle due events, then arrivals, then wait.

One event per hop, in the order of their due times. The loop sleeps in the kernel until the next
event or the next frame. On slow links it batches both (`grain`), which saves most of its turns and
costs a delay that is small compared to a round trip; on fast ones it spins for events that are
closer than the precision of a sleep. `step` is one turn without waiting, at a given time.
"""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.fabric.actions import PORT_DOWN
from openmrc.jit import compiled, heap, inlined, inner
from openmrc.live import syscalls
from openmrc.live.switch import faults as switch_faults
from openmrc.live.switch.ports import drop, enqueue, flush, on_free
from openmrc.live.switch.state import DROP_BLOCK, DROP_LINK, DROP_SWITCH, ORDERS
from openmrc.live.switch.wires import arm, deliver, read_wire, resume, send_all
from openmrc.wire import srv6

KICK = -1  # what epoll reports for the descriptor that requests attention
RETRY_NS = 1_000_000  # between attempts when there is no buffer to receive into


@compiled
def step(net, now):
    """Run one turn at a given time (ps), without waiting; return the time of the next event, or
    NEVER.
    """
    _advance(net, now)
    _receive(net, now)
    _advance(net, now)
    _finish(net)
    return _next_at(net)


@compiled
def run(net):
    """Run turns until the loop is asked to return."""
    ctl = net.ctl[0]
    while ctl.leave == 0:
        ctl.turns += 1
        now = _now(net)
        _advance(net, now)
        _finish(net)
        if _wait(net):
            now = _now(net)
            _advance(net, now)
            _receive(net, now)


@compiled
def listen(net, fd, which):
    """Report frames on a descriptor, which epoll knows, as `which`: a wire, or KICK."""
    return syscalls.epoll_change(int(net.ctl[0].epoll_fd), fd, which, syscalls.POLL_IN, net.change)


@compiled
def obey(net):
    """Carry out requested actions while no loop runs."""
    _obey(net)


@inlined
def _now(net):
    return (syscalls.monotonic_ns(net.word) - net.ctl[0].started_ns) * syscalls.PS_PER_NS


@inner
def _wait(net):
    """Sleep until an event is due or a descriptor is ready; return whether there is something to
    read.
    """
    ctl = net.ctl[0]
    due = _next_at(net)
    left_ns = -1
    if due < NEVER:
        left_ns = max((due - _now(net)) // syscalls.PS_PER_NS, 0)
    arm(net)
    if ctl.n_armed == 0:  # every buffer is in use: only time, or a NIC that reads, frees one
        ctl.no_room += 1
        left_ns = RETRY_NS if left_ns < 0 else min(left_ns, RETRY_NS)
        if left_ns >= ctl.spin_ns:
            syscalls.wait(net.poll[:0], left_ns, net.word)
        return True
    if left_ns >= 0 and ctl.grain_ns > 0:  # let some frames accumulate
        syscalls.wait(net.poll[:0], ctl.grain_ns, net.word)
        left_ns -= ctl.grain_ns
        if left_ns <= 0:
            return True
    if 0 <= left_ns < ctl.spin_ns and ctl.grain_ns == 0:
        return True
    return syscalls.wait(net.poll, left_ns, net.word) > 0


@inlined
def _next_at(net):
    ctl = net.ctl[0]
    at = int(NEVER)
    if ctl.heap_n > 0:
        at = int(net.heap[0].at)
    if ctl.next_event < net.schedule.shape[0]:
        at = min(at, int(net.schedule[ctl.next_event].at_ps))
    return at


@inner
def _advance(net, now):
    """Handle everything due by `now`, then actions that were requested meanwhile."""
    ctl = net.ctl[0]
    ctl.wall = now
    while True:
        at = _next_at(net)
        if at > now:
            break
        ctl.now = at
        scheduled = ctl.next_event
        if scheduled < net.schedule.shape[0] and int(net.schedule[scheduled].at_ps) == at:
            _apply(net, net.schedule[scheduled])
            ctl.next_event = scheduled + 1
            continue
        what = heap.pop(ctl, net.heap)
        n_frames = net.frame.shape[0]
        if what < n_frames:
            _arrive(net, what, at)
        else:
            on_free(net, what - n_frames, at)
    ctl.now = now
    if ctl.orders_done != ctl.orders_given:
        _obey(net)


@inner
def _obey(net):
    """Carry out requested actions, and confirm them."""
    ctl = net.ctl[0]
    while ctl.orders_done != ctl.orders_given:
        _apply(net, net.order[ctl.orders_done % ORDERS])
        ctl.orders_done += 1
    syscalls.write_count(int(ctl.done_fd), net.word)


@inner
def _apply(net, event):
    """Carry out one fault action."""
    switch_faults.apply(net, event)
    if event.action == PORT_DOWN:
        flush(net, int(event.target))


@inlined
def _arrive(net, n, at):
    """A frame arrives at the other end of a link."""
    f = net.frame[n]
    from_no = int(f.port)
    came_from = net.port[from_no]
    if f.left_at <= came_from.cut_until:
        drop(net, from_no, n, DROP_LINK)
        return
    switch = int(came_from.peer_switch)
    if switch < 0:
        deliver(net, int(came_from.wire), n, at)
        return
    if net.switch[switch].state != switch_faults.FORWARDS:
        drop(net, from_no, n, DROP_SWITCH)
        return
    data = net.pool[f.room]
    tables = srv6.Tables(net.table, net.slots)
    port_no = srv6.forward_frame(data, int(f.length), tables, switch)
    if port_no < 0:
        drop(net, from_no, n, DROP_BLOCK - 1 - port_no)  # in the order of the reasons in srv6
        return
    for i in range(net.macs.shape[1]):
        data[i] = net.macs[port_no, i]
    enqueue(net, port_no, n, at)


@inner
def _receive(net, now):
    """Read a batch of frames from every wire that is ready."""
    ctl = net.ctl[0]
    arm(net)
    ready = syscalls.epoll_ready(int(ctl.epoll_fd), net.ready)
    for i in range(ready):
        which = int(net.ready[i].which)
        if which == KICK:
            syscalls.read_count(int(ctl.kick_fd), net.word)
        elif net.wire[which].closed == 0:
            read_wire(net, which, int(net.ready[i].events), now)


@inlined
def _finish(net):
    """Send, and resume reading paused wires."""
    send_all(net)
    if net.ctl[0].n_paused > 0:
        resume(net)
