"""The event loop of a RoCE network, independent of MRC's, which is `sim.mrc.loop`."""

from __future__ import annotations

from openmrc.engine.state import NEVER
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.net import due, events, link, routing
from openmrc.sim.net.state import (
    AT_CONVERGED,
    AT_FAULT,
    AT_LOCAL_REPAIR,
    AT_MESSAGE,
    AT_QP,
    BUDGET,
    OPEN,
)
from openmrc.sim.roce import ecmp, faults, flow, nic, scout
from openmrc.sim.roce import port as ports
from openmrc.sim.roce.state import AT_PACE, AT_PFC, AT_PLANES, CLASS_FRAME

PACKETS_RESERVED = 64  # one event never needs more packets than this: one per port


@inlined
def _arrive(net, st, ro, n, now):
    """A packet reaches the end of its link: a switch forwards it, a NIC receives it."""
    h = net.hop[n]
    if h.klass == CLASS_FRAME:
        number = flow.crossed(net, n, now)
        if number >= 0:
            _pause(net, st, ro, number, now)
        return
    if now <= net.ctl[0].cut_over_at and link.went_down_under(net, h, now):
        link.lose_on_way(net, n)
        return
    if h.to < 0:
        nic.receive(net, st, ro, n, now)
        return
    if net.switch[h.to].silent:
        link.lose_on_way(net, n)
        return
    if h.stored:
        port_no = int(h.next)  # its header arrived earlier
    else:
        port_no = int(ecmp.egress(net, int(h.to), n, int(h.dst), int(h.ev)))
    if port_no < 0:
        ro.c[0].no_route += 1
        link.drop_by_fault(net, n)
        return
    if h.rest_ps > 0 and link.waits_for_rest(net, port_no, n, h, now):
        return
    ports.enqueue(net, ro, port_no, n, now)


@inner
def _from_heap(net, st, ro, at):
    """Handle the heap's first entry, which is due."""
    kind, number = events.pop(net)
    if kind == AT_QP:
        if events.comes_due(net.qp[number], at):
            nic.on_qp_timer(net, st, ro, number, at)
    elif kind == AT_PFC:
        _pause(net, st, ro, number, at)
    elif kind == AT_PACE:
        nic.on_pace(net, st, ro, number, at)
    elif kind == AT_MESSAGE:
        if net.message[number].fate == OPEN:
            nic.post(net, st, ro, number, at)
    elif kind == AT_FAULT:
        faults.apply(net, st, ro, net.fault[number], at)
        due.next_fault(net, number + 1)
    elif kind == AT_CONVERGED or kind == AT_LOCAL_REPAIR:
        faults.reroute(net, ro, net.change[number], at)
        routing.next_change(net, number + 1)
    elif kind == AT_PLANES:
        faults.choose_planes(net, st, ro, number, at)


@inner
def _pause(net, st, ro, number, now):
    """A pause frame arrives, or a time that one has set is due: ports pause or resume their
    data.
    """
    port_no = int(flow.on_event(net, ro, number, now))
    n_nic_ports = net.ctl[0].n_nic_ports
    if port_no >= n_nic_ports:
        ports.resume_data(net, ro, port_no, now)
    elif port_no >= 0:
        nic.resume_data(net, st, ro, port_no, now)
    elif -1 - port_no < n_nic_ports:
        nic.stop_data(net, -1 - port_no)


@inner
def _start(net, st, ro):
    """Before the first event: open every QP, and put the first entries into the heap."""
    ctl = net.ctl[0]
    for qi in range(ctl.qp0, ctl.qp_end):
        rq = ro.qp[qi]
        rq.alive = 1
        rq.rto_at = NEVER
        ecmp.choose_planes(net, rq)
    due.start(net)
    if ctl.n_shards == 1:
        routing.next_change(net, 0)


@inner
def _strike(net, st, ro):
    """Carry out a fault of this shard that is due, or a change that routing applies: changes are
    numbered after the faults.
    """
    ctl = net.ctl[0]
    number = int(ctl.fault_no)
    ctl.fault_no = -1
    n_faults = net.fault.shape[0]
    if number < n_faults:
        ctl.now = net.fault[number].at_ps
        events.rewind(net, int(ctl.now))
        faults.apply(net, st, ro, net.fault[number], int(ctl.now))
    else:
        change = net.change[number - n_faults]
        ctl.now = change.at
        events.rewind(net, int(ctl.now))
        faults.reroute(net, ro, change, int(ctl.now))


@compiled
def advance(net, st, ro, until, budget):
    """Run events up to and including time `until` (ps), about `budget` of them at most; return why
    it stopped.

    The reasons, and what the caller must do, are as in `sim.mrc.loop.advance`.
    """
    ctl = net.ctl[0]
    if ctl.started == 0:
        _start(net, st, ro)
    if ctl.fault_no >= 0:
        _strike(net, st, ro)
    for done in range(due.rounded_up(budget)):
        why, at, event = due.take(net, until, done, PACKETS_RESERVED)
        if why != due.GO_ON:
            return why
        if event == due.FROM_HEAP:
            _from_heap(net, st, ro, at)
            continue
        scout.look_ahead(net, st, ro)
        if event >= ctl.n_ports:
            _arrive(net, st, ro, event - ctl.n_ports, at)
        elif event >= ctl.n_nic_ports:
            ports.on_switch_port_free(net, ro, event, at)
        else:
            nic.on_port_free(net, st, ro, event, at)
    return BUDGET
