"""Every header of a frame, field by field, as data: the only definition of the layouts.

The codecs take their offsets from here; Scapy layers, the Wireshark dissector and the tables and
diagrams of the documentation are generated from it or compared with it. Bits count from the first
bit on the wire, most significant first, as in the diagrams of RFCs. Field names follow the
reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from openmrc.engine import packet
from openmrc.fabric import dscp

RESERVED = "reserved"  # a field of this name is sent as zero and ignored on receipt
NO_NAMES: dict[int, str] = {}


@dataclass(frozen=True)
class Field:
    """One field: its width, its meaning, and names of values.

    `signed` fields are two's complement. Every name but `reserved` is unique within its header.
    """

    name: str
    bits: int
    meaning: str = ""
    signed: bool = False
    names: dict[int, str] = field(default_factory=lambda: NO_NAMES)


@dataclass(frozen=True)
class Header:
    """A header of fixed size. Raises `ValueError` if its fields are not whole bytes."""

    name: str
    title: str
    source: str  # the specification that defines it
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if sum(f.bits for f in self.fields) % 8:
            raise ValueError(f"{self.name} is not a whole number of bytes")

    @property
    def size_bytes(self) -> int:
        """Its length on the wire."""
        return sum(f.bits for f in self.fields) // 8

    def field(self, name: str) -> Field:
        """Return the field of this name; `KeyError` if there is none."""
        for f in self.fields:
            if f.name == name:
                return f
        raise KeyError(f"{self.name} has no field {name}")

    def bit(self, name: str) -> int:
        """Return the offset in bits of a field from the first bit of the header."""
        at = 0
        for f in self.fields:
            if f.name == name:
                return at
            at += f.bits
        raise KeyError(f"{self.name} has no field {name}")

    def byte(self, name: str) -> int:
        """Return the offset in bytes of the byte in which a field begins."""
        return self.bit(name) // 8


def tables(text: str, names: Mapping[str, dict[int, str]]) -> tuple[Header, ...]:
    """Return headers written as text: between empty lines, each a line `NAME | title | source` and
    one line for each field, `name bits meaning`, with an `s` after the bits of a signed one.

    `names` are those of values, by `FIELD`, or by `HEADER.FIELD` where a header differs from
    others.
    """
    made = []
    for block in text.strip().split("\n\n"):
        first, *rows = block.splitlines()
        name, title, source = first.split(" | ")
        fields = (_field(name, names, *row.split(maxsplit=2)) for row in rows)
        made.append(Header(name, title, source, tuple(fields)))
    return tuple(made)


def _field(
    header: str, names: Mapping[str, dict[int, str]], name: str, bits: str, meaning: str = ""
) -> Field:
    named = names.get(f"{header}.{name}", names.get(name, NO_NAMES))
    return Field(name, int(bits.removesuffix("s")), meaning, bits.endswith("s"), named)


OPCODES = {
    packet.WRITE_FIRST: "RDMA_WRITE_FIRST",
    packet.WRITE_MIDDLE: "RDMA_WRITE_MIDDLE",
    packet.WRITE_LAST: "RDMA_WRITE_LAST",
    packet.WRITE_LAST_IMM: "RDMA_WRITE_LAST_IMM",
    packet.WRITE_ONLY: "RDMA_WRITE_ONLY",
    packet.WRITE_ONLY_IMM: "RDMA_WRITE_ONLY_IMM",
    packet.ACKNOWLEDGE: "ACKNOWLEDGE",
    packet.ENDPOINT_REQUEST: "ENDPOINT_REQUEST",
    packet.ENDPOINT_RESPONSE: "ENDPOINT_RESPONSE",
    packet.SACK: "RELIABILITY_SACK",
    packet.NACK: "RELIABILITY_NACK",
    packet.PROBE: "RELIABILITY_PROBE_REQ",
}
NACK_REASONS = {
    packet.NACK_TRIMMED: "TRIMMED",
    packet.NACK_TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
    packet.NACK_NO_BITMAP: "NO_BITMAP",
    packet.NACK_NO_PKT_BUFFER: "NO_PKT_BUFFER",
    packet.NACK_NO_RESOURCE: "NO_RESOURCE",
    packet.NACK_PSN_OOR_WINDOW: "PSN_OOR_WINDOW",
    packet.NACK_UNEXP_EVENT: "UNEXP_EVENT",
}
SKIPS = {
    packet.M_NONE: "NONE",
    packet.M_SKIP_ONCE: "SKIP_ONCE",
    packet.M_ALWAYS_SKIP: "ALWAYS_SKIP",
}
ENDPOINT_OPS = {packet.OP_PORT_STATUS: "PORT_STATUS_UPDATE", packet.OP_EV_PROBE: "EV_PROBE"}
SYNDROMES = {
    packet.AETH_ACK: "ACK",
    packet.AETH_NAK_INVALID_REQUEST: "NAK_INVALID_REQUEST",
    packet.AETH_NAK_ACCESS_ERROR: "NAK_ACCESS_ERROR",
}

ETHERTYPE_IPV6, ETHERTYPE_IPV4 = 0x86DD, 0x0800
PROTOCOL_UDP, PROTOCOL_IPV6, PROTOCOL_ROUTING = 17, 41, 43
ETHERTYPES = {ETHERTYPE_IPV6: "IPv6", ETHERTYPE_IPV4: "IPv4"}
PROTOCOLS = {PROTOCOL_UDP: "UDP", PROTOCOL_IPV6: "IPv6", PROTOCOL_ROUTING: "Routing"}
ROUTING_SEGMENT = 4
UDP_PORT, UDP_PORT_ALTERNATIVE = 4791, 4971  # row 1
FTYPE_TIMESTAMP = 0x1  # MRC 2.5
FTYPE_NONE = 0x0  # row 31: in PETH and ERTH, no time stamp
FTYPES = {FTYPE_TIMESTAMP: "TIMESTAMP"}
FTYPES_OR_NONE = {FTYPE_NONE: "NONE", **FTYPES}
CC_TYPE_NACK = 0x2  # MRC 2.8
PKEY_DEFAULT = 0xFFFF
PAYLOAD_BYTES_MAX = 8192  # row 20: the largest PMTU

# MRC 2.13 fixes the names; the values are a fabric's own. These are the defaults.
(
    DSCP_NO_TRIM,
    DSCP_TRIMMABLE,
    DSCP_TRIMMABLE_RETX,
    DSCP_TRIMMED,
    DSCP_TRIMMED_LASTHOP,
    DSCP_CONTROL,
) = dscp.DEFAULT
DSCPS = dscp.DEFAULT.names
ECN_NOT_ECT, ECN_ECT1, ECN_ECT0, ECN_CE = 0, 1, 2, 3
ECNS = {ECN_NOT_ECT: "Not-ECT", ECN_ECT1: "ECT(1)", ECN_ECT0: "ECT(0)", ECN_CE: "CE"}

# Names of values by field; with the header first where fields of that name differ.
_NAMES = {
    "ethertype": ETHERTYPES,
    "dscp": DSCPS,
    "ecn": ECNS,
    "next_header": PROTOCOLS,
    "protocol": PROTOCOLS,
    "routing_type": {ROUTING_SEGMENT: "SRH"},
    "opcode": OPCODES,
    "ftype": FTYPES_OR_NONE,
    "TSETH.ftype": FTYPES,
    "syndrome": SYNDROMES,
    "SETH.m": SKIPS,
    "nack_reason": NACK_REASONS,
    "op": ENDPOINT_OPS,
    "op_alternative": ENDPOINT_OPS,
}

# Fields that several headers share.
_CLASS = """\
    dscp                6  traffic class of the packet, and whether it was trimmed
    ecn                 2  explicit congestion notification"""
BTH_START = """\
    opcode              8  what this packet is
    se                  1  solicited event
    m                   1  migration state of InfiniBand
    pad                 2  bytes of padding behind the payload
    tver                4  transport version: 0
    pkey               16  partition"""
_STAMP = """\
    tx_timestamp       16  when it was sent, units of 128 ns
    tsr                 1  1: the unit of tx_timestamp is the implementation's own
    reserved           11
    ftype               4  1: a time stamp; in PETH and ERTH also 0: none"""
_UET = """\
    type                4  of UET; reserved
    nxt                 5  of UET; reserved"""
_DCIDS = """\
    spdcid             16  low 16 bits of the sender's QPN; ignored
    dpdcid             16  low 16 bits of the receiver's QPN; ignored"""
