"""The headers of RoCEv2 that MRC has not, or has otherwise, field by field as in `layout`.

Of reliable connections there are the packets of RDMA WRITE, and CNPs beside them. Ethernet, IP and
UDP, the RETH, ImmDt, AETH and iCRC are those of `layout`; the BTH is InfiniBand's own, and a RETH
stands in the first packet of a message only.
"""

from __future__ import annotations

from openmrc.wire import roce
from openmrc.wire.layout import AETH, IMMDT, RESERVED, RETH, Field, Header

OPCODES = {
    roce.WRITE_FIRST: "RC_WRITE_FIRST",
    roce.WRITE_MIDDLE: "RC_WRITE_MIDDLE",
    roce.WRITE_LAST: "RC_WRITE_LAST",
    roce.WRITE_LAST_IMM: "RC_WRITE_LAST_IMM",
    roce.WRITE_ONLY: "RC_WRITE_ONLY",
    roce.WRITE_ONLY_IMM: "RC_WRITE_ONLY_IMM",
    roce.ACKNOWLEDGE: "RC_ACKNOWLEDGE",
    roce.CNP: "CNP",
}

# Tables 44 to 46: three bits say what it is, five are credits, a time or a reason.
SYNDROMES = {
    roce.AETH_ACK: "ACK",
    roce.AETH_NAK_SEQUENCE: "NAK_PSN_SEQUENCE_ERROR",
    0x61: "NAK_INVALID_REQUEST",
    0x62: "NAK_REMOTE_ACCESS_ERROR",
    0x63: "NAK_REMOTE_OPERATIONAL_ERROR",
}

# What operators of RoCEv2 commonly set: AF31 for data, in the lossless priority, and CS6, in a
# strict one, for CNPs; the simulated network gives that class to ACKs and NAKs too.
DSCP_DATA, DSCP_CONTROL = 26, 48

BTH = Header(
    "BTH",
    "Base transport header",
    "IBTA 9.2, A17.9.2",
    (
        Field("opcode", 8, "what this packet is", names=OPCODES),
        Field("se", 1, "solicited event"),
        Field("m", 1, "migration state of InfiniBand"),
        Field("pad", 2, "bytes of padding behind the payload"),
        Field("tver", 4, "transport version: 0"),
        Field("pkey", 16, "partition"),
        Field("fecn", 1, "congestion ahead: of InfiniBand; 0"),
        Field("becn", 1, "congestion, said to the sender: 1 in a CNP"),
        Field(RESERVED, 6),
        Field("dest_qpn", 24, "QP that it is for"),
        Field("a", 1, "acknowledge request"),
        Field(RESERVED, 7),
        Field("psn", 24, "sequence number of the packet, of an ACK the last one that it covers"),
    ),
)
CNP_BODY = Header(
    "CNP",
    "What a congestion notification packet reserves",
    "IBTA A17.9.2",
    (Field(RESERVED, 128),),
)

EXTENSIONS: dict[int, tuple[Header, ...]] = {
    roce.WRITE_FIRST: (RETH,),
    roce.WRITE_MIDDLE: (),
    roce.WRITE_LAST: (),
    roce.WRITE_LAST_IMM: (IMMDT,),
    roce.WRITE_ONLY: (RETH,),
    roce.WRITE_ONLY_IMM: (RETH, IMMDT),
    roce.ACKNOWLEDGE: (AETH,),
    roce.CNP: (CNP_BODY,),
}
