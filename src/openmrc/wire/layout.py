"""Every header of a frame, field by field, as data: the one place where layouts are written down.

The codecs take their offsets from here; scapy layers, the Wireshark dissector and the tables and
diagrams of the documentation are made from it or compared with it. Bits count from the first bit on
the wire, most significant first, as in the diagrams of RFCs. Field names follow the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openmrc.engine import packet

RESERVED = "reserved"  # a field of this name is sent as zero and ignored on receipt
NO_NAMES: dict[int, str] = {}


@dataclass(frozen=True)
class Field:
    """One field: its width, what it says, and names for values that have one.

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
    source: str  # where it is defined
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


def _reserved(bits: int) -> Field:
    return Field(RESERVED, bits)


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
CC_TYPE_NACK = 0x2  # MRC 2.8
PKEY_DEFAULT = 0xFFFF
PAYLOAD_BYTES_MAX = 8192  # row 20: the largest PMTU

# MRC 2.13 fixes the names; the values are a fabric's own. These are the defaults.
DSCP_NO_TRIM, DSCP_TRIMMABLE, DSCP_TRIMMABLE_RETX = 0, 4, 8
DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, DSCP_CONTROL = 12, 16, 46
DSCPS = {
    DSCP_NO_TRIM: "NO_TRIM",
    DSCP_TRIMMABLE: "TRIMMABLE",
    DSCP_TRIMMABLE_RETX: "TRIMMABLE_RETX",
    DSCP_TRIMMED: "TRIMMED",
    DSCP_TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
    DSCP_CONTROL: "CONTROL",
}
ECN_NOT_ECT, ECN_ECT1, ECN_ECT0, ECN_CE = 0, 1, 2, 3
ECNS = {ECN_NOT_ECT: "Not-ECT", ECN_ECT1: "ECT(1)", ECN_ECT0: "ECT(0)", ECN_CE: "CE"}

_DSCP = Field("dscp", 6, "traffic class of the packet, and whether it was trimmed", names=DSCPS)
_ECN = Field("ecn", 2, "explicit congestion notification", names=ECNS)
_TIMESTAMP = Field("tx_timestamp", 16, "when it was sent, units of 128 ns")
_TSR = Field("tsr", 1, "1: the unit of tx_timestamp is the implementation's own")
_FTYPE = Field("ftype", 4, "1: a time stamp", names={FTYPE_TIMESTAMP: "TIMESTAMP"})
_SPDCID = Field("spdcid", 16, "low 16 bits of the sender's QPN; ignored")
_DPDCID = Field("dpdcid", 16, "low 16 bits of the receiver's QPN; ignored")
_ENTROPY = Field("entropy", 32, "EV of the packet that this one answers")
_TYPE, _NXT = Field("type", 4, "of UET; reserved"), Field("nxt", 5, "of UET; reserved")
_VENDOR = Field("vendor", 8, "the implementation's own")
_CC_FLAGS = Field("cc_flags", 4, "of the congestion control; reserved")

