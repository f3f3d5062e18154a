"""Switches that balance: each packet takes the least loaded of the ports of equal cost.

The load of a port is the data in its queue, in a few steps. Among ports of the least step a packet
takes one at random, or they take turns. With a single step that is oblivious spraying.

A switch leaves a port of its own at once when it goes down, and returns when it comes up. What
breaks further on it knows from routing, once that has converged: then each uplink has a weight, the
number of paths from there to the destination that routing knows, and one of the least loaded
uplinks that have any is drawn in proportion to the weights.

No packet reads the queues of all ports: a switch has a list of its uplinks for each step
(`Roce.ranked`), and a port changes lists when its queue crosses the bound of a step.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.fabric.queues import UNLIMITED
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.net.switch import first_down
from openmrc.sim.roce import routing
from openmrc.sim.roce.state import TO_SWITCHES

DOWN = -1  # SHELF.step of a port that is


@inlined
def _step_of(net, ro, port, shelf):
    """The step of a port's load; note the queue's lengths from which and to which it has it."""
    if port.up == 0:
        return DOWN
    step = 0
    shelf.low = 0
    shelf.high = UNLIMITED
    while step < ro.c[0].n_steps - 1:
        shelf.high = ro.bound[port.kind, step]
        if port.data_queued_bytes < shelf.high:
            break
        shelf.low = shelf.high
        shelf.high = UNLIMITED
        step += 1
    return step


@compiled
def shelve(net, ro, port_no):
    """The queue of a switch's port, or the state of its link, may have changed."""
    shelf = ro.shelf[port_no]
    step = int(_step_of(net, ro, net.port[port_no], shelf))
    if step == shelf.step:
        return 0
    if shelf.uplink >= 0:
        if shelf.step != DOWN:
            _remove(ro, shelf)
        if step != DOWN:
            _append(ro, shelf, int(shelf.row) + step)
    shelf.step = step
    return 0


@inlined
def _remove(ro, shelf):
    """Take an uplink out of its list; the last one takes its place."""
    row = int(shelf.row) + int(shelf.step)
    ro.n_ranked[row] -= 1
    last = int(ro.ranked[row, ro.n_ranked[row]])
    ro.ranked[row, shelf.place] = last
    ro.shelf[int(shelf.first) + last].place = shelf.place


@inlined
def _append(ro, shelf, row):
    shelf.place = ro.n_ranked[row]
    ro.ranked[row, shelf.place] = shelf.uplink
    ro.n_ranked[row] += 1


@inlined
def _turn(net, ro, switch, draws_at, n):
    """Which of `n` ports of equal load is next: in turn, or drawn from the stream of a port."""
    if ro.c[0].rotates == 0:
        return bits.draw_below(net.stream, draws_at, n)
    ro.turn[switch] += 1
    return int(ro.turn[switch]) % n


@inlined
def _of_parallel(net, ro, switch, first, n):
    """The least loaded of a switch's parallel ports; the first one if all are down."""
    least = int(ro.c[0].n_steps)
    ties = 0
    for port_no in range(first, first + n):
        step = int(ro.shelf[port_no].step)
        if step != DOWN and step < least:
            least = step
            ties = 0
        ties += int(step == least)
    if ties == 0:
        return first
    left = _turn(net, ro, switch, first, ties)
    port_no = first
    while left > 0 or ro.shelf[port_no].step != least:
        left -= int(ro.shelf[port_no].step == least)
        port_no += 1
    return port_no


@inner
def _weight(net, ro, port_no, dst, groups):
    """How many paths of equal cost routing knows through an uplink to a NIC's T0."""
    if not routing.in_service(ro, port_no, groups):
        return 0
    there = int(net.port[port_no].peer)
    s = net.switch[there]
    if s.lo <= dst < s.hi:
        return int(routing.descends(net, ro, there, dst, groups))
    n = 0
    for above in range(s.first_up, s.first_up + s.n_up):
        if routing.in_service(ro, above, groups):
            n += int(routing.descends(net, ro, int(net.port[above].peer), dst, groups))
    return n


@inner
def _by_weight(net, ro, s, row, dst, groups):
    """An uplink of a list, drawn in proportion to the weights; -1 if none has any."""
    total = 0
    for i in range(ro.n_ranked[row]):
        total += int(_weight(net, ro, s.first_up + ro.ranked[row, i], dst, groups))
    if total == 0:
        return -1
    left = bits.draw_below(net.stream, s.first_up, total)
    i = 0
    while True:
        port_no = s.first_up + ro.ranked[row, i]
        left -= int(_weight(net, ro, port_no, dst, groups))
        if left < 0:
            return port_no
        i += 1


@compiled
def egress(net, ro, switch, n):
    """Egress port of packet `n` at a switch that has a choice; -1 if it has no way."""
    s = net.switch[switch]
    dst = int(net.hop[n].dst)
    if s.lo <= dst < s.hi:
        return _of_parallel(net, ro, switch, int(first_down(s, dst)), int(s.bundle))
    row0 = switch * int(ro.c[0].n_steps)
    breaks = ro.routing[0].broken != 0
    groups = TO_SWITCHES
    if breaks:
        groups |= int(routing.groups_of(net, int(net.packet[n].src)))
    for row in range(row0, row0 + ro.c[0].n_steps):
        n_ranked = int(ro.n_ranked[row])
        if n_ranked == 0:
            continue
        if not breaks:
            turn = _turn(net, ro, switch, int(s.first_up), n_ranked)
            return int(s.first_up) + int(ro.ranked[row, turn])
        port_no = int(_by_weight(net, ro, s, row, dst, groups))
        if port_no >= 0:
            return port_no
    return -1
