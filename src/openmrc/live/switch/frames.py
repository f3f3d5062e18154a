"""The bytes of a frame that a switch reads and writes, apart from the carrier.

The traffic class of the first IP header determines the queue, whether the frame may be trimmed, and
whether it may be marked (MRC 2.13, row 15). `dscps` is the fabric's table (`wire.classes`).
"""

from __future__ import annotations

from openmrc.engine import packet as pk
from openmrc.engine.packet import CLASS_CONTROL, CLASS_DATA
from openmrc.jit import inlined
from openmrc.wire import classes, layout
from openmrc.wire.srv6 import ETHERTYPE_AT, IP_AT, SRH_AT
from openmrc.wire.words import ICRC, IPV6, get, put

BITS_OF_ICRC = ICRC.size_bytes * 8


@inlined
def is_ipv6(data, n):
    """Whether the frame `data[:n]` has a whole IPv6 header."""
    return (
        n >= SRH_AT
        and int(data[ETHERTYPE_AT]) * 256 + int(data[ETHERTYPE_AT + 1]) == layout.ETHERTYPE_IPV6
        and int(data[IP_AT]) >> 4 == 6
    )


@inlined
def class_of(dscps, dscp):
    """The queue of a frame, by its DSCP only."""
    if dscp == classes.dscp(dscps, classes.CONTROL) or classes.is_trimmed(dscps, dscp):
        return CLASS_CONTROL
    again = classes.dscp(dscps, classes.TRIMMABLE_RETX)
    return pk.CLASS_RETRANSMIT if dscp == again else CLASS_DATA


@inlined
def dscp_of(data):
    """The DSCP of the first header."""
    return get(data, IP_AT, IPV6.dscp)


@inlined
def may_trim(dscps, dscp):
    """Whether a frame with this DSCP may be trimmed."""
    first = dscp == classes.dscp(dscps, classes.TRIMMABLE)
    return first or dscp == classes.dscp(dscps, classes.TRIMMABLE_RETX)


@inlined
def mark(data):
    """Write CE into the first header, if the frame is ECN-capable; 1 if it had no mark before."""
    ecn = get(data, IP_AT, IPV6.ecn)
    if ecn == layout.ECN_NOT_ECT or ecn == layout.ECN_CE:
        return 0
    put(data, IP_AT, IPV6.ecn, layout.ECN_CE)
    return 1


@inlined
def damage(data, n, bit, dscps):
    """Flip a bit, 0 <= bit < BITS_OF_ICRC, of the frame's iCRC; 1, or 0 if it has none.

    A trimmed frame has none (row 21). One that is trimmed later loses the damage with its payload.
    """
    if classes.is_trimmed(dscps, dscp_of(data)):
        return 0
    end = min(n, SRH_AT + get(data, IP_AT, IPV6.payload_length))
    at = end - ICRC.size_bytes + bit // 8
    if at < SRH_AT:
        return 0
    data[at] = int(data[at]) ^ (1 << (bit & 7))
    return 1
