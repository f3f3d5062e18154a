"""Forwarding: the static tables as arithmetic on (destination, EV, tier), or the tables themselves.

A switch that has the destination below it sends down, any other up by the uplink that the EV names
for its tier; with hashed EVs by a hash of flow, EV and the switch's own salt. The flow is the
5-tuple without the EV, or in peer runs a number. Walking every carrier of a small fabric through
the real /48 tables gives the same ports, as a test verifies. With `forwarding = "usid"` packets
have real carriers and switches process them: shift, and look up.
"""

from __future__ import annotations

from openmrc.engine import bits
from openmrc.jit import inlined
from openmrc.wire import srv6


@inlined
def up_choice(ctl, s, ev):
    """The number that selects among uplinks at a switch: the EV's field for its tier, or a hash."""
    if ctl.hashed:
        return bits.mix32(ev ^ int(s.salt))
    if s.tier == 0:
        return (ev >> int(ctl.up0_shift)) & int(ctl.up0_mask)
    return (ev >> int(ctl.up1_shift)) & int(ctl.up1_mask)


@inlined
def _one_of(choice, n):
    """A number, not negative, modulo `n`: a division takes longer than all else here."""
    return choice & (n - 1) if n & (n - 1) == 0 else choice % n


@inlined
def first_down(s, dst):
    """The first of the parallel ports of switch record `s` towards NIC `dst` below it."""
    place = dst - s.lo
    if s.stride_shift >= 0:
        return s.first_down + (place >> int(s.stride_shift)) * s.bundle
    return s.first_down + place // s.stride * s.bundle


@inlined
def egress(ctl, s, dst, ev):
    """Egress port for NIC `dst` at switch record `s`."""
    down = s.lo <= dst < s.hi  # nobody can predict it: no branch depends on it
    first = first_down(s, dst) if down else int(s.first_up)
    n = int(s.bundle) if down else int(s.n_up)
    return first + _one_of(up_choice(ctl, s, ev), n)


@inlined
def first_egress(s, dst):
    """The first of the egress ports by which switch record `s` may send to NIC `dst`, and how many
    there are.
    """
    if s.lo <= dst < s.hi:
        return first_down(s, dst), int(s.bundle)
    return int(s.first_up), int(s.n_up)


@inlined
def write_carrier(net, n, p):
    """Write the carrier of packet record `p`, index `n`, as its NIC does."""
    headend = srv6.Headend(net.usid_scheme, net.usid_nic)
    srv6.write_carrier(net.carrier[n], 0, headend, int(p.src), int(p.dst), int(p.ev))


@inlined
def egress_by_usid(net, n, switch):
    """Shift the carrier of packet `n` at a switch and return its egress port; negative if there is
    no route.
    """
    return srv6.step(net.carrier[n], 0, srv6.Tables(net.usid_switch, net.usid_slots), switch)


@inlined
def tuple_flow(src, dst, plane):
    """The flow of a packet for `hashed_ev`: the addresses of both NICs' ports on a plane.

    Protocol and destination port are the same in all packets, the source port is the EV.
    """
    return bits.mix32((src << 4 | plane) ^ bits.mix32(dst))


@inlined
def hashed_ev(flow, ev):
    """The input of the ECMP hash, 32 bits: flow and EV of a packet."""
    return bits.mix32(ev ^ bits.mix32(flow))
