"""RoCEv2 on the wire: opcodes of reliable connections, and what each packet occupies.

Public facts of the InfiniBand specification (volume 1, section 9 and annex A17): a packet is
Ethernet, IPv4, UDP to port 4791, BTH, extension headers, payload, iCRC. An RDMA WRITE names its
address once, in the RETH of its first packet. Every packet is charged preamble, frame and gap.
"""

from __future__ import annotations

import numpy as np

from openmrc.wire.framing import AETH, IMMDT, PEER_FRAMING, PREAMBLE_AND_GAP, RETH, Framing

UDP_PORT = 4791
UDP = 17  # the IP protocol

# opcodes of the reliable connection service, table 38; CNP is annex A17.9.2
WRITE_FIRST = 0x06
WRITE_MIDDLE = 0x07
WRITE_LAST = 0x08
WRITE_LAST_IMM = 0x09
WRITE_ONLY = 0x0A
WRITE_ONLY_IMM = 0x0B
LAST_DATA = WRITE_ONLY_IMM
ACKNOWLEDGE = 0x11
CNP = 0x81

# AETH syndromes, tables 44 and 46
AETH_ACK = 0x1F  # no credits counted
AETH_NAK_SEQUENCE = 0x60

# Ethernet 14, IPv4 20, UDP 8, BTH 12, iCRC 4, FCS 4
BASE = 14 + 20 + 8 + 12 + 4 + 4
CNP_RESERVED = 16
PFC_BYTES = 64 + PREAMBLE_AND_GAP  # a MAC control frame of the shortest length


class RoceFraming(Framing):
    """Wire sizes of RoCEv2; `header_bytes` by its own opcodes."""

    def data_bytes(self, payload: int) -> int:
        """A packet with this payload that is neither the first nor the last of its message."""
        return self.header_bytes[WRITE_MIDDLE] + payload

    @property
    def sack_bytes(self) -> int:
        """An acknowledgement."""
        return self.header_bytes[ACKNOWLEDGE]


def _roce() -> RoceFraming:
    sizes = np.full(256, BASE + PREAMBLE_AND_GAP)
    for opcodes, header in (
        ((WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM), RETH),
        ((WRITE_LAST_IMM, WRITE_ONLY_IMM), IMMDT),
        ((ACKNOWLEDGE,), AETH),
        ((CNP,), CNP_RESERVED),
    ):
        for opcode in opcodes:
            sizes[opcode] += header
    return RoceFraming(tuple(sizes.tolist()), trimmed_bytes=0, nominal_overhead=0)


ROCE_FRAMING = _roce()
PEER_ROCE_FRAMING = RoceFraming(PEER_FRAMING.header_bytes, trimmed_bytes=0, nominal_overhead=0)


def roce_framing(rules: str) -> RoceFraming:
    """The sizes that a transport's `rules` ask for."""
    return PEER_ROCE_FRAMING if rules == "peer" else ROCE_FRAMING
