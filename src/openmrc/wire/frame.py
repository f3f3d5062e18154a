"""The part of a frame that the engine's packet record leaves out: addresses, hops, checks.

A frame is a packet record (`engine.packet.PACKET`, the protocol) in an envelope (`ENVELOPE`, in
this module: everything that forwarding needs and the protocol does not). `wire.codec` turns the two
into bytes and back.
"""

from __future__ import annotations

import numpy as np

from openmrc.errors import OpenMrcError
from openmrc.fabric.dscp import TRIM_LENGTHS

ENVELOPE = np.dtype(
    [
        # addresses, network byte order; an IPv4 address takes the first four bytes
        ("dst_mac", "u1", (6,)),
        ("src_mac", "u1", (6,)),
        ("outer_src", "u1", (16,)),
        ("carrier", "u1", (16,)),  # destination of the outer header
        ("segment", "u1", (16,)),  # of the SRH
        ("inner_src", "u1", (16,)),
        ("inner_dst", "u1", (16,)),
        # which headers are present
        ("srv6", "i1"),  # 1: an outer IPv6 header
        ("srh", "i1"),  # 1: an SRH after it
        ("ipv4", "i1"),  # 1: IPv4 in place of the inner IPv6; not with srv6
        ("tseth", "i1"),  # 1: data packets carry a TSETH
        ("ev_swapped", "i1"),  # row 2: EV[15:0] in the flow label, EV[31:16] in the source port
        ("ports_from_1", "i1"),  # row 32: bit p of a port mask is port p - 1
        ("dscps", "i8"),  # the fabric's table, see `classes`; 0: the defaults
        # their fields
        ("hop_limit", "u1"),  # of the outermost IP header, as a switch left it
        ("inner_hop_limit", "u1"),
        ("segments_left", "u1"),
        ("udp_port", "u2"),  # destination port
        ("pkey", "u2"),
        ("spdcid", "u2"),
        ("dpdcid", "u2"),
        # what decoding found
        ("trim_lengths", "i1"),  # of a trimmed packet, a place in `TRIM_LENGTHS_FOUND`
        ("payload_at", "i4"),  # offset of the payload
        ("error_at", "i4"),  # offset of what is wrong
    ],
    align=True,
)

# Which lengths of a trimmed packet a switch has adjusted; others are those of the whole packet.
TRIM_LENGTHS_FOUND = (*TRIM_LENGTHS, "some")

# What `codec.decode` returns: OK, or the first thing that is wrong with a frame.
(
    OK,
    TOO_SHORT,
    ETHERTYPE,
    IP_VERSION,
    IP_HEADER_LENGTH,
    IP_LENGTH,
    IP_CHECKSUM,
    FRAGMENT,
    NEXT_HEADER,
    ROUTING,
    CARRIER_EMPTY,
    UDP_PORT,
    UDP_LENGTH,
    OPCODE,
    TRANSPORT_VERSION,
    EXTENSION_LENGTH,
    FTYPE,
    PAD,
    PAYLOAD_LENGTH,
    ICRC,
) = range(20)

REASONS = (
    "no error",
    "the frame ends within a header",
    "not IPv6 or IPv4",
    "wrong IP version",
    "IPv4 options are not supported",
    "the IP length does not fit the frame",
    "wrong IPv4 header checksum",
    "a fragment",
    "neither UDP nor, in an outer header, IPv6 or a routing header follows",
    "not a segment routing header with one segment",
    "the carrier holds no uSID",
    "not a UDP port of MRC",
    "the UDP length differs from the IP length",
    "not an opcode of MRC",
    "not transport version 0",
    "the packet ends within its headers",
    "not a time stamp (ftype 1; of a probe or request also 0)",
    "padding that the payload does not need, or that is missing",
    "a payload where there is none, or one longer than a packet record can say",
    "wrong iCRC",
)


class WireError(OpenMrcError):
    """Bytes that are not an MRC frame: `offset` is where, `reason` what is wrong, `code` one of
    this module's.
    """

    def __init__(self, code: int, offset: int) -> None:
        self.code = code
        self.offset = offset
        self.reason = REASONS[code]
        super().__init__(f"byte {offset}: {self.reason}")
