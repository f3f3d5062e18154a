"""Faults in a RoCE network at run time, and routing that converges later.

A port that goes down loses the packets in its queue and on its link. Until its switch has noticed,
or routing has converged, packets sent to it are lost too. A NIC notices its own port at once.
Nothing notices silent switches, losses, damage and slow rates.
"""

from __future__ import annotations

from openmrc.fabric.actions import NIC_PORT_DOWN, NIC_PORT_UP, PORT_DOWN, REVIEW_PATHS
from openmrc.jit import inlined, inner
from openmrc.sim.net import events, health, routing
from openmrc.sim.net.state import NICS, ROUTING_ITSELF
from openmrc.sim.roce import flow, nic
from openmrc.sim.roce import port as ports
from openmrc.sim.roce.state import AT_PLANES


@inner
def apply(net, st, ro, fault, now):
    """Carry out one elementary action of the schedule."""
    action = int(fault.action)
    target = int(fault.target)
    if action == NIC_PORT_DOWN or action == NIC_PORT_UP:
        _nic_port(net, st, ro, target, action == NIC_PORT_UP, now)
    elif action != REVIEW_PATHS:  # routing reviews its paths by itself
        health.change(net, fault, action, target)
        if action == PORT_DOWN:
            _cut(net, st, ro, target, now)


@inlined
def _cut(net, st, ro, port_no, now):
    """A directed port goes down."""
    ports.flush(net, ro, port_no, now)
    if flow.forget(ro, port_no, now) and port_no < net.ctl[0].n_nic_ports:
        nic.resume_data(net, st, ro, port_no, now)  # until the NIC notices, it sends on


@inner
def _nic_port(net, st, ro, port_no, up, now):
    """A NIC notices the state of its own port."""
    nic_no, _ = health.note_nic_port(net, port_no, up)
    nic.choose_planes(net, st, ro, nic_no, now)


@inner
def reroute(net, ro, change, now):
    """Routing applies a change. When it has converged, or NICs learn of it by themselves, those
    with several ports review their bonds, once per instant.
    """
    ctl = net.ctl[0]
    routing.take_in(net, change)
    c = ro.c[0]
    teller = ROUTING_ITSELF if net.calls[0].egress == 0 else NICS  # of the NICs
    if change.who == teller and ctl.n_planes > 1 and c.planes_at != now:
        c.planes_at = now
        events.push(net, now, AT_PLANES, ctl.nic0)


@inner
def choose_planes(net, st, ro, nic_no, now):
    """A NIC reviews its bond, then the next one does."""
    nic.choose_planes(net, st, ro, nic_no, now)
    if nic_no + 1 < net.ctl[0].nic_end:
        events.push(net, now, AT_PLANES, nic_no + 1)
