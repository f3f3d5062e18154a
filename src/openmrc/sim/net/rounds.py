"""Round robins of a NIC: each of its ports has a queue of the QPs that may send.

A free port serves the first QP of its queue, which then goes to the end. So every QP gets as much
of each port as of any other, over any time longer than a round (MRC 3.4: planes exactly evenly
loaded). With one queue for all ports a QP would get whichever port happened to be free at its turn:
the bytes sent on its planes would drift apart as in a random walk, and with them the load of the
ports at its destination.
"""

from __future__ import annotations

from openmrc.jit import inlined

FIRST, LAST = 0, 1  # columns of Net.round


@inlined
def owner(net, port_no):
    """The NIC that owns a port, and the port's plane."""
    nic = port_no // net.ctl[0].n_planes
    return nic, port_no - nic * net.ctl[0].n_planes


@inlined
def stand_behind(net, port_no, plane, qi):
    """Append a QP to the queue of its NIC's port `port_no`, the one into `plane`."""
    if net.round[port_no, FIRST] < 0:
        net.round[port_no, FIRST] = qi
    else:
        net.behind[net.round[port_no, LAST], plane] = qi
    net.round[port_no, LAST] = qi
    net.behind[qi, plane] = -1
    net.qp[qi].ready |= 1 << plane


@inlined
def step_forward(net, port_no, plane):
    """Remove the first QP from the queue of a port; there must be one."""
    qi = int(net.round[port_no, FIRST])
    net.round[port_no, FIRST] = net.behind[qi, plane]
    net.qp[qi].ready &= ~(1 << plane)
    return qi
