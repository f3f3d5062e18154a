"""Switches that balance: each packet takes the least loaded of the ports of equal cost.

The load of a port is the data in its queue, in a few steps. Among ports of the least step a packet
takes one at random, or they take turns. With a single step that is oblivious spraying.

A switch leaves a port of its own at once when it goes down, and returns when it comes up. What
breaks further on it knows from routing, once that has converged: then each uplink has a weight, the
number of paths from there to the destination that routing knows, and one of the least loaded
uplinks that have any is drawn in proportion to the weights.

No packet reads the queues of all ports: a switch has a list of its uplinks for each step
(`Net.ranked`), and a port changes lists when its queue crosses the bound of a step.
"""

from __future__ import annotations

import numpy as np

from openmrc.engine import bits
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import UNLIMITED
from openmrc.jit import compiled, inlined, inner, records
from openmrc.jit.callref import address_of, call_int
from openmrc.sim.net import routing
from openmrc.sim.net.state import SHELF, TO_SWITCHES, Net
from openmrc.sim.net.switch import first_down

DOWN = -1  # SHELF.step of a port that is
SEED_TURNS = 10  # purpose of a random stream, in addition to those of `network`
# Of htsim's `ecmp_ar`: it has a step at 5, 10 and 20 % of its queue, one BDP.
LOAD_STEPS = (0.05, 0.1, 0.2)


def step_bytes(steps: tuple[float, ...], bdp_bytes: int) -> tuple[int, ...]:
    """Return the bytes queued at a port of a NIC's rate with which each further step begins."""
    return tuple(max(int(step * bdp_bytes), 1) for step in steps)


def open_balance(
    net: Net,
    fabric: Fabric,
    seed: int,
    begin_bytes: tuple[int, ...],
    rate_bps: int,
    rotates: bool,
) -> Net:
    """Return a network whose switches balance; `begin_bytes` is what `step_bytes` returns for a
    NIC's rate.
    """
    steps = len(begin_bytes) + 1
    first, n_up = np.asarray(fabric.sw_first_up), np.asarray(fabric.sw_n_up)
    ranked = np.zeros((fabric.n_switches * steps, max(int(n_up.max(initial=1)), 1)), np.int16)
    ranked[::steps] = np.arange(ranked.shape[1])
    n_ranked = np.zeros(len(ranked), np.int16)
    n_ranked[::steps] = n_up
    of = np.maximum(fabric.port_switch, 0)
    uplink = np.arange(fabric.n_ports) - first[of]
    is_up = (fabric.port_switch >= 0) & (uplink >= 0) & (uplink < n_up[of])
    shelf = records(fabric.n_ports, SHELF)
    shelf.row = of * steps
    shelf.first = first[of]
    shelf.uplink = np.where(is_up, uplink, -1)
    shelf.place = shelf.uplink
    bound = np.array(begin_bytes or (UNLIMITED,)) / rate_bps
    bounds = np.clip(np.outer(net.port_kind.rate_bps, bound), 1, UNLIMITED).astype(np.int32)
    shelf.high = bounds[net.port.kind, 0]
    turns = np.random.default_rng([seed, SEED_TURNS]).integers(0, 1 << 31, fabric.n_switches)
    net = net._replace(shelf=shelf, ranked=ranked, n_ranked=n_ranked, bound=bounds, turn=turns)
    net.balance.n_steps = steps
    net.balance.rotates = rotates
    net.calls.egress = address_of(egress, (net, 0, 0))
    net.calls.shelve = address_of(shelve, (net, 0))
    return net


@inlined
def note_load(net, port_no, port):
    """The data queued at a port has changed: with it, perhaps, the step of its load."""
    if net.balance[0].n_steps > 1:
        shelf = net.shelf[port_no]
        if not shelf.low <= port.data_queued_bytes < shelf.high:
            call_int(net.calls[0].shelve, (net, port_no))


@inlined
def note_link(net, port_no):
    """A port went down, or came up."""
    if net.calls[0].shelve != 0:
        call_int(net.calls[0].shelve, (net, port_no))


@inlined
def next_port(net, switch, n, dst):
    """Egress port of packet `n` at a switch that balances; -1 if it has no way. Only where it has a
    choice it looks.
    """
    s = net.switch[switch]
    if s.bundle == 1 and s.lo <= dst < s.hi:
        return int(first_down(s, dst))
    return call_int(net.calls[0].egress, (net, switch, n))


