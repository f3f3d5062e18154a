"""ECMP: at every switch a hash of the 5-tuple selects among the next hops that routing knows.

A switch sees its own link go down, and soon removes it from its ECMP groups: local repair. It
learns of more distant failures from routing, and likewise when a link comes back: a flow keeps its
path until routing has converged. After a change of a group the hash selects among the current
members, so that unaffected flows may move too (no resilient hashing).

Downwards there is one path in a folded Clos, apart from parallel links. Upwards the members for a
destination are the uplinks through which routing knows a path to its T0. Hosts are routed by the
subnet of their T0, so a NIC's link removes no uplink from a group. The NIC chooses the plane, as a
bond does: a hash over the planes that are up at both ends and have a path between them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import bits
from openmrc.fabric.actions import PORT_ALLOW, PORT_DENY, PORT_DOWN, PORT_UP
from openmrc.jit import compiled, inlined, inner, records
from openmrc.jit.callref import call_int
from openmrc.sim.net import events
from openmrc.sim.net.state import AT_CONVERGED
from openmrc.sim.net.switch import first_down
from openmrc.sim.roce.state import (
    AT_LOCAL_REPAIR,
    CHANGE,
    NICS,
    OWN_SWITCH,
    TO_NICS,
    TO_SWITCHES,
)
from openmrc.wire.roce.opcodes import UDP, UDP_PORT

PORTS_OF_A_PATH = 6  # at most: NIC, T0, T1, T2, T1, T0


@inlined
def flow_hash(src_ip, dst_ip, sport):
    """32 bits of the 5-tuple: addresses, protocol, ports. A NIC's number stands for its address."""
    h = bits.mix32(src_ip + 1)
    h = bits.mix32(h ^ dst_ip)
    h = bits.mix32(h ^ ((sport << 16) | UDP_PORT))
    return bits.mix32(h ^ UDP)


@compiled
def hash_flows(qp):
    """Before a run: compute the hash of each QP's 5-tuple."""
    for i in range(qp.shape[0]):
        q = qp[i]
        q.flow = flow_hash(int(q.nic), int(q.peer_nic), int(q.sport))


@inlined
def in_service(ro, port_no, groups):
    """Whether routing considers a port up, and not drained for the sender; `groups` as of
    `groups_of`, with the bit of who asks.
    """
    return int(ro.route[port_no].shut) & groups == 0


@inlined
def _usable(ro, port_no, groups):
    """The same for the switch's own port, which it sees go down by itself."""
    return ro.route[port_no].own_up != 0 and in_service(ro, port_no, groups)


@inlined
def groups_of(net, nic):
    """The groups of denylists that a NIC is in, as a mask."""
    return int(net.groups[nic]) if net.groups.shape[0] > 0 else 0


@inner
def _parallel(ro, first, n, choice, groups):
    """The `choice`-th, modulo their number, of those of a switch's own `n` ports that are usable,
    or -1.
    """
    members = 0
    for port_no in range(first, first + n):
        if _usable(ro, port_no, groups):
            members += 1
    if members == 0:
        return -1
    left = choice % members
    for port_no in range(first, first + n):
        if _usable(ro, port_no, groups):
            if left == 0:
                return port_no
            left -= 1
    return -1


@inner
def _first_in_service(ro, first, n, groups):
    """The first of `n` ports that are in service, or -1."""
    for port_no in range(first, first + n):
        if in_service(ro, port_no, groups):
            return port_no
    return -1


@inner
def descends(net, ro, switch, dst, groups):
    """Whether a switch has a NIC below it, and links in service down to its T0."""
    here = switch
    s = net.switch[here]
    if not s.lo <= dst < s.hi:
        return False
    while net.switch[here].tier > 0:
        s = net.switch[here]
        port_no = _first_in_service(ro, int(first_down(s, dst)), int(s.bundle), groups)
        if port_no < 0:
            return False
        here = int(net.port[port_no].peer)
    return True


@inner
def _leads(net, ro, switch, dst, groups):
    """Whether routing knows a path from a switch to a NIC's T0: down, or up once and then down."""
    s = net.switch[switch]
    if s.lo <= dst < s.hi:
        return descends(net, ro, switch, dst, groups)
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if in_service(ro, port_no, groups) and descends(
            net, ro, int(net.port[port_no].peer), dst, groups
        ):
            return True
    return False


@inner
def _member(net, ro, s, dst, choice, groups):
    """The uplink that a hash selects among the members for a destination, or -1 if there is
    none.
    """
    members = 0
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if _usable(ro, port_no, groups) and _leads(
            net, ro, int(net.port[port_no].peer), dst, groups
        ):
            members += 1
    if members == 0:
        return -1
    left = choice % members
    for port_no in range(s.first_up, s.first_up + s.n_up):
        if _usable(ro, port_no, groups) and _leads(
            net, ro, int(net.port[port_no].peer), dst, groups
        ):
            if left == 0:
                return port_no
            left -= 1
    return -1


@inner
def _around(net, ro, s, src, dst, choice):
    """As `egress`, if something is out of service."""
    groups = groups_of(net, src) | TO_SWITCHES
    if s.lo <= dst < s.hi:
        first = int(first_down(s, dst))
        if s.tier == 0:  # the subnet is here, whatever the state of a host's link
            return first
        return _parallel(ro, first, int(s.bundle), choice, groups)
    return _member(net, ro, s, dst, choice, groups)


