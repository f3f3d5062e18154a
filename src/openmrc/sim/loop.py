"""The event loop: the next event of wheel or heap, until a time, a budget or the end."""

from __future__ import annotations

from openmrc.engine import ports
from openmrc.engine.state import NEVER, OUT_MAX
from openmrc.jit import compiled, inlined, inner
from openmrc.sim import due, events, faults, link, messages, nic, scout, switch
from openmrc.sim.state import (
    AT_CONVERGED,
    AT_FAULT,
    AT_MESSAGE,
    AT_NIC,
    AT_QP,
    AT_REVIEW,
    COMPLETED,
    OPEN,
)

PACKETS_RESERVED = 2 * OUT_MAX  # one event never needs more packets than this


@inlined
def _arrive(net, st, n, now):
    """A packet reaches the end of its link: a switch forwards it, a NIC receives it."""
    ctl = net.ctl[0]
    h = net.hop[n]
    if ctl.any_down and link.went_down_under(net, h, now):
        link.drop_by_fault(net, n)
        return
    if h.to < 0:
        nic.receive(net, st, n, -1 - int(h.to), now)
        return
    s = net.switch[h.to]
    if s.silent:
        link.drop_by_fault(net, n)
        return
    if ctl.by_usid:
        port_no = switch.egress_by_usid(net, n, int(h.to))
        if port_no < 0:  # no plan of a fabric leads here; if one did, bytes would go missing
            link.drop_by_fault(net, n)
            return
    else:
        port_no = switch.egress(ctl, s, int(h.dst), int(h.ev))
    link.enqueue(net, port_no, n, now)


@inner
def _from_heap(net, st, at):
    """The heap's first entry is due."""
    what = events.pop(net.ctl[0], net.heap)
    kind = what >> events.KIND_SHIFT
    number = what & ((1 << events.KIND_SHIFT) - 1)
    if kind == AT_QP:
        nic.on_qp_timer(net, st, number, at, at)
    elif kind == AT_NIC:
        nic.on_nic_timer(net, st, number, at, at)
    elif kind == AT_MESSAGE:
        _post(net, st, number, at)
    elif kind == AT_FAULT:
        faults.apply(net, st, net.fault[number], at)
        due.next_fault(net, number + 1)
    elif kind == AT_CONVERGED:
        faults.converge(net, st, number, at)
    elif kind == AT_REVIEW:
        faults.review(net, st, number, at)


@inner
def _post(net, st, mi, now):
    if net.message[mi].fate != OPEN:
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
    """Before the first event: open every QP, and put what comes first into the heap."""
    for qi in range(st.qp.shape[0]):
        ports.open_qp(st, qi)
    for i in range(st.nic.shape[0]):
        st.nic[i].deadline = NEVER
    for i in range(st.peer.shape[0]):
        st.peer[i].next_at = NEVER
        st.peer[i].down_probe_at = NEVER
    due.start(net)


@compiled
def advance(net, st, until, budget):
    """Run events up to and including time `until`, at most about `budget` of them; why it stopped.

    `ROOM`, `HEAP` and `TIMELINE` ask the caller to enlarge an array and to call again, `TAPPED` to
    take what tapped ports have sent.
    """
    ctl = net.ctl[0]
    if ctl.started == 0:
        _start(net, st)
    done = 0
    while True:
        why, at, from_heap = due.look(net, until, done, budget, PACKETS_RESERVED)
        if why != due.GO_ON:
            return why
        ctl.now = at
        done += 1
        ctl.events += 1
        if from_heap:
            events.rewind(net, at)
            _from_heap(net, st, at)
            continue
        node = events.take(net)
        scout.look_ahead(net, st)
        if node >= ctl.n_ports:
            _arrive(net, st, node - ctl.n_ports, at)
        elif node >= ctl.n_nic_ports:
            link.on_switch_port_free(net, node, at)
        else:
            nic.on_port_free(net, st, node, at)


assert OPEN < COMPLETED
