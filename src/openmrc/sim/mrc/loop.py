"""The event loop: takes the next event from wheel or heap, until a time, a budget or the end."""

from __future__ import annotations

from openmrc.engine import account, setup
from openmrc.engine import state as es
from openmrc.jit import compiled, inlined, inner
from openmrc.sim.mrc import faults, nic, scout
from openmrc.sim.net import balance, due, events, link, messages, routing, switch
from openmrc.sim.net import state as ss

PACKETS_RESERVED = 2 * es.OUT_MAX  # one event never needs more packets than this


@inlined
def _arrive(net, st, n, now):
    """A packet reaches the end of its link: a switch forwards it, a NIC receives it."""
    ctl = net.ctl[0]
    h = net.hop[n]
    if now <= ctl.cut_over_at and link.went_down_under(net, h, now):
        link.lose_on_way(net, n)
        return
    if h.to < 0:
        nic.receive(net, st, n, -1 - int(h.to), now)
        return
    s = net.switch[h.to]
    if s.silent:
        link.lose_on_way(net, n)
        return
    if ctl.foretold or h.stored:
        port_no = int(h.next)
    else:
        if ctl.by_usid:
            port_no = switch.egress_by_usid(net, n, int(h.to))
        else:
            port_no = balance.next_port(net, int(h.to), n, int(h.dst))
        if port_no < 0:  # of carriers, no plan of a fabric leads here
            link.drop_by_fault(net, n)
            return
    if h.rest_ps > 0 and link.waits_for_rest(net, port_no, n, h, now):
        return
    link.enqueue(net, port_no, n, now)


@inner
def _from_heap(net, st, at):
    """Handle the heap's first entry, which is due."""
    kind, number = events.pop(net)
    if kind == ss.AT_QP:
        if events.comes_due(net.qp[number], at):
            nic.on_qp_timer(net, st, number, at)
    elif kind == ss.AT_NIC:
        if events.comes_due(net.nic[number], at):
            nic.on_nic_timer(net, st, number, at)
    elif kind == ss.AT_MESSAGE:
        _post(net, st, number, at)
    elif kind == ss.AT_FAULT:
        faults.apply(net, st, net.fault[number], at)
        due.next_fault(net, number + 1)
    elif kind == ss.AT_CONVERGED and net.ctl[0].single:
        faults.converge(net, st, number, at)
    elif kind == ss.AT_CONVERGED:
        routing.take_in(net, net.change[number])
        routing.next_change(net, number + 1)
    elif kind == ss.AT_REVIEW:
        faults.review(net, st, number, at)


@inner
def _post(net, st, mi, now):
    if net.message[mi].fate != ss.OPEN:
        return
    if net.message[mi].qp < 0:
        messages.end_computation(net, mi, now)
        return
    messages.post(net, st, mi, now)
    qi = int(net.message[mi].qp)
    nic.make_ready(net, st, qi)
    nic.pump(net, st, int(st.qp[qi].nic), now)
    nic.plan_qp(net, st, qi)


@inner
def _start(net, st):
    """Before the first event: open every QP, and put the first entries into the heap."""
    ctl = net.ctl[0]
    for qi in range(ctl.qp0, ctl.qp_end):
        setup.open_qp(st, qi)
    due.start(net)
    if ctl.n_shards == 1:
        routing.next_change(net, 0)
    for qi in range(ctl.qp0, ctl.qp_end):
        nic.plan_qp(net, st, qi)


@inner
def _strike(net, st):
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
        faults.apply(net, st, net.fault[number], int(ctl.now))
    else:
        change = net.change[number - n_faults]
        ctl.now = change.at
        events.rewind(net, int(ctl.now))
        routing.take_in(net, change)


@compiled
def advance(net, st, until, budget):
    """Run events up to and including time `until` (ps), about `budget` of them at most; return why
    it stopped.

    `ROOM`, `HEAP` and `TIMELINE` ask the caller to enlarge an array and to call again, `TAPPED` to
    take the frames that tapped ports have sent, `TOLD` to take the records of the account.
    """
    ctl = net.ctl[0]
    if ctl.started == 0:
        _start(net, st)
    if ctl.fault_no >= 0:
        _strike(net, st)
    for done in range(due.rounded_up(budget)):
        if done % ss.EVENTS_BETWEEN_CHECKS == 0 and account.is_due(st):
            return ss.TOLD
        why, at, event = due.take(net, until, done, PACKETS_RESERVED)
        if why != due.GO_ON:
            return why
        if event == due.FROM_HEAP:
            _from_heap(net, st, at)
            continue
        scout.look_ahead(net, st)
        if event >= ctl.n_ports:
            _arrive(net, st, event - ctl.n_ports, at)
        elif event >= ctl.n_nic_ports:
            link.on_switch_port_free(net, event, at)
        else:
            nic.on_port_free(net, st, event, at)
    return ss.BUDGET


assert ss.OPEN < ss.COMPLETED