@inlined
def _step_of(net, port, shelf):
    """The step of a port's load; note the queue's lengths from which and to which it has it."""
    if port.up == 0:
        return DOWN
    step = 0
    shelf.low = 0
    shelf.high = UNLIMITED
    while step < net.balance[0].n_steps - 1:
        shelf.high = net.bound[port.kind, step]
        if port.data_queued_bytes < shelf.high:
            break
        shelf.low = shelf.high
        shelf.high = UNLIMITED
        step += 1
    return step


@compiled
def shelve(net, port_no):
    """The queue of a switch's port, or the state of its link, may have changed."""
    shelf = net.shelf[port_no]
    step = int(_step_of(net, net.port[port_no], shelf))
    if step == shelf.step:
        return 0
    if shelf.uplink >= 0:
        if shelf.step != DOWN:
            _remove(net, shelf)
        if step != DOWN:
            _append(net, shelf, int(shelf.row) + step)
    shelf.step = step
    return 0


@inlined
def _remove(net, shelf):
    """Take an uplink out of its list; the last one takes its place."""
    row = int(shelf.row) + int(shelf.step)
    net.n_ranked[row] -= 1
    last = int(net.ranked[row, net.n_ranked[row]])
    net.ranked[row, shelf.place] = last
    net.shelf[int(shelf.first) + last].place = shelf.place


@inlined
def _append(net, shelf, row):
    shelf.place = net.n_ranked[row]
    net.ranked[row, shelf.place] = shelf.uplink
    net.n_ranked[row] += 1


@inlined
def _turn(net, switch, draws_at, n):
    """Which of `n` ports of equal load is next: in turn, or drawn from the stream of a port."""
    if net.balance[0].rotates == 0:
        return bits.draw_below(net.stream, draws_at, n)
    net.turn[switch] += 1
    return int(net.turn[switch]) % n


@inlined
def _of_parallel(net, switch, first, n):
    """The least loaded of a switch's parallel ports; the first one if all are down."""
    least = int(net.balance[0].n_steps)
    ties = 0
    for port_no in range(first, first + n):
        step = int(net.shelf[port_no].step)
        if step != DOWN and step < least:
            least = step
            ties = 0
        ties += int(step == least)
    if ties == 0:
        return first
    left = _turn(net, switch, first, ties)
    port_no = first
    while left > 0 or net.shelf[port_no].step != least:
        left -= int(net.shelf[port_no].step == least)
        port_no += 1
    return port_no


@inner
def _weight(net, port_no, dst, groups):
    """How many paths of equal cost routing knows through an uplink to a NIC's T0."""
    if not routing.in_service(net, port_no, groups):
        return 0
    there = int(net.port[port_no].peer)
    s = net.switch[there]
    if s.lo <= dst < s.hi:
        return int(routing.descends(net, there, dst, groups))
    n = 0
    for above in range(s.first_up, s.first_up + s.n_up):
        if routing.in_service(net, above, groups):
            n += int(routing.descends(net, int(net.port[above].peer), dst, groups))
    return n


@inner
def _by_weight(net, s, row, dst, groups):
    """An uplink of a list, drawn in proportion to the weights; -1 if none has any."""
    total = 0
    for i in range(net.n_ranked[row]):
        total += int(_weight(net, s.first_up + net.ranked[row, i], dst, groups))
    if total == 0:
        return -1
    left = bits.draw_below(net.stream, s.first_up, total)
    i = 0
    while True:
        port_no = s.first_up + net.ranked[row, i]
        left -= int(_weight(net, port_no, dst, groups))
        if left < 0:
            return port_no
        i += 1


@compiled
def egress(net, switch, n):
    """Egress port of packet `n` at a switch that has a choice; -1 if it has no way."""
    s = net.switch[switch]
    dst = int(net.hop[n].dst)
    if s.lo <= dst < s.hi:
        return _of_parallel(net, switch, int(first_down(s, dst)), int(s.bundle))
    row0 = switch * int(net.balance[0].n_steps)
    breaks = net.routing[0].broken != 0
    groups = TO_SWITCHES
    if breaks:
        groups |= int(routing.groups_of(net, int(net.packet[n].src)))
    for row in range(row0, row0 + net.balance[0].n_steps):
        n_ranked = int(net.n_ranked[row])
        if n_ranked == 0:
            continue
        if not breaks:
            turn = _turn(net, switch, int(s.first_up), n_ranked)
            return int(s.first_up) + int(net.ranked[row, turn])
        port_no = int(_by_weight(net, s, row, dst, groups))
        if port_no >= 0:
            return port_no
    return -1
