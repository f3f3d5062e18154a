"""From stated values to bytes: how the vectors are made, without any of the project's codecs.

Every value is stated in `cases` or here; lengths and checksums are computed here; only the places
and widths of fields come from `openmrc.wire.layout`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import layout
from openmrc.wire.layout import Header

Values = dict[str, int]

EV = 0x0123_4567
SRC_MAC, DST_MAC = 0x0200_0000_0001, 0x0200_0000_0002
SRC6 = 0xFD00_0000_0000_0000_0000_0000_0000_0107
DST6 = 0xFD00_0000_0000_0000_0000_0000_0000_0209
SRC4, DST4 = 0x0A00_0107, 0x0A00_0209
CARRIER = 0x2001_0DB8_4000_2003_4002_1009_0000_0000  # T0, T1, T0, NIC behind the block
SEGMENT = 0x2001_0DB8_4002_1009_0000_0000_0000_0000

# which IP headers there are
OUTER = ("outer IPv6", layout.IPV6)
INNER = ("IPv6", layout.IPV6)
SRV6 = (OUTER, INNER)
SRV6_SRH = (OUTER, ("SRH", layout.SRH), INNER)
PLAIN = (INNER,)
IPV4 = (("IPv4", layout.IPV4),)


@dataclass(frozen=True)
class Part:
    """One header: what it is called in the frame, and its values; what is missing is zero."""

    name: str
    header: Header
    values: Values


@dataclass(frozen=True)
class Message:
    """What stands behind the UDP header, and how the network shall treat it."""

    parts: tuple[Part, ...]
    payload: bytes
    dscp: int
    ecn: int


@dataclass(frozen=True)
class Vector:
    """One vector, before it is bytes.

    `change` sets fields ("UDP.length"; "SETH.reserved" for all reserved bits of a header) after
    everything else is chosen and before checksums are computed. `cut` is the number of bytes that
    are left of the IP packet, which then has no iCRC; `kept` are headers whose length is still that
    of the whole packet; `keep` the number that are left of the frame;
    `behind` follows the frame. `switched_from` names the frame that the uN switch `at_usid` turns
    into this one, by its link `link_usid` (uA) if that is not 0. `dscps` is the fabric's table.
    `refused` is the code with which a decoder stops, and where: at a field, a header or the
    "payload".
    """

    name: str
    shows: str
    message: Message
    path: tuple[tuple[str, Header], ...] = SRV6
    ev: int = EV
    ev_swapped: bool = False
    change: dict[str, int] = field(default_factory=dict)
    cut: int | None = None
    kept: tuple[str, ...] = ()
    keep: int | None = None
    behind: bytes = b""
    canonical: bool = True
    trimmed_from: str = ""
    switched_from: str = ""
    at_usid: int = 0
    link_usid: int = 0
    refused: tuple[str, str] | None = None
    dscps: Dscps = DEFAULT

    @property
    def trim_lengths(self) -> str:
        """The switch's choice of `TRIM_LENGTHS` where it does not adjust all lengths, else ""."""
        if not self.kept:
            return ""
        return "none" if self.path[0][0] in self.kept else "outer"


@dataclass(frozen=True)
class Frame:
    """The bytes of a vector, its headers with all their values, and where each begins."""

    data: bytes
    parts: tuple[Part, ...]
    offsets: dict[str, int]


def build(v: Vector) -> Frame:
    """Return the frame of a vector."""
    parts = _headers(v)
    offsets, at = {}, 0
    for p in parts:
        offsets[p.name] = at
        at += p.header.size_bytes
    offsets["payload"] = at
    for place, value in v.change.items():
        name, _, key = place.partition(".")
        if name != "iCRC":
            next(p for p in parts if p.name == name).values[key] = value
    padded = v.message.payload + bytes(-len(v.message.payload) % 4)
    end = at + len(padded)
    offsets["iCRC"] = end
    whole = end + 4
    end = whole if v.cut is None else min(end, offsets[v.path[0][0]] + v.cut)
    for p in parts:
        _complete(p, (whole if p.name in v.kept else end) - offsets[p.name])
    data = b"".join(pack(p.header, p.values) for p in parts) + padded
    if v.cut is None:
        right = invariant_crc(data[offsets[v.path[-1][0]] :])
        icrc = v.change.get("iCRC.icrc", right)
        data += icrc.to_bytes(4, "little")
        parts.append(Part("iCRC", layout.ICRC, {"icrc": icrc}))
    there = tuple(p for p in parts if offsets[p.name] + p.header.size_bytes <= end)
    return Frame((data[:end] + v.behind)[: v.keep], there, offsets)


