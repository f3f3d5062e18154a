"""The headers of RoCEv2 that MRC lacks or defines differently, field by field as in `layout`.

Of reliable connections there are the packets of RDMA WRITE, and CNPs. Ethernet, IP and UDP, the
RETH, ImmDt, AETH and iCRC are those of `layout`; the BTH is InfiniBand's own, and only the first
packet of a message has a RETH.
"""

from __future__ import annotations

from openmrc.wire.layout import AETH, BTH_START, IMMDT, RETH, Header, tables
from openmrc.wire.roce import opcodes as roce

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

# Tables 44 to 46: three bits are the kind; five are credits, a time or a reason.
SYNDROMES = {
    roce.AETH_ACK: "ACK",
    roce.AETH_NAK_SEQUENCE: "NAK_PSN_SEQUENCE_ERROR",
    0x61: "NAK_INVALID_REQUEST",
    0x62: "NAK_REMOTE_ACCESS_ERROR",
    0x63: "NAK_REMOTE_OPERATIONAL_ERROR",
}

# Values that operators of RoCEv2 commonly set: AF31 for data, in the lossless priority, and CS6, in
# a strict one, for CNPs; the simulated network gives that class to ACKs and NAKs too.
DSCP_DATA, DSCP_CONTROL = 26, 48

BTH, CNP_BODY = tables(
    f"""
BTH | Base transport header | IBTA 9.2, A17.9.2
{BTH_START}
    fecn                1  congestion ahead: of InfiniBand; 0
    becn                1  congestion, said to the sender: 1 in a CNP
    reserved            6
    dest_qpn           24  QP that it is for
    a                   1  acknowledge request
    reserved            7
    psn                24  sequence number of the packet, of an ACK the last one that it covers

CNP | What a congestion notification packet reserves | IBTA A17.9.2
    reserved          128
""",
    {"opcode": OPCODES},
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
