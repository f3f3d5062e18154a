"""The entropy value (EV) on the wire: half in the UDP source port, half in the IPv6 flow label.

An EV has 32 bits (MRC 2.11). By row 2 EV[15:0] is the source port and EV[31:16] the low 16 bits of
the flow label; a profile may swap the halves. The four high bits of a flow label are sent as zero
and ignored. IPv4 has no flow label: that half of the EV is zero at the receiver.
"""

from __future__ import annotations

from openmrc.jit import inlined

HALF_BITS = 16
HALF_MASK = 0xFFFF


@inlined
def to_wire(ev, swapped):
    """Source port << 16 | flow label for an EV; `swapped` is 0 or 1, as in the envelope."""
    low, high = int(ev) & HALF_MASK, int(ev) >> HALF_BITS & HALF_MASK
    if swapped:
        return high << HALF_BITS | low
    return low << HALF_BITS | high


@inlined
def from_wire(source_port, flow_label, swapped):
    """The EV of a source port and a flow label; over IPv4 the caller passes flow label 0."""
    port, label = int(source_port) & HALF_MASK, int(flow_label) & HALF_MASK
    if swapped:
        return port << HALF_BITS | label
    return label << HALF_BITS | port
