"""Faults of switches and links: carries out `fabric.actions`, one at a time.

Actions for endpoints only (`FOR_ENDPOINTS`: a NIC notices its port, EVs are denied) are ignored
here; the endpoints take them from the same schedule.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.fabric import actions, health
from openmrc.jit import inlined, inner
from openmrc.live.switch import frames

FOR_ENDPOINTS = (
    actions.PORT_DENY,
    actions.PORT_ALLOW,
    actions.REVIEW_PATHS,
    actions.NIC_PORT_DOWN,
    actions.NIC_PORT_UP,
)
FORWARDS, SILENT, DOWN = 0, 1, 2  # states of a switch


@inner
def apply(net, event):
    """Carry out one action at once; the caller drops the queue of a port that goes down
    (`ports.flush`).
    """
    action = int(event.action)
    target = int(event.target)
    if action == actions.SWITCH_UP:
        net.switch[target].state = FORWARDS
    elif action == actions.SWITCH_SILENT:
        net.switch[target].state = SILENT
    elif action == actions.SWITCH_DOWN:
        net.switch[target].state = DOWN
    else:
        _port(net, net.port[target], action, event.rate, event.burst)


@inlined
def _port(net, port, action, rate, burst):
    if action == actions.PORT_DOWN:
        port.up = 0
        port.cut_until = max(port.free_at, net.ctl[0].now)
    elif action == actions.PORT_UP:
        port.up = 1
    elif action == actions.PORT_RATE:  # a transmission in progress ends as it began
        _set_rate(port, rate)
    else:
        health.change(port, action, rate, burst)
    port.faulty = 1 if health.is_faulty(port) else 0


@inlined
def _set_rate(port, share):
    """Let a port send at this fraction of its rate; its queue limits follow (`queues.slowed`)."""
    port.rate_bps = max(int(port.full_rate_bps * share), 1)
    port.queue_bytes = max(int(port.full_queue_bytes * share), port.least_queue_bytes)
    port.ecn_low_bytes = max(int(port.full_ecn_low_bytes * share), port.least_ecn_low_bytes)
    port.ecn_high_bytes = max(int(port.full_ecn_high_bytes * share), port.least_ecn_high_bytes)


@inner
def loses(net, port, port_no, f):
    """Whether a faulty port loses the frame that it sends; it may also damage it."""
    what = health.strike(port, net.stream, port_no, int(f.frame_bytes), True)
    if what == health.DAMAGED:
        bit = bits.draw_below(net.stream, port_no, frames.BITS_OF_ICRC)
        net.count[port_no].damaged += frames.damage(
            net.pool[f.room], int(f.length), bit, net.ctl[0].dscps
        )
    return what == health.LOST
