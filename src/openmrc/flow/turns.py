"""What it makes of rates that the ports of a NIC send whole packets, of one flow after another.

A flow that begins stands behind all that its NIC's ports serve (`sim.net.rounds`): until its first
packet leaves, the rest of the packet in progress and one of each of the others do. At even rates it
would have sent as much as they in that time. So they are ahead of their even rates for as long as
all of them send, by what it is behind, and of equal messages that begin together one is done before
the other: without this, collectives side by side would wait for each other for ever.
"""

from __future__ import annotations

from openmrc.flow import rates
from openmrc.flow.state import WAY
from openmrc.jit import inlined, inner

BEGUN = 0.5  # of the packet in progress, what is left on average


@inlined
def _beside(fl, f, node):
    """Whether this member of the first pool of a flow is another one that its NIC sends."""
    first = node % WAY == 0 and node != f * WAY  # not the answers to what the NIC receives
    return first and (fl.pool[fl.way[f, 0]].full or fl.flow[node // WAY].fresh)


@inner
def stand_behind(fl, f, now):
    """A flow has joined others at its NIC's ports: it is behind, and they are ahead."""
    c = fl.c[0]
    others = 0
    begin_now = 0
    head = int(fl.pool[fl.way[f, 0]].head)
    node = head
    while node >= 0:
        if _beside(fl, f, node):
            others += 1
            begin_now += int(fl.flow[node // WAY].fresh)
        node = int(fl.behind[node])
    if others == 0:
        return
    in_progress = 1.0 if begin_now == others else BEGUN
    ahead = c.ports * c.packet_bytes * (others + in_progress) / (others + 1) / others
    behind = 0.0
    node = head
    while node >= 0:
        if _beside(fl, f, node):
            flow = fl.flow[node // WAY]
            rates.send_up_to(flow, now)
            alone = (flow.left_bytes + flow.ahead_bytes) / (others + 1)  # it ends no sooner
            more = min(ahead, max(flow.left_bytes - alone, 0.0))
            flow.left_bytes -= more
            flow.ahead_bytes += more
            behind += more
        node = int(fl.behind[node])
    fl.flow[f].left_bytes += behind
    fl.flow[f].ahead_bytes -= behind
