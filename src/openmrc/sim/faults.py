"""Faults as they happen: ports, switches and NIC ports change state; routing converges later, for
those who need it.
"""

from __future__ import annotations

from openmrc.engine import bits, paths, ports
from openmrc.fabric.faults import (
    NIC_PORT_DOWN,
    NIC_PORT_UP,
    PORT_DOWN,
    PORT_LOSS,
    PORT_UP,
    SWITCH_DOWN,
    SWITCH_SILENT,
    SWITCH_UP,
)
from openmrc.jit import inner
from openmrc.sim import events, link, nic, switch
from openmrc.sim.state import AT_CONVERGED

REHASH_TRIES = 512  # paths drawn before a QP is left where it is: nothing reaches its peer then


@inner
def apply(net, st, fault, now):
    """One elementary action of the schedule."""
    ctl = net.ctl[0]
    target = int(fault.target)
    if fault.action == PORT_DOWN:
        port = net.port[target]
        port.up = 0
        port.faulty = 1
        net.health[target].down_at = now
        ctl.any_down = 1
        link.flush(net, port)
    elif fault.action == PORT_UP:
        port = net.port[target]
        port.up = 1
        port.faulty = 1 if net.health[target].loss > 0 else 0
    elif fault.action == PORT_LOSS:
        port = net.port[target]
        loss = int(fault.rate * 4294967296.0)
        net.health[target].loss = loss
        port.faulty = 1 if loss > 0 or port.up == 0 else 0
    elif fault.action == SWITCH_SILENT:
        net.switch[target].silent = 1
    elif fault.action == SWITCH_UP or fault.action == SWITCH_DOWN:
        net.switch[target].silent = 0
    elif fault.action == NIC_PORT_DOWN or fault.action == NIC_PORT_UP:
        _nic_port(net, st, target, fault.action == NIC_PORT_UP, now)
    if ctl.single and (fault.action == PORT_DOWN or fault.action == PORT_UP):
        events.push(net, now + ctl.convergence_ps, AT_CONVERGED, 0)


@inner
def _nic_port(net, st, port_no, up, now):
    """A NIC notices its own port."""
    ctl = net.ctl[0]
    n = port_no // ctl.n_planes
    plane = port_no - n * ctl.n_planes
    ln = net.nic[n]
    if up:
        ln.up_ports |= 1 << plane
        if net.port[port_no].armed == 0:
            ln.free_ports |= 1 << plane
    else:
        ln.up_ports &= ~(1 << plane)
        ln.free_ports &= ~(1 << plane)
    ports.set_local_port(st, n, plane, up, now)
    nic.after_ports(net, st, n, now)


@inner
def _alive(net, src, dst, plane, ev):
    """Whether routing believes in a path: silent switches and lossy links look healthy to it."""
    ctl = net.ctl[0]
    port_no = src * ctl.n_planes + plane
    while True:
        port = net.port[port_no]
        if port.up == 0:
            return False
        if port.peer < 0:
            return True
        port_no = switch.egress(ctl, net.switch[port.peer], dst, ev)


@inner
def converge(net, st, now):
    """Routing has converged: QPs on one hashed path whose path is broken are hashed anew."""
    ctl = net.ctl[0]
    for qi in range(st.qp.shape[0]):
        q = st.qp[qi]
        e = st.ev[q.ev0]
        flow = int(net.qp[qi].flow)
        value = int(e.value)
        plane = int(e.plane)
        if _alive(net, q.nic, q.peer_nic, plane, _seen(ctl, flow, value)):
            continue
        for _ in range(REHASH_TRIES):
            plane = bits.draw_below(st.stream, q.index, q.n_planes)
            value = bits.draw(st.stream, q.index) & 0xFFFF
            if not ctl.hashed:
                value = _path_bits(ctl, value) | (plane << ctl.plane_shift)
            if _alive(net, q.nic, q.peer_nic, plane, _seen(ctl, flow, value)):
                _move(st, q, e, plane, value)
                break
        nic.make_ready(net, st, qi)
        nic.pump(net, st, int(q.nic), now)


@inner
def _seen(ctl, flow, value):
    """The EV as switches see it."""
    return switch.hashed_ev(flow, value) if ctl.hashed else value


@inner
def _path_bits(ctl, value):
    """Random bits as the uplink fields of an EV."""
    up0 = value & ctl.up0_mask
    up1 = (value >> 8) & ctl.up1_mask
    return ctl.ev_base | (up0 << ctl.up0_shift) | (up1 << ctl.up1_shift)


@inner
def _move(st, q, e, plane, value):
    """Give a QP of one path another."""
    for p in range(q.n_planes):
        r = st.plane[q.plane0 + p]
        r.n_evs = 1 if p == plane else 0
        r.n_active = r.n_evs
        r.share = r.n_evs
        r.n_good = r.n_evs
        r.ev0 = 0
        r.pos = 0
        st.order[q.order0 + p * q.order_len] = 0
    e.plane = plane
    e.value = value
    paths.refresh_planes(st, q)