_ANSWERED = f"""\
    entropy            32  EV of the packet that this one answers
{_DCIDS}
    reserved            8"""

HEADERS = tables(
    f"""
Ethernet | Ethernet II | IEEE 802.3
    dst_mac            48  station address
    src_mac            48  station address
    ethertype          16  what follows

IPv6 | IPv6; the outer one's destination is a carrier of uSIDs | RFC 8200, MRC 2.1, 2.12
    version             4  6
{_CLASS}
    flow_label         20  low 16 bits: one half of the EV
    payload_length     16  bytes behind this header
    next_header         8  what follows
    hop_limit           8  hops left
    src               128  address of the sending NIC's port
    dst               128  address of the receiving NIC's port, or the carrier

IPv4 | IPv4, where there is no SRv6 | RFC 791
    version             4  4
    ihl                 4  length in units of 4 B: 5
{_CLASS}
    total_length       16  bytes from the first of this header on
    identification     16  of fragments; 0
    ip_flags            3  2: do not fragment
    fragment_offset    13  0: fragments are refused
    ttl                 8  hops left
    protocol            8  what follows
    header_checksum    16  of this header
    src                32  address of the sending NIC's port
    dst                32  address of the receiving NIC's port

SRH | Segment routing header with one segment | RFC 8754, MRC 2.12
    next_header         8  what follows
    hdr_ext_len         8  length in units of 8 B, without the first 8: 2
    routing_type        8  4: segment routing
    segments_left       8  0: the destination is the last carrier; 1: the segment follows
    last_entry          8  index of the last segment: 0
    srh_flags           8  0
    tag                16  0
    segment           128  carrier of further uSIDs, or a copy of the first for debugging

UDP | UDP | RFC 768, MRC 2.2
    src_port           16  one half of the EV
    dst_port           16  4791; 4971 is accepted too
    length             16  bytes from the first of this header on
    checksum           16  0: none, the iCRC protects the packet

BTH | Base transport header | IBTA 9.2, MRC 2.4
{BTH_START}
    reserved            8
    dest_qpn           24  QP that it is for; 2: the endpoint
    a                   1  acknowledge request: answer with a SACK at once
    r                   1  of InfiniBand; 0
    rtx                 1  a retransmission
    ts                  1  a TSETH follows
    reserved            4
    psn                24  sequence number of the packet; in control packets what their table says

METH | Message header | MRC 2.5
    rqmsn              16  number of the immediate that the message carries; 0 without one
    msn                16  number of the message

TSETH | Time stamp header | MRC 2.5
{_STAMP}

RETH | RDMA header | IBTA 9.3.3, MRC 1.4
    va                 64  address at which this packet's payload goes
    rkey               32  key of the memory region
    dma_length         32  bytes of the whole message

ImmDt | Immediate data | IBTA 9.3.6
    imm                32  immediate data

AETH | Acknowledgement header | IBTA 9.3.5, MRC 1.2
    syndrome            8  acknowledged, or why not
    msn                24  messages completed

SETH | Selective acknowledgement header | MRC 2.6
{_UET}
    m                   2  what to do with the path of the packet answered
    reserved            3
    pr                  1  answers a probe: ack_psn_offset is its probe_id
    reserved            1
    ack_psn_offset    16s  PSN that triggered this SACK - cack_psn
{_ANSWERED}
    cack_psn           24  all up to this one are received
    cc_type             4  congestion control
    cc_flags            4  of the congestion control; reserved
    mpr                 8  window in units of 128 PSNs; 0: not dynamic
    sack_offset       16s  first PSN of the bitmap - cack_psn
    sack_bitmap        64  bit i: that PSN + i is received

CC_STATE | Congestion control state | MRC 2.7
    tx_timestamp       16  tx_timestamp of the packet answered
    reserved            1
    ooo_count          15  packets received beyond a gap
    restore_cwnd        1  undo a cut
    rcv_cwnd_pen        7  what the receiver asks the window to give up, 1/128
    rcvd_bytes         24  bytes received in all, units of 256 B

NETH | Negative acknowledgement header | MRC 2.8
{_UET}
    reserved            7
    nack_reason         8  why
    vendor              8  the implementation's own
{_ANSWERED}
    nack_psn           24  the packet refused
    cc_type             4  congestion control: 2
    cc_flags            4  of the congestion control; reserved
    reserved            8
    tx_timestamp       16  tx_timestamp of the packet refused

PETH | Reliability probe header | MRC 2.9
    reserved           24
    vendor              8  the implementation's own
    probe_id           16  returned in the answer
    reserved           16
{_DCIDS}
{_STAMP}

ERTH | Endpoint request header | MRC 2.10
{_UET}
    reserved            5
    op                  2  operation
    reserved            8
    vendor              8  the implementation's own
    port_status_mask   32  bit p: port p can be reached
    reserved           32
{_STAMP}

EETH | Endpoint response header | MRC 2.10, row 4
    type                4  of UET; reserved
    reserved            6
    op_alternative      2  where others write it; read if op is 0
    op                  2  operation answered
    reserved            2
    reserved          208
    tx_timestamp       16  tx_timestamp of the request
    reserved           48

iCRC | Invariant CRC | IBTA A17.3
    icrc               32  little-endian
""",
    _NAMES,
)
ETHERNET, IPV6, IPV4, SRH, UDP = HEADERS[:5]
BTH, METH, TSETH, RETH, IMMDT, AETH = HEADERS[5:11]
SETH, CC_STATE, NETH, PETH, ERTH, EETH, ICRC = HEADERS[11:]

_DATA = (METH, TSETH, RETH)
EXTENSIONS: dict[int, tuple[Header, ...]] = {
    # MRC 2.3: what follows the BTH; the TSETH of data packets only where BTH.ts is set
    **dict.fromkeys((packet.WRITE_FIRST, packet.WRITE_MIDDLE, packet.WRITE_LAST), _DATA),
    packet.WRITE_LAST_IMM: (*_DATA, IMMDT),
    packet.WRITE_ONLY: _DATA,
    packet.WRITE_ONLY_IMM: (*_DATA, IMMDT),
    packet.ACKNOWLEDGE: (AETH,),
    packet.ENDPOINT_REQUEST: (ERTH,),
    packet.ENDPOINT_RESPONSE: (EETH,),
    packet.SACK: (SETH, CC_STATE),
    packet.NACK: (NETH,),
    packet.PROBE: (PETH,),
}
