"""What routing knows of a fabric: which ports are in service, from when on, and where they lead.

A switch sees its own link go down, and soon leaves it: local repair. It learns of more distant
failures from routing, once that has converged, and likewise when a link comes back or a denylist
drains it. Downwards there is one path in a folded Clos, apart from parallel links. Hosts are routed
by the subnet of their T0, so a NIC's link takes no path away.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.engine import bits
from openmrc.engine.state import NEVER
from openmrc.fabric.actions import PORT_ALLOW, PORT_DENY, PORT_DOWN, PORT_UP
from openmrc.fabric.model import Fabric
from openmrc.jit import compiled, inlined, inner, records
from openmrc.sim.net import events
from openmrc.sim.net.state import (
    AT_CONVERGED,
    AT_LOCAL_REPAIR,
    CHANGE,
    NICS,
    OWN_SWITCH,
    ROUTE,
    TO_NICS,
    TO_SWITCHES,
    Net,
)
from openmrc.sim.net.switch import first_down

SEED_CONVERGENCE = 9  # purpose of a random stream, in addition to those of `network`


class Convergence(NamedTuple):
    """How long routing takes to apply a change, ps: drawn uniformly between two times. And who
    learns of changes by itself, and how long after: a port's `OWN_SWITCH`, of a link that is down,
    if that is sooner; or `NICS`.
    """

    low_ps: int
    high_ps: int
    seed: int
    who: int = OWN_SWITCH
    own_ps: int = int(NEVER)


def open_routing(net: Net, fabric: Fabric, convergence: Convergence) -> Net:
    """Return the network with routing, which applies the changes of its schedule of faults."""
    route = records(fabric.n_ports, ROUTE)
    route.own_up = 1
    route.reverse = fabric.port_reverse
    return net._replace(route=route, change=changes_of(net.fault, convergence))


@inlined
def in_service(net, port_no, groups):
    """Whether routing considers a port up, and not drained for the sender; `groups` as of
    `groups_of`, with the bit of who asks.
    """
    return int(net.route[port_no].shut) & groups == 0


@inlined
def groups_of(net, nic):
    """The groups of denylists that a NIC is in, as a mask."""
    return int(net.groups[nic]) if net.groups.shape[0] > 0 else 0


@inner
def _first_in_service(net, first, n, groups):
    """The first of `n` ports that are in service, or -1."""
    for port_no in range(first, first + n):
        if in_service(net, port_no, groups):
            return port_no
    return -1


@inner
def descends(net, switch, dst, groups):
    """Whether a switch has a NIC below it, and links in service down to its T0."""
    here = switch
    s = net.switch[here]
    if not s.lo <= dst < s.hi:
        return False
    while net.switch[here].tier > 0:
        s = net.switch[here]
        port_no = _first_in_service(net, int(first_down(s, dst)), int(s.bundle), groups)
        if port_no < 0:
            return False
        here = int(net.port[port_no].peer)
    return True


@inner
def leads(net, switch, dst, groups):
    """Whether routing knows a path from a switch to a NIC's T0: down, or up once and then down."""
    s = net.switch[switch]
    if s.lo <= dst < s.hi:
        return descends(net, switch, dst, groups)
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if in_service(net, port_no, groups) and descends(
            net, int(net.port[port_no].peer), dst, groups
        ):
            return True
    return False


def changes_of(fault: Any, convergence: Convergence) -> Any:
    """The changes that routing will apply, `CHANGE`, for a schedule of faults `FAULT`."""
    action = np.asarray(fault.action)
    seen = np.isin(action, (PORT_DOWN, PORT_UP, PORT_DENY, PORT_ALLOW))
    at, port = np.asarray(fault.at_ps)[seen], np.asarray(fault.target)[seen]
    delay = np.zeros(len(at), np.int64)
    low_ps, high_ps, seed, who, own_ps = convergence
    drawn = int(bits.seed_streams(seed, SEED_CONVERGENCE, 1)[0] >> np.uint64(33))
    _draw_delays(low_ps, high_ps - low_ps, drawn, np.ascontiguousarray(at), delay)
    more = (action[seen] == PORT_DOWN) & (own_ps < delay) if who == OWN_SWITCH else at >= 0
    change = records(len(at) + int(more.sum()), CHANGE)
    change.at = np.concatenate([at + delay, at[more] + own_ps])
    change.port = np.concatenate([port, port[more]])
    change.who[len(at) :] = who
    return change[np.lexsort((change.port, change.who, change.at))]


@compiled
def _draw_delays(low_ps, span_ps, seed, at, delay):
    """How long routing takes to apply the changes of each of these times, ps: one delay, drawn at
    random, for all that happens at one instant.
    """
    for i in range(at.shape[0]):
        share = bits.mix32(bits.mix32(at[i] >> 32) + at[i] + seed)
        delay[i] = low_ps + (span_ps >> 16) * (share >> 16)


@inlined
def next_change(net, number):
    """Put the next change that routing will apply into the heap; one at a time."""
    if number < net.change.shape[0]:
        change = net.change[number]
        kind = AT_LOCAL_REPAIR if change.who == OWN_SWITCH else AT_CONVERGED
        events.push(net, int(change.at), kind, number)


@inlined
def _is_broken(r):
    """Whether some switch has removed a port from its groups."""
    return r.own_up == 0 or r.shut != 0


@inner
def take_in(net, change):
    """Apply a change: the port's own switch removes it from its groups, if it is still down; or
    routing has converged for it, and all switches now use its actual state, or all NICs. The first
    shard does it for all.
    """
    if net.ctl[0].shard > 0:
        return
    port_no = int(change.port)
    r = net.route[port_no]
    up = net.port[port_no].up
    before = _is_broken(r)
    if change.who == OWN_SWITCH:
        if up == 0:
            r.own_up = 0
    elif change.who == NICS:
        r.shut = int(r.shut) & ~TO_NICS | (0 if up else TO_NICS)
    else:
        r.own_up = up
        r.shut = int(r.shut) & TO_NICS | int(net.health[port_no].denied)
        if up == 0:
            r.shut = int(r.shut) | TO_SWITCHES
    net.routing[0].broken += int(_is_broken(r)) - int(before)
