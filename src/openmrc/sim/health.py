"""What a fault changes in the network itself: the same for every transport.

Who notices and what follows from it is each transport's: `faults`, `roce.faults`.
"""

from __future__ import annotations

from openmrc.fabric.actions import (
    PORT_ALLOW,
    PORT_CORRUPT,
    PORT_DENY,
    PORT_DOWN,
    PORT_LOSS,
    PORT_RATE,
    PORT_UP,
    SWITCH_SILENT,
)
from openmrc.jit import inlined


@inlined
def change_switch(net, action, target):
    """A switch forwards, or is silent; of a dead one all ports are down."""
    net.switch[target].silent = 1 if action == SWITCH_SILENT else 0


@inlined
def change_port(net, fault, action, target):
    """A directed port changes; True if it is one that routing takes in: it comes, goes, or is
    denied. Losses, damage and slow rates nobody notices.
    """
    port = net.port[target]
    health = net.health[target]
    rerouted = False
    if action == PORT_LOSS:
        _set_loss(health, fault.rate, fault.burst)
    elif action == PORT_CORRUPT:
        health.corrupt = _chance(fault.rate)
    elif action == PORT_RATE:
        port.kind = fault.port_kind  # a transmission under way ends as it began
    else:
        rerouted = True
        _come_or_go(net, fault, action, target)
    port.faulty = 1 if port.up == 0 or health.loss > 0 or health.corrupt > 0 else 0
    return rerouted


@inlined
def _come_or_go(net, fault, action, target):
    """A directed port goes down or comes back, or a group of NICs may not use it, or may again."""
    port = net.port[target]
    health = net.health[target]
    if action == PORT_DOWN:
        port.up = 0
        health.cut_until = port.free_at
        net.ctl[0].any_down = 1
    elif action == PORT_UP:
        port.up = 1
    elif action == PORT_DENY:
        health.denied = int(health.denied) | (1 << int(fault.group))
    elif action == PORT_ALLOW:
        health.denied = int(health.denied) & ~(1 << int(fault.group))


@inlined
def _set_loss(health, rate, burst):
    """Losses one by one, or in bursts: so that `rate` of all packets are lost, in runs of `burst`
    on average (Gilbert).
    """
    if burst > 0.0:
        health.loss = _chance(rate / (burst * (1.0 - rate)))
        health.loss_again = _chance(1.0 - 1.0 / burst)
    else:
        health.loss = _chance(rate)
        health.loss_again = health.loss
    health.losing = 0


@inlined
def _chance(probability):
    """A probability as HEALTH keeps it."""
    return int(probability * 2147483648.0)


@inlined
def note_nic_port(net, port_no, up):
    """Which of a NIC's ports are up and free, now that one has changed; the NIC, and the plane."""
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
    return n, plane