def _headers(v: Vector) -> list[Part]:
    """Return every header up to the payload, values chosen, lengths still missing."""
    low, high = v.ev & 0xFFFF, v.ev >> 16
    port, label = (high, low) if v.ev_swapped else (low, high)
    ethertype = 0x0800 if v.path == IPV4 else 0x86DD
    macs = {"dst_mac": DST_MAC, "src_mac": SRC_MAC}
    parts = [Part("Ethernet", layout.ETHERNET, {**macs, "ethertype": ethertype})]
    behind = [{"IPv6": 41, "SRH": 43}[name] for name, _ in v.path[1:]] + [17]
    marks = {"dscp": v.message.dscp, "ecn": v.message.ecn}
    for (name, header), following in zip(v.path, behind, strict=True):
        if header is layout.SRH:
            values = {"next_header": following, "hdr_ext_len": 2, "routing_type": 4}
            values |= {"segments_left": 1, "segment": SEGMENT}
        elif header is layout.IPV4:
            values = {"version": 4, "ihl": 5, "ip_flags": 2, "ttl": 64, "protocol": following}
            values |= {**marks, "src": SRC4, "dst": DST4}
        else:
            values = {"version": 6, "flow_label": label, "next_header": following, "hop_limit": 64}
            values |= {**marks, "src": SRC6, "dst": CARRIER if name == OUTER[0] else DST6}
        parts.append(Part(name, header, values))
    parts.append(Part("UDP", layout.UDP, {"src_port": port, "dst_port": 4791}))
    return parts + [Part(p.name, p.header, dict(p.values)) for p in v.message.parts]


def _complete(p: Part, left: int) -> None:
    """Fill in lengths and checksums that nobody chose; `left` bytes of the IP packet are left from
    this header on.
    """
    if p.header is layout.IPV6:
        p.values.setdefault("payload_length", left - 40)
    elif p.header is layout.IPV4:
        p.values.setdefault("total_length", left)
        p.values.setdefault("header_checksum", internet_checksum(pack(p.header, p.values)))
    elif p.header is layout.UDP:
        p.values.setdefault("length", left)


def pack(header: Header, values: Values) -> bytes:
    """Return the bytes of a header; fields that are not in `values` are zero."""
    bits = 0
    for f in header.fields:
        bits = bits << f.bits | values.get(f.name, 0) & (1 << f.bits) - 1
    return bits.to_bytes(header.size_bytes, "big")


def internet_checksum(header: bytes) -> int:
    """Return the IPv4 header checksum (RFC 1071) of a header whose checksum field is zero."""
    total = sum(header[i] << 8 | header[i + 1] for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def invariant_crc(inner: bytes) -> int:
    """Return the iCRC of RoCEv2 over a packet, inner IP header to the last byte before it."""
    b = bytearray(inner)
    if b[0] >> 4 == 6:
        b[0] |= 0x0F  # traffic class, flow label
        b[1] = b[2] = b[3] = 0xFF
        b[7] = 0xFF  # hop limit
        udp = 40
    else:
        b[1] = b[8] = b[10] = b[11] = 0xFF  # type of service, time to live, header checksum
        udp = 20
    b[udp + 6] = b[udp + 7] = 0xFF  # UDP checksum
    b[udp + 8 + 4] = 0xFF  # reserved byte of the BTH
    return zlib.crc32(b"\xff" * 8 + b)
