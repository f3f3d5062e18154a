"""Faults at run time: ports, switches and NIC ports change state, NICs review which paths they may
use; routing converges later, for transports that need it.
"""

from __future__ import annotations

from openmrc.engine import bits, endpoint, place
from openmrc.fabric.actions import NIC_PORT_DOWN, NIC_PORT_UP, PORT_DOWN, REVIEW_PATHS
from openmrc.jit import inlined, inner
from openmrc.sim.mrc import nic
from openmrc.sim.net import events, health, link, switch
from openmrc.sim.net.state import AT_CONVERGED, AT_REVIEW

REHASH_TRIES = 512  # paths drawn before a QP keeps its broken one: none reaches its peer then


@inner
def apply(net, st, fault, now):
    """Carry out one elementary action of the schedule."""
    action = int(fault.action)
    target = int(fault.target)
    if action == NIC_PORT_DOWN or action == NIC_PORT_UP:
        _nic_port(net, st, target, action == NIC_PORT_UP, now)
    elif action == REVIEW_PATHS:
        if net.ctl[0].single == 0:  # else routing has applied the denials
            events.push(net, now, AT_REVIEW, net.ctl[0].nic0)
    else:
        rerouted = health.change(net, fault, action, target)
        if action == PORT_DOWN:
            link.flush(net, net.port[target])
        if rerouted:
            _reroute(net, now)


@inlined
def _reroute(net, now):
    """Routing begins to converge, once for all events of one instant."""
    ctl = net.ctl[0]
    if ctl.single and ctl.rerouted_at != now:
        ctl.rerouted_at = now
        events.push(net, now + ctl.convergence_ps, AT_CONVERGED, ctl.nic0)


@inner
def _nic_port(net, st, port_no, up, now):
    """A NIC notices the state of its own port."""
    n, plane = health.note_nic_port(net, port_no, up)
    endpoint.set_port(st, n, plane, up, now)
    nic.after_ports(net, st, n, now)


@inner
def _is_free(net, src, dst, plane, ev, groups, all_up):
    """Whether no port of a path is denied to these groups nor, with `all_up`, down."""
    ctl = net.ctl[0]
    port_no = src * ctl.n_planes + plane
    while True:
        port = net.port[port_no]
        if (all_up and port.up == 0) or int(net.health[port_no].denied) & groups:
            return False
        if port.peer < 0:
            return True
        port_no = switch.egress(ctl, net.switch[port.peer], dst, ev)


@inner
def _barred(net, src, dst, plane, groups):
    """Whether every path of a plane crosses a port that is denied to these groups.

    A NIC knows nothing of a hashed EV but its plane, nor of any where switches balance. Paths are
    numbered digit by digit: at each switch with a choice of n the next digit, modulo n, is the
    choice.
    """
    ctl = net.ctl[0]
    way = 0
    ways = 1
    while way < ways:
        port_no = src * ctl.n_planes + plane
        digits = way
        ways = 1
        crosses = False
        while True:
            crosses = crosses or int(net.health[port_no].denied) & groups != 0
            port = net.port[port_no]
            if port.peer < 0:
                break
            s = net.switch[port.peer]
            port_no, n = switch.first_egress(s, dst)
            port_no += digits % n
            digits //= n
            ways *= n
        if not crosses:
            return False
        way += 1
    return True


@inner
def review(net, st, nic_no, now):
    """A NIC reviews its EVs: some become denied, others are allowed again. Then the next NIC
    does.
    """
    ctl = net.ctl[0]
    groups = int(net.groups[nic_no])
    n = st.nic[nic_no]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        q = st.qp[qi]
        changed = False
        judged = -1  # plane for which `denied` holds, if the EVs of a plane do not differ
        denied = False
        for i in range(q.n_evs):
            e = st.ev[place.ev(q, i)]
            plane = int(e.plane)
            if not (ctl.hashes_tuple or ctl.balances):
                ev = _seen(net, q, qi, plane, int(e.value))
                denied = not _is_free(net, nic_no, int(q.peer_nic), plane, ev, groups, False)
            elif plane != judged:
                denied = _barred(net, nic_no, int(q.peer_nic), plane, groups)
                judged = plane
            changed = endpoint.deny(st, q, i, denied, now) or changed
        if changed:
            nic.make_ready(net, st, qi)
            nic.plan_qp(net, st, qi)
    nic.pump(net, st, nic_no, now)
    if nic_no + 1 < net.ctl[0].nic_end:
        events.push(net, now, AT_REVIEW, nic_no + 1)


@inner
def _alive(net, src, dst, plane, ev):
    """Whether routing considers a path usable: silent switches and lossy links look healthy to it.
    Denied ports are out of service, like ports that are down.
    """
    groups = int(net.groups[src]) if net.groups.shape[0] > 0 else 0
    return _is_free(net, src, dst, plane, ev, groups, True)


@inner
def converge(net, st, nic_no, now):
    """Routing has converged: rehash a NIC's QPs with a single hashed path that is broken. Then the
    next NIC follows.
    """
    ctl = net.ctl[0]
    n = st.nic[nic_no]
    for qi in range(n.qp0, n.qp0 + n.n_qps):
        q = st.qp[qi]
        e = st.ev[place.ev(q, 0)]
        value = int(e.value)
        plane = int(e.plane)
        if _alive(net, q.nic, q.peer_nic, plane, _seen(net, q, qi, plane, value)):
            continue
        for _ in range(REHASH_TRIES):
            plane = bits.draw_below(st.stream, qi, int(ctl.n_planes))
            value = bits.draw(st.stream, qi) & 0xFFFF
            if not ctl.hashed:
                value = _path(net, q, plane, value)
            if _alive(net, q.nic, q.peer_nic, plane, _seen(net, q, qi, plane, value)):
                endpoint.move(st, q, plane, value, now)
                break
        nic.make_ready(net, st, qi)
        nic.pump(net, st, nic_no, now)
    if nic_no + 1 < net.ctl[0].nic_end:
        events.push(net, now, AT_CONVERGED, nic_no + 1)


@inner
def _seen(net, q, qi, plane, value):
    """An EV of a QP's data as switches see it."""
    ctl = net.ctl[0]
    if not ctl.hashed:
        return value
    flow = int(net.qp[qi].flow)
    if ctl.hashes_tuple:
        flow = switch.tuple_flow(int(q.nic), int(q.peer_nic), plane)
    return switch.hashed_ev(flow, value)


@inner
def _path(net, q, plane, value):
    """Turn random bits into the EV of an existing path of a plane."""
    ctl = net.ctl[0]
    t0 = net.switch[net.port[q.nic * ctl.n_planes + plane].peer]
    up0 = up1 = 0
    if t0.n_up > 0:
        t1 = net.switch[net.port[t0.first_up].peer]
        up0 = value % t0.n_up
        if t1.n_up > 0:
            up1 = (value >> 8) % t1.n_up
    path = (plane << ctl.plane_shift) | (up0 << ctl.up0_shift) | (up1 << ctl.up1_shift)
    return ctl.ev_base | path
