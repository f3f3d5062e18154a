"""What each packet occupies on the wire: preamble, frame and gap (reference 2.1 to 2.10), or
htsim's simpler sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from openmrc.engine import packet

PREAMBLE_AND_GAP = 20
OUTER_IPV6 = 40
# Ethernet 14, outer IPv6 40, inner IPv6 40, UDP 8, BTH 12, iCRC 4, FCS 4
BASE = 14 + 40 + 40 + 8 + 12 + 4 + 4
METH, TSETH, RETH, IMMDT, AETH, SETH_CC, NETH, PETH, ERTH, EETH = 4, 4, 16, 4, 4, 36, 20, 16, 16, 36
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
        """A SACK: the largest control packet that an acknowledgement needs."""
        return self.header_bytes[packet.SACK]


def _mrc() -> Framing:
    sizes = np.full(256, BASE + PREAMBLE_AND_GAP)
    data = METH + TSETH + RETH
    for opcode in range(packet.WRITE_FIRST, packet.LAST_DATA + 1):
        sizes[opcode] += data
    for opcode in (packet.WRITE_LAST_IMM, packet.WRITE_ONLY_IMM):
        sizes[opcode] += IMMDT
    for opcode, header in (
        (packet.ACKNOWLEDGE, AETH),
        (packet.SACK, SETH_CC),
        (packet.NACK, NETH),
        (packet.PROBE, PETH),
        (packet.ENDPOINT_REQUEST, ERTH),
        (packet.ENDPOINT_RESPONSE, EETH),
    ):
        sizes[opcode] += header
    return Framing(
        header_bytes=tuple(sizes.tolist()),
        trimmed_bytes=14 + TRIM_IP_BYTES + 4 + PREAMBLE_AND_GAP,
        nominal_overhead=8 + 12 + data + 4 + 40,  # UDP length + 40
    )


def _without_srv6(sizes: Framing) -> Framing:
    """No outer IPv6 header; what is left of a trimmed packet is cut at the same byte."""
    return replace(sizes, header_bytes=tuple(n - OUTER_IPV6 for n in sizes.header_bytes))


MRC_FRAMING = _mrc()
HASHED_FRAMING = _without_srv6(MRC_FRAMING)
PEER_FRAMING = Framing(header_bytes=(64,) * 256, trimmed_bytes=64, nominal_overhead=64)


def framing(rules: str, srv6: bool = True) -> Framing:
    """The sizes that a transport's `rules` ask for, with or without SRv6 (MRC 2.1)."""
    if rules == "peer":
        return PEER_FRAMING
    return MRC_FRAMING if srv6 else HASHED_FRAMING
