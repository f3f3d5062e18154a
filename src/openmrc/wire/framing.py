"""The size of each packet on the wire: preamble, frame and gap (MRC 2.1 to 2.10), or htsim's
simpler sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openmrc.engine import packet
from openmrc.fabric import rtt
from openmrc.fabric.model import Fabric
from openmrc.wire import layout
from openmrc.wire.layout import Header

PREAMBLE_AND_GAP = 20
FCS = 4
PREAMBLE_GAP_AND_FCS = PREAMBLE_AND_GAP + FCS  # in addition to a frame's datagram
TRIM_IP_BYTES = 128  # row 21: what is left of the IP packet


@dataclass(frozen=True)
class Framing:
    """Wire sizes of one set of rules, in bytes."""

    header_bytes: tuple[int, ...]  # [256] by opcode: everything but the payload
    trimmed_bytes: int
    nominal_overhead: int  # MRC 4.1: nominal packet size = payload + this

    def data_bytes(self, payload: int) -> int:
        """A data packet with this payload."""
        return self.header_bytes[packet.WRITE_MIDDLE] + payload

    @property
    def sack_bytes(self) -> int:
        """A SACK: the largest control packet among acknowledgements."""
        return self.header_bytes[packet.SACK]

    def base_rtt_ps(self, fabric: Fabric, payload: int) -> int:
        """The round trip of a data packet with this payload and its SACK, over the longest path."""
        return rtt.base_rtt_ps(fabric, self.data_bytes(payload), self.sack_bytes)


def bytes_of(*headers: Header) -> int:
    """The size of these headers."""
    return sum(header.size_bytes for header in headers)


def probe_bytes(*ip: Header) -> int:
    """The IP packet of a probe of a path, behind these IP headers."""
    extensions = layout.EXTENSIONS[packet.PROBE]
    return bytes_of(*ip, layout.UDP, layout.BTH, *extensions, layout.ICRC)


def by_opcode(extensions: Mapping[int, Sequence[Header]], *around: Header) -> tuple[int, ...]:
    """Bytes by opcode of a packet without payload, [256]: the headers `around`, those after the
    BTH, FCS, preamble and gap.
    """
    base = bytes_of(*around) + PREAMBLE_GAP_AND_FCS
    return tuple(base + bytes_of(*extensions.get(opcode, ())) for opcode in range(256))


def _mrc() -> Framing:
    behind = (layout.UDP, layout.BTH, layout.ICRC)
    data = layout.EXTENSIONS[packet.WRITE_MIDDLE]
    return Framing(
        header_bytes=by_opcode(
            layout.EXTENSIONS, layout.ETHERNET, layout.IPV6, layout.IPV6, *behind
        ),
        trimmed_bytes=layout.ETHERNET.size_bytes + TRIM_IP_BYTES + PREAMBLE_GAP_AND_FCS,
        nominal_overhead=bytes_of(*behind, *data) + 40,  # UDP length + 40
    )


def _without_srv6(sizes: Framing) -> Framing:
    """The same without the outer IPv6 header; a trimmed packet is cut at the same byte."""
    return replace(
        sizes, header_bytes=tuple(n - layout.IPV6.size_bytes for n in sizes.header_bytes)
    )


MRC_FRAMING = _mrc()
HASHED_FRAMING = _without_srv6(MRC_FRAMING)
PEER_FRAMING = Framing(header_bytes=(64,) * 256, trimmed_bytes=64, nominal_overhead=64)


def framing(rules: str, srv6: bool = True) -> Framing:
    """The sizes for a transport's `rules`, with or without SRv6 (MRC 2.1)."""
    if rules == "peer":
        return PEER_FRAMING
    return MRC_FRAMING if srv6 else HASHED_FRAMING
