"""Forwarding: the static tables as arithmetic on (destination, EV, tier).

A switch that has the destination below it sends down, any other up by the uplink that the EV names
for its tier; with hashed EVs by a hash of flow, EV and the switch's own salt. Walking every carrier
of a small fabric through the real /48 tables gives the same ports (a test does).
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.jit import inlined


@inlined
def up_choice(ctl, s, ev):
    """The number that picks among parallel ways at a switch: the EV's field for its tier, or a
    hash.
    """
    if ctl.hashed:
        return bits.mix32(ev ^ int(s.salt))
    if s.tier == 0:
        return (ev >> int(ctl.up0_shift)) & int(ctl.up0_mask)
    return (ev >> int(ctl.up1_shift)) & int(ctl.up1_mask)


@inlined
def egress(ctl, s, dst, ev):
    """Egress port for NIC `dst` at switch record `s`."""
    if s.lo <= dst < s.hi:
        port = s.first_down + (dst - s.lo) // s.stride * s.bundle
        if s.bundle > 1:
            port += up_choice(ctl, s, ev) % int(s.bundle)
        return port
    return s.first_up + up_choice(ctl, s, ev) % int(s.n_up)


@inlined
def hashed_ev(flow, ev):
    """What ECMP hashes of a packet, 32 bits: its flow and its EV."""
    return bits.mix32(ev ^ bits.mix32(flow))
