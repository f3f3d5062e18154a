"""The round of a NIC: the QPs that may send stand in a queue, linked through their records."""

from __future__ import annotations

from openmrc.jit import inlined


@inlined
def stand_behind(net, ln, qi):
    """Put a QP at the end of its NIC's round."""
    lq = net.qp[qi]
    lq.ready = 1
    lq.ready_next = -1
    if ln.ready_head < 0:
        ln.ready_head = qi
    else:
        net.qp[ln.ready_tail].ready_next = qi
    ln.ready_tail = qi


@inlined
def step_forward(net, ln):
    """Take the QP whose turn it is out of the round; there is one."""
    qi = int(ln.ready_head)
    lq = net.qp[qi]
    ln.ready_head = lq.ready_next
    lq.ready = 0
    return qi
