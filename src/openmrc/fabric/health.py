"""Loss and damage at a faulty port, drawn packet by packet; the same in every world.

The record of a port, or of its health, has `actions.PORT_HEALTH`.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.fabric.actions import MTU_WHOLE, PORT_CORRUPT, PORT_LOSS, PORT_MTU
from openmrc.jit import inlined, inner

PASSES, LOST, DAMAGED = range(3)  # what `strike` returns
CERTAIN = 2147483648.0
# On the wire beside the IP packet: Ethernet header, checksum, preamble and gap.
AROUND_IP_BYTES = 38


@inlined
def change(health, action, rate, burst):
    """Carry out an action that sets a rate of loss or damage, or an MTU. Losses are independent, or
    come in bursts: `rate` of all packets are lost, in runs of `burst` on average (the Gilbert
    model).
    """
    if action == PORT_LOSS:
        bursts = burst > 0.0 and rate < 1.0
        health.loss = _chance(rate / (burst * (1.0 - rate)) if bursts else rate)
        health.loss_again = _chance(1.0 - 1.0 / burst if bursts else rate)
        health.losing = 0
    elif action == PORT_CORRUPT:
        health.corrupt = _chance(rate)
    elif action == PORT_MTU:
        health.frame_max = 0 if rate >= MTU_WHOLE else int(rate) + AROUND_IP_BYTES


@inlined
def is_faulty(health):
    """Whether the port may lose or damage packets."""
    return health.loss > 0 or health.corrupt > 0 or health.frame_max > 0


@inner
def strike(health, streams, port_no, frame_bytes, has_icrc):
    """Draw the fate of the next packet, of this length on the wire: it passes, is lost, or is
    damaged in the part that the iCRC covers. `streams[port_no]` is the port's own stream of random
    numbers.
    """
    if health.frame_max > 0 and frame_bytes > health.frame_max:
        return LOST
    if health.loss > 0:
        chance = health.loss_again if health.losing else health.loss
        health.losing = _happens(streams, port_no, chance)
        if health.losing:
            return LOST
    if health.corrupt > 0 and has_icrc and _happens(streams, port_no, health.corrupt):
        return DAMAGED
    return PASSES


@inlined
def _chance(probability):
    return int(min(probability, 1.0) * CERTAIN)


@inlined
def _happens(streams, port_no, chance):
    return 1 if bits.draw(streams, port_no) >> 1 < int(chance) else 0