@inlined
def egress(net, ro, switch, n, dst, flow):
    """Egress port of packet `n` of a flow at a switch; -1 if it has no route. Where it has a choice
    a switch that balances makes it for every packet (`balance`).
    """
    s = net.switch[switch]
    if ro.calls[0].egress != 0 and (s.bundle > 1 or dst < s.lo or dst >= s.hi):
        return call_int(ro.calls[0].egress, (net, ro, switch, n))
    choice = bits.mix32(flow ^ int(s.salt))
    if ro.routing[0].broken != 0:
        return _around(net, ro, s, int(net.packet[n].src), dst, choice)
    if s.lo <= dst < s.hi:
        port_no = first_down(s, dst)
        if s.bundle > 1:
            port_no += choice % int(s.bundle)
        return port_no
    return s.first_up + choice % int(s.n_up)


@inner
def _has_way(net, ro, src, dst, plane, who):
    """Whether a path from NIC to NIC in a plane is known, including their own links."""
    n_planes = net.ctl[0].n_planes
    groups = groups_of(net, src) | who
    port_no = src * n_planes + plane
    if not in_service(ro, port_no, groups):
        return False
    far = net.switch[net.port[dst * n_planes + plane].peer]
    last = int(first_down(far, dst))
    if not in_service(ro, last, groups):
        return False
    return _leads(net, ro, int(net.port[port_no].peer), dst, groups)


@inner
def _usable_planes(net, ro, nic, dst, who):
    """The ports of its bond on which a NIC may send to another, a mask."""
    n_planes = int(net.ctl[0].n_planes)
    up = int(net.nic[nic].up_ports)
    usable = 0
    for plane in range(n_planes):
        if (up >> plane) & 1 and (
            ro.routing[0].broken == 0 or n_planes == 1 or _has_way(net, ro, nic, dst, plane, who)
        ):
            usable |= 1 << plane
    return usable


@inner
def choose_planes(net, ro, rq):
    """Choose the port of its bond on which a QP's end sends, -1 if none is usable; where switches
    balance, all that it may choose from for each packet.
    """
    balances = ro.calls[0].egress != 0
    who = TO_NICS if balances else TO_SWITCHES
    usable = int(_usable_planes(net, ro, int(rq.nic), int(rq.peer_nic), who))
    members = 0
    for plane in range(net.ctl[0].n_planes):
        members += (usable >> plane) & 1
    rq.planes = usable if balances else 0
    rq.plane = -1
    if members == 0:
        return
    left = int(rq.flow) % members
    for plane in range(net.ctl[0].n_planes):
        if (usable >> plane) & 1:
            if left == 0:
                rq.plane = plane
            left -= 1


def changes_of(fault: Any, c: Any, failover_ps: int | None) -> Any:
    """The changes that routing will apply, `CHANGE`, for a schedule of faults `FAULT` and the
    settings `ROCE` of a run. A switch already knows that its own port is down.

    Switches that balance leave it at once, and their NICs learn of a change after `failover_ps`.
    """
    action = np.asarray(fault.action)
    seen = np.isin(action, (PORT_DOWN, PORT_UP, PORT_DENY, PORT_ALLOW))
    at, port = np.asarray(fault.at_ps)[seen], np.asarray(fault.target)[seen]
    delay = np.zeros(len(at), np.int64)
    _draw_delays(c, np.ascontiguousarray(at), delay)
    local_ps = int(c[0].local_repair_ps)
    if failover_ps is None:
        more = (action[seen] == PORT_DOWN) & (local_ps < delay)
        later_ps, who = local_ps, OWN_SWITCH
    else:
        more, later_ps, who = np.ones(len(at), bool), failover_ps, NICS
    change = records(len(at) + int(more.sum()), CHANGE)
    change.at = np.concatenate([at + delay, at[more] + later_ps])
    change.port = np.concatenate([port, port[more]])
    change.who[len(at) :] = who
    return change[np.lexsort((change.port, change.who, change.at))]


@compiled
def _draw_delays(c, at, delay):
    """How long routing takes to apply the changes of each of these times, ps: one delay, drawn at
    random, for all that happens at one instant.
    """
    for i in range(at.shape[0]):
        share = bits.mix32(bits.mix32(at[i] >> 32) + at[i] + c[0].convergence_seed)
        delay[i] = c[0].convergence_low + (c[0].convergence_span >> 16) * (share >> 16)


@inlined
def next_change(net, ro, number):
    """Put the next change that routing will apply into the heap; one at a time."""
    if number < ro.change.shape[0]:
        change = ro.change[number]
        kind = AT_LOCAL_REPAIR if change.who == OWN_SWITCH else AT_CONVERGED
        events.push(net, int(change.at), kind, number)


@inlined
def _is_broken(r):
    """Whether some switch has removed a port from its groups."""
    return r.own_up == 0 or r.shut != 0


@inner
def take_in(net, ro, change):
    """Apply a change: the port's own switch removes it from its groups, if it is still down; or
    routing has converged for it, and all switches now use its actual state, or all NICs.
    """
    port_no = int(change.port)
    r = ro.route[port_no]
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
    ro.routing[0].broken += int(_is_broken(r)) - int(before)


@compiled
def way(net, ro, src, dst, plane, flow, ports):
    """Write the directed ports on a flow's current path into `ports`; return their number, 0 if
    there is no route.
    """
    spare = net.hop.shape[0] - 1  # the last packet is never given out
    net.packet[spare].src = src
    port_no = src * net.ctl[0].n_planes + plane
    n = 0
    while True:
        ports[n] = port_no
        n += 1
        if net.port[port_no].peer < 0:
            return n
        port_no = int(egress(net, ro, int(net.port[port_no].peer), spare, dst, flow))
        if port_no < 0:
            return 0
