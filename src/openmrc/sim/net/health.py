"""The effect of faults on the network itself; the same for every transport.

Which endpoints notice, and how they react, is up to each transport: `mrc.faults`, `roce.faults`.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.engine import packet as pk
from openmrc.fabric import actions, health
from openmrc.jit import inlined, inner
from openmrc.sim.net import balance, rounds
from openmrc.sim.net.state import DAMAGED

JITTER_SHIFT = 10  # drawn in steps of 1.024 ns: a product with 32 random bits fits into 63


@inlined
def change(net, fault, action, target):
    """Change the state of a switch or a directed port; True if routing reacts: a port comes up,
    goes down, or is denied. Nothing notices silence, losses, damage, MTUs and slow rates; all ports
    of a dead switch are down.
    """
    if (
        action == actions.SWITCH_UP
        or action == actions.SWITCH_DOWN
        or action == actions.SWITCH_SILENT
    ):
        net.switch[target].silent = 1 if action == actions.SWITCH_SILENT else 0
        return False
    port = net.port[target]
    ways = (
        action == actions.PORT_DOWN
        or action == actions.PORT_UP
        or action == actions.PORT_DENY
        or action == actions.PORT_ALLOW
    )
    if ways:
        _come_or_go(net, fault, action, target)
    elif action == actions.PORT_RATE:
        port.kind = fault.port_kind  # a transmission in progress ends as it began
    else:
        health.change(net.health[target], action, fault.rate, fault.burst)
    late = net.ctl[0].jitter_ps > 0
    port.faulty = 1 if late or port.up == 0 or health.is_faulty(net.health[target]) else 0
    return ways


@inlined
def _come_or_go(net, fault, action, target):
    """A directed port goes down or comes up, or is denied to a group of NICs, or allowed again."""
    port = net.port[target]
    state = net.health[target]
    if action == actions.PORT_DOWN:
        port.up = 0
        state.cut_until = port.free_at
        over_at = state.cut_until + net.port_kind[port.kind].delay_ps
        net.ctl[0].cut_over_at = max(int(net.ctl[0].cut_over_at), int(over_at))
    elif action == actions.PORT_UP:
        port.up = 1
    elif action == actions.PORT_DENY:
        state.denied = int(state.denied) | (1 << int(fault.group))
    elif action == actions.PORT_ALLOW:
        state.denied = int(state.denied) & ~(1 << int(fault.group))
    balance.note_link(net, target)


@inner
def loses(net, port, port_no, h):
    """Whether a faulty port loses the packet that it sends; it may also damage it. A trimmed packet
    has no iCRC (MRC 2.13).
    """
    if port.up == 0:
        return True
    has_icrc = h.marks & (pk.TRIMMED | pk.TRIMMED_LASTHOP) == 0
    frame_bytes = int(h.frame_bytes)
    what = health.strike(net.health[port_no], net.stream, port_no, frame_bytes, has_icrc)
    if what == health.DAMAGED:
        h.marks |= DAMAGED
    return what == health.LOST


@inner
def late_ps(net, port_no, at):
    """How late a packet is that is due at the end of a link at `at`, ps: up to the fabric's jitter,
    drawn from the port's own stream; it never overtakes the packet before it.
    """
    jitter_ps = net.ctl[0].jitter_ps
    if jitter_ps == 0:
        return 0
    drawn = bits.draw(net.stream, port_no) * (jitter_ps >> JITTER_SHIFT) >> 32 - JITTER_SHIFT
    arrives_at = max(at + drawn, net.last_at[port_no])
    net.last_at[port_no] = arrives_at
    return arrives_at - at


@inlined
def note_nic_port(net, port_no, up):
    """Update which of a NIC's ports are up and free after a change; returns the NIC, and the
    plane.
    """
    n, plane = rounds.owner(net, port_no)
    ln = net.nic[n]
    if up:
        ln.up_ports |= 1 << plane
        if net.port[port_no].armed == 0:
            ln.free_ports |= 1 << plane
    else:
        ln.up_ports &= ~(1 << plane)
        ln.free_ports &= ~(1 << plane)
    return n, plane
