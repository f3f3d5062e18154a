"""Faults as switches and links suffer them: `fabric.actions`, one at a time.

What only endpoints act on (`FOR_ENDPOINTS`: a NIC notices its port, EVs are denied) means nothing
to a switch and is passed over here; whoever runs endpoints takes it from the same schedule.
"""

from __future__ import annotations

from openmrc.fabric.actions import (
    NIC_PORT_DOWN,
    NIC_PORT_UP,
    PORT_ALLOW,
    PORT_CORRUPT,
    PORT_DENY,
    PORT_DOWN,
    PORT_LOSS,
    PORT_RATE,
    PORT_UP,
    REVIEW_PATHS,
    SWITCH_DOWN,
    SWITCH_SILENT,
    SWITCH_UP,
)
from openmrc.jit import inlined, inner
from openmrc.live.switch_ports import flush

FOR_ENDPOINTS = (PORT_DENY, PORT_ALLOW, REVIEW_PATHS, NIC_PORT_DOWN, NIC_PORT_UP)
FORWARDS, SILENT, DOWN = 0, 1, 2  # states of a switch
CERTAIN = 2**31 - 1  # a chance; a draw is below it but for one in 2^31


@inner
def apply(net, event):
    """Carry out one action, at once."""
    action = int(event.action)
    target = int(event.target)
    if action == SWITCH_UP:
        net.switch[target].state = FORWARDS
    elif action == SWITCH_SILENT:
        net.switch[target].state = SILENT
    elif action == SWITCH_DOWN:
        net.switch[target].state = DOWN
    elif action <= PORT_RATE:
        _port(net, net.port[target], target, action, event.rate, event.burst)


@inlined
def _port(net, port, port_no, action, rate, burst):
    if action == PORT_DOWN:
        port.up = 0
        port.cut_until = max(port.free_at, net.ctl[0].now)
        flush(net, port, port_no)
    elif action == PORT_UP:
        port.up = 1
    elif action == PORT_LOSS:
        _set_loss(port, rate, burst)
    elif action == PORT_CORRUPT:
        port.corrupt = _chance(rate)
    elif action == PORT_RATE:  # a transmission under way ends as it began
        port.rate_bps = max(int(port.full_rate_bps * rate), 1)
    port.faulty = 1 if port.loss > 0 or port.corrupt > 0 else 0


@inlined
def _set_loss(port, rate, burst):
    """Losses one by one, or in bursts: so that `rate` of all packets are lost, in runs of `burst`
    on average (Gilbert).
    """
    if burst > 0.0 and rate < 1.0:
        port.loss = _chance(rate / (burst * (1.0 - rate)))
        port.loss_again = _chance(1.0 - 1.0 / burst)
    else:
        port.loss = _chance(rate)
        port.loss_again = port.loss
    port.losing = 0


@inlined
def _chance(probability):
    return CERTAIN if probability >= 1.0 else int(probability * 2147483648.0)