ETHERNET = Header(
    "Ethernet",
    "Ethernet II",
    "IEEE 802.3",
    (
        Field("dst_mac", 48, "station address"),
        Field("src_mac", 48, "station address"),
        Field("ethertype", 16, "what follows", names=ETHERTYPES),
    ),
)
IPV6 = Header(
    "IPv6",
    "IPv6; the outer one's destination is a carrier of uSIDs",
    "RFC 8200, MRC 2.1, 2.12",
    (
        Field("version", 4, "6"),
        _DSCP,
        _ECN,
        Field("flow_label", 20, "low 16 bits: one half of the EV"),
        Field("payload_length", 16, "bytes behind this header"),
        Field("next_header", 8, "what follows", names=PROTOCOLS),
        Field("hop_limit", 8, "hops left"),
        Field("src", 128, "address of the sending NIC's port"),
        Field("dst", 128, "address of the receiving NIC's port, or the carrier"),
    ),
)
IPV4 = Header(
    "IPv4",
    "IPv4, where there is no SRv6",
    "RFC 791",
    (
        Field("version", 4, "4"),
        Field("ihl", 4, "length in units of 4 B: 5"),
        _DSCP,
        _ECN,
        Field("total_length", 16, "bytes from the first of this header on"),
        Field("identification", 16, "of fragments; 0"),
        Field("ip_flags", 3, "2: do not fragment"),
        Field("fragment_offset", 13, "0: fragments are refused"),
        Field("ttl", 8, "hops left"),
        Field("protocol", 8, "what follows", names=PROTOCOLS),
        Field("header_checksum", 16, "of this header"),
        Field("src", 32, "address of the sending NIC's port"),
        Field("dst", 32, "address of the receiving NIC's port"),
    ),
)
SRH = Header(
    "SRH",
    "Segment routing header with one segment",
    "RFC 8754, MRC 2.12",
    (
        Field("next_header", 8, "what follows", names=PROTOCOLS),
        Field("hdr_ext_len", 8, "length in units of 8 B, without the first 8: 2"),
        Field("routing_type", 8, "4: segment routing", names={ROUTING_SEGMENT: "SRH"}),
        Field("segments_left", 8, "0: the destination is the last carrier; 1: the segment follows"),
        Field("last_entry", 8, "index of the last segment: 0"),
        Field("srh_flags", 8, "0"),
        Field("tag", 16, "0"),
        Field("segment", 128, "carrier of further uSIDs, or a copy of the first for debugging"),
    ),
)
UDP = Header(
    "UDP",
    "UDP",
    "RFC 768, MRC 2.2",
    (
        Field("src_port", 16, "one half of the EV"),
        Field("dst_port", 16, "4791; 4971 is accepted too"),
        Field("length", 16, "bytes from the first of this header on"),
        Field("checksum", 16, "0: none, the iCRC protects the packet"),
    ),
)
BTH = Header(
    "BTH",
    "Base transport header",
    "IBTA 9.2, MRC 2.4",
    (
        Field("opcode", 8, "what this packet is", names=OPCODES),
        Field("se", 1, "solicited event"),
        Field("m", 1, "migration state of InfiniBand"),
        Field("pad", 2, "bytes of padding behind the payload"),
        Field("tver", 4, "transport version: 0"),
        Field("pkey", 16, "partition"),
        _reserved(8),
        Field("dest_qpn", 24, "QP that it is for; 2: the endpoint"),
        Field("a", 1, "acknowledge request: answer with a SACK at once"),
        Field("r", 1, "of InfiniBand; 0"),
        Field("rtx", 1, "a retransmission"),
        Field("ts", 1, "a TSETH follows"),
        _reserved(4),
        Field("psn", 24, "sequence number of the packet; request id of endpoint operations"),
    ),
)
METH = Header(
    "METH",
    "Message header",
    "MRC 2.5",
    (
        Field("rqmsn", 16, "number of the immediate that the message carries or follows"),
        Field("msn", 16, "number of the message"),
    ),
)
TSETH = Header("TSETH", "Time stamp header", "MRC 2.5", (_TIMESTAMP, _TSR, _reserved(11), _FTYPE))
RETH = Header(
    "RETH",
    "RDMA header",
    "IBTA 9.3.3, MRC 1.4",
    (
        Field("va", 64, "address at which this packet's payload goes"),
        Field("rkey", 32, "key of the memory region"),
        Field("dma_length", 32, "bytes of the whole message"),
    ),
)
IMMDT = Header("ImmDt", "Immediate data", "IBTA 9.3.6", (Field("imm", 32, "immediate data"),))
AETH = Header(
    "AETH",
    "Acknowledgement header",
    "IBTA 9.3.5, MRC 1.2",
    (
        Field("syndrome", 8, "acknowledged, or why not", names=SYNDROMES),
        Field("msn", 24, "messages completed"),
    ),
)
SETH = Header(
    "SETH",
    "Selective acknowledgement header",
    "MRC 2.6",
    (
        _TYPE,
        _NXT,
        Field("m", 2, "what to do with the path of the packet answered", names=SKIPS),
        _reserved(3),
        Field("pr", 1, "answers a probe: ack_psn_offset is its probe_id"),
        _reserved(1),
        Field("ack_psn_offset", 16, "PSN that triggered this SACK - cack_psn", signed=True),
        _ENTROPY,
        _SPDCID,
        _DPDCID,
        _reserved(8),
        Field("cack_psn", 24, "all up to this one are received"),
        Field("cc_type", 4, "congestion control"),
        _CC_FLAGS,
        Field("mpr", 8, "window in units of 128 PSNs; 0: not dynamic"),
        Field("sack_offset", 16, "first PSN of the bitmap - cack_psn", signed=True),
        Field("sack_bitmap", 64, "bit i: that PSN + i is received"),
    ),
)
CC_STATE = Header(
    "CC_STATE",
    "Congestion control state",
    "MRC 2.7",
    (
        Field("tx_timestamp", 16, "tx_timestamp of the packet answered"),
        _reserved(1),
        Field("ooo_count", 15, "packets received beyond a gap"),
        Field("restore_cwnd", 1, "undo a cut"),
        Field("rcv_cwnd_pen", 7, "what the receiver asks the window to give up, 1/128"),
        Field("rcvd_bytes", 24, "bytes received in all, units of 256 B"),
    ),
)
NETH = Header(
    "NETH",
    "Negative acknowledgement header",
    "MRC 2.8",
    (
        _TYPE,
        _NXT,
        _reserved(7),
        Field("nack_reason", 8, "why", names=NACK_REASONS),
        _VENDOR,
        _ENTROPY,
        _SPDCID,
        _DPDCID,
        _reserved(8),
        Field("nack_psn", 24, "the packet refused"),
        Field("cc_type", 4, "congestion control: 2"),
        _CC_FLAGS,
        _reserved(8),
        Field("tx_timestamp", 16, "tx_timestamp of the packet refused"),
    ),
)
PETH = Header(
    "PETH",
    "Reliability probe header",
    "MRC 2.9",
    (
        _reserved(24),
        _VENDOR,
        Field("probe_id", 16, "returned in the answer"),
        _reserved(16),
        _SPDCID,
        _DPDCID,
        _TIMESTAMP,
        _TSR,
        _reserved(11),
        _FTYPE,
    ),
)
ERTH = Header(
    "ERTH",
    "Endpoint request header",
    "MRC 2.10",
    (
        _TYPE,
        _NXT,
        _reserved(5),
        Field("op", 2, "operation", names=ENDPOINT_OPS),
        _reserved(8),
        _VENDOR,
        Field("port_status_mask", 32, "bit p: port p can be reached"),
        _reserved(32),
        _TIMESTAMP,
        _TSR,
        _reserved(11),
        _FTYPE,
    ),
)
EETH = Header(
    "EETH",
    "Endpoint response header",
    "MRC 2.10, row 4",
    (
        _TYPE,
        _reserved(6),
        Field("op", 2, "operation answered", names=ENDPOINT_OPS),
        Field("op_alternative", 2, "where others write it; read if op is 0", names=ENDPOINT_OPS),
        _reserved(2),
        _reserved(208),
        Field("tx_timestamp", 16, "tx_timestamp of the request"),
        _reserved(48),
    ),
)
ICRC = Header("iCRC", "Invariant CRC", "IBTA A17.3", (Field("icrc", 32, "little-endian"),))

HEADERS = (
    ETHERNET,
    IPV6,
    IPV4,
    SRH,
    UDP,
    BTH,
    METH,
    TSETH,
    RETH,
    IMMDT,
    AETH,
    SETH,
    CC_STATE,
    NETH,
    PETH,
    ERTH,
    EETH,
    ICRC,
)

_DATA = (METH, TSETH, RETH)
EXTENSIONS: dict[int, tuple[Header, ...]] = {
    # MRC 2.3: what follows the BTH; the TSETH of data packets only where BTH.ts is set
    packet.WRITE_FIRST: _DATA,
    packet.WRITE_MIDDLE: _DATA,
    packet.WRITE_LAST: _DATA,
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
