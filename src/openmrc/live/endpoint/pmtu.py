"""How much a device's packets carry: its PMTU (row 20).

Peers are told one of `PMTUS`, and the smaller of both ends' holds. On an ordinary network that
wastes up to half of each packet: 1024 of 1500 bytes. So a device there, unless it was asked for a
certain PMTU, also offers what fills its MTU, up to the largest of PMTUS. Between two that do, the
smaller offer holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from openmrc.engine.parameters import PMTUS
from openmrc.errors import InputError
from openmrc.live.endpoint.limits import Port
from openmrc.wire import layout

_PLAIN = (layout.UDP, layout.BTH, layout.METH, layout.TSETH, layout.RETH, layout.IMMDT, layout.ICRC)
PLAIN_BYTES = sum(header.size_bytes for header in _PLAIN)  # of plain UDP, behind the IP header
IP_BYTES = 2 * layout.IPV6.size_bytes + PLAIN_BYTES  # the largest headers that an MTU counts
HEADER_BYTES = layout.ETHERNET.size_bytes + IP_BYTES  # those of a frame
WORD_BYTES = 4  # payloads are padded to whole words


@dataclass(frozen=True)
class Pmtu:
    """Bytes of data in a full packet: `size`; `stated`, of PMTUS, is what any peer can use."""

    size: int
    stated: int
    fills: bool  # `size` is offered to peers that fill packets, too
    note: str = ""  # why it is not the requested one, in one line

    @property
    def offered(self) -> int:
        """What a peer that fills packets is told; 0 if this device does not."""
        return self.size if self.fills else 0

    def agreed(self, stated: int, offered: int) -> int:
        """What both ends use, of which the other one has told these."""
        if self.fills and offered:
            return min(self.size, offered)
        return min(self.stated, stated)

    def lowered(self, size: int, whose: str) -> Pmtu:
        """The same where somebody (`whose`) has room for less."""
        note = f"PMTU {size} B in place of {self.size}: {whose} has room for no more"
        stated = max(one for one in PMTUS if one <= size)
        fills = self.fills and size > stated
        return replace(self, size=size, stated=stated, fills=fills, note=note)


def of_ports(wires: Sequence[Port], wanted: int, fills: bool) -> Pmtu:
    """The largest PMTU up to `wanted` that the ports' MTUs have room for; `fills` is for plain UDP
    alone.
    """
    wire = min(wires, key=lambda wire: wire.mtu)
    name, mtu = wire.interface or "a port", wire.mtu
    if not (stated := largest(mtu, wanted)):
        raise InputError(
            f"{name}: MTU {mtu} has no room for {PMTUS[0]} B of data;"
            f" set it to {mtu_for(PMTUS[0])} or more: ip link set {name} mtu 9000"
        )
    size = min(fitting(one.mtu, _is_ipv4(one), wanted, fills) for one in wires)
    needed = f"{wanted} needs {mtu_for(wanted)} on the whole path"
    note = (
        f"PMTU {size} B in place of {wanted}: {name} has an MTU of {mtu}, {needed}"
        f" (ip link set DEVICE mtu {mtu_for(wanted)})"
    )
    return Pmtu(size, stated, fills, "" if size == wanted else note)


def largest(mtu: int, wanted: int) -> int:
    """Return the largest of PMTUS up to `wanted` that an interface has room for; 0 if there is
    none.
    """
    return max((one for one in PMTUS if one <= wanted and mtu_for(one) <= mtu), default=0)


def fitting(mtu: int, ipv4: bool, wanted: int, fills: bool) -> int:
    """Return how much a full packet that fits an interface carries: one of PMTUS, or what fills
    it.
    """
    return max(largest(mtu, wanted), most_payload(mtu, ipv4, wanted) if fills else 0)


def most_payload(mtu: int, ipv4: bool, most: int) -> int:
    """Return how much fills a packet of plain UDP, up to `most`; whole words."""
    return min(mtu - plain_bytes(ipv4), most) // WORD_BYTES * WORD_BYTES


def plain_bytes(ipv4: bool) -> int:
    """The headers of a packet of plain UDP, and its iCRC."""
    return (layout.IPV4 if ipv4 else layout.IPV6).size_bytes + PLAIN_BYTES


def mtu_for(pmtu: int) -> int:
    """Return the smallest MTU of an interface that has room for `pmtu` bytes of data, whatever the
    device's mode.
    """
    return pmtu + IP_BYTES


def _is_ipv4(wire: Port) -> bool:
    return wire.sockets is not None and wire.sockets.plane.ipv4
