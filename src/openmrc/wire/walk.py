"""A frame, header by header, as `layout` describes it: the plain reader that `wire.view` uses.

`wire.codec` does the same compiled. The two were written independently, make the same checks in the
same order (`codec` has the table), and tests compare them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK_BITS, USID_BITS
from openmrc.wire import frame, layout
from openmrc.wire.frame import WireError

OUTER = "outer IPv6"  # the name of the first of two IPv6 headers


@dataclass(frozen=True)
class HeaderView:
    """One header of a frame: its fields, and the byte at which it begins.

    `name` is the layout's, or "outer IPv6" for the first of two. `fields` holds every field but the
    reserved ones, by the layout's names; `reserved` is true if any reserved bit is set.
    """

    name: str
    header: layout.Header
    offset: int
    fields: dict[str, int]
    reserved: bool

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    def at(self, field: str) -> int:
        """Return the offset in the frame of the byte in which a field begins."""
        return self.offset + self.header.byte(field)


@dataclass(frozen=True)
class Walk:
    """The result of a walk: all headers up to the payload, and the innermost of three kinds.

    Offsets and lengths in bytes. The payload is without padding, and 0 bytes long if `trimmed`; the
    iCRC, which a trimmed packet lacks, is the last four bytes before `ip_end`.
    """

    headers: tuple[HeaderView, ...]
    ip: HeaderView
    udp: HeaderView
    bth: HeaderView
    payload_at: int
    payload_length: int
    ip_end: int
    trimmed: bool


@dataclass(frozen=True)
class Part:
    """The readable part of a frame that is truncated, or wrong after its UDP header.

    `headers` are the complete ones, up to the first that is not; `missing` those from there on that
    the opcode requires. `payload_length` is the number of bytes that the lengths leave for a
    payload, 0 if they leave no valid one.
    """

    headers: tuple[HeaderView, ...]
    missing: tuple[layout.Header, ...]
    payload_length: int
    trimmed: bool

    @property
    def has_bth(self) -> bool:
        """Whether the BTH is there."""
        return any(view.name == layout.BTH.name for view in self.headers)

    def header(self, *wanted: layout.Header) -> HeaderView | None:
        """Return the innermost header that is one of these."""
        return next((view for view in reversed(self.headers) if view.header in wanted), None)


def walk(data: bytes, length: int, dscps: Dscps = DEFAULT) -> Walk:
    """Read the headers of a frame of `length` bytes, of which `data` is all or the beginning.

    Raises `WireError` for every error except a wrong iCRC.
    """
    cursor = Cursor(data, length)
    ip = read_ip(cursor)
    ip_end = cursor.end
    trimmed = any(view.fields.get("dscp") in dscps.trims for view in cursor.headers)
    udp = read_udp(cursor)
    if not trimmed:
        cursor.end -= layout.ICRC.size_bytes
    bth = _transport(cursor, trimmed)
    payload_length = 0 if trimmed else _payload(cursor, bth)
    headers = tuple(cursor.headers)
    return Walk(headers, ip, udp, bth, cursor.at, payload_length, ip_end, trimmed)


def walk_part(
    data: bytes,
    length: int,
    dscps: Dscps | None = DEFAULT,
    bth_header: layout.Header = layout.BTH,
    extensions: Mapping[int, tuple[layout.Header, ...]] = layout.EXTENSIONS,
) -> Part:
    """Read the headers of a frame that `walk` refuses, as far as they are present.

    An error before the BTH ends the walk; wrong fields in the BTH and its extension headers do not.
    The BTH and what follows it, by opcode, are those of MRC unless given. Without `dscps` no packet
    is a trimmed one.
    """
    cursor = Cursor(data, length)
    trims = () if dscps is None else dscps.trims
    trimmed = False
    try:
        read_ip(cursor)
        trimmed = any(view.fields.get("dscp") in trims for view in cursor.headers)
        read_udp(cursor)
    except WireError:
        return Part(tuple(cursor.headers), (), 0, trimmed)
    if not trimmed:
        cursor.end -= layout.ICRC.size_bytes
    try:
        bth = cursor.take(bth_header)
    except WireError:
        return Part(tuple(cursor.headers), (bth_header,), 0, trimmed)
    missing = _take_extensions(cursor, bth, trimmed, extensions.get(bth["opcode"], ()))
    room, pad = cursor.end - cursor.at, bth["pad"]
    is_right = not trimmed and room % 4 == 0 and room >= pad
    return Part(tuple(cursor.headers), missing, room - pad if is_right else 0, trimmed)


def _take_extensions(
    cursor: Cursor, bth: HeaderView, trimmed: bool, headers: tuple[layout.Header, ...]
) -> tuple[layout.Header, ...]:
    """Read the extension headers up to the first incomplete one; return that one and the rest.

    The cursor is then after all of them, which may be beyond its end.
    """
    missing: list[layout.Header] = []
    for header in headers:
        if header is layout.TSETH and not bth["ts"]:
            continue
        if header is layout.IMMDT and trimmed and not cursor.fits(header):
            continue
        try:
            if not missing:
                cursor.take(header)
                continue
        except WireError:
            pass
        missing.append(header)
        cursor.at += header.size_bytes
    return tuple(missing)


def read(header: layout.Header, data: bytes, offset: int) -> HeaderView:
    """Read the header at `offset`, which must be complete."""
    told = data[offset : offset + header.size_bytes]
    bits = int.from_bytes(told, "little" if header is layout.ICRC else "big")
    left = header.size_bytes * 8
    fields: dict[str, int] = {}
    reserved = 0
    for field in header.fields:
        left -= field.bits
        value = bits >> left & (1 << field.bits) - 1
        if field.name == layout.RESERVED:
            reserved |= value
        elif field.signed and value >> field.bits - 1:
            fields[field.name] = value - (1 << field.bits)
        else:
            fields[field.name] = value
    return HeaderView(header.name, header, offset, fields, bool(reserved))


def invariant_crc(data: bytes, found: Walk) -> int:
    """Return the correct iCRC of a frame: Ethernet's CRC over eight bytes of ones and the packet,
    with ones in all fields that may change in transit (IBTA A17.3).
    """
    ip, udp, bth = found.ip, found.udp, found.bth
    masked = bytearray(data[: found.ip_end - layout.ICRC.size_bytes])
    if ip.header is layout.IPV6:
        first = int.from_bytes(masked[ip.offset : ip.offset + 4], "big")
        changing = (1 << 28) - 1  # all after the version: traffic class and flow label
        masked[ip.offset : ip.offset + 4] = (first | changing).to_bytes(4, "big")
        ones = [ip.at("hop_limit")]
    else:
        checksum = ip.at("header_checksum")
        ones = [ip.at("dscp"), ip.at("ttl"), checksum, checksum + 1]
    checksum, reserved = udp.at("checksum"), bth.at("dest_qpn") - 1
    for at in (*ones, checksum, checksum + 1, reserved):
        masked[at] = 0xFF
    return zlib.crc32(masked[ip.offset :], zlib.crc32(b"\xff" * 8))


class Cursor:
    """The position of the walk in a frame, the end of the part that it may read, and the headers
    read so far.
    """

    def __init__(self, data: bytes, length: int) -> None:
        self.data = data
        self.at = 0
        self.end = length
        self.headers: list[HeaderView] = []

    def fits(self, header: layout.Header) -> bool:
        """Whether there is room for a header before the end."""
        return self.at + header.size_bytes <= self.end

    def take(self, header: layout.Header, code: int = frame.TOO_SHORT) -> HeaderView:
        """Read a header; `code` is the error if it does not fit before the end."""
        if not self.fits(header):
            raise WireError(code, self.at)
        if self.at + header.size_bytes > len(self.data):
            raise WireError(frame.TOO_SHORT, self.at)
        view = read(header, self.data, self.at)
        self.headers.append(view)
        self.at += header.size_bytes
        return view


def _require(holds: bool, code: int, view: HeaderView, field: str) -> None:
    if not holds:
        raise WireError(code, view.at(field))


def read_ip(cursor: Cursor) -> HeaderView:
    """Read up to the innermost IP header, and return that; the cursor's end becomes its packet's
    end.
    """
    ethernet = cursor.take(layout.ETHERNET)
    ethertype = ethernet["ethertype"]
    _require(ethertype in layout.ETHERTYPES, frame.ETHERTYPE, ethernet, "ethertype")
    if ethertype == layout.ETHERTYPE_IPV4:
        return _ipv4(cursor)
    first = _ipv6(cursor)
    end = cursor.at + first["payload_length"]
    _require(end <= cursor.end, frame.IP_LENGTH, first, "payload_length")
    cursor.end = end
    following = first["next_header"]
    _require(following in layout.PROTOCOLS, frame.NEXT_HEADER, first, "next_header")
    if following == layout.PROTOCOL_UDP:
        return first
    cursor.headers[-1] = replace(first, name=OUTER)
    front = first["dst"] >> ADDRESS_BITS - BLOCK_BITS - USID_BITS & (1 << USID_BITS) - 1
    _require(front != 0, frame.CARRIER_EMPTY, first, "dst")
    if following == layout.PROTOCOL_ROUTING:
        _srh(cursor)
    inner = _ipv6(cursor)
    end = cursor.at + inner["payload_length"]
    _require(end == cursor.end, frame.IP_LENGTH, inner, "payload_length")
    udp_follows = inner["next_header"] == layout.PROTOCOL_UDP
    _require(udp_follows, frame.NEXT_HEADER, inner, "next_header")
    return inner


def _ipv6(cursor: Cursor) -> HeaderView:
    view = cursor.take(layout.IPV6)
    _require(view["version"] == 6, frame.IP_VERSION, view, "version")
    return view


def _srh(cursor: Cursor) -> None:
    view = cursor.take(layout.SRH)
    _require(view["next_header"] == layout.PROTOCOL_IPV6, frame.NEXT_HEADER, view, "next_header")
    routing = layout.ROUTING_SEGMENT
    for field, least, most in (
        ("hdr_ext_len", 2, 2),
        ("routing_type", routing, routing),
        ("segments_left", 0, 1),
        ("last_entry", 0, 0),
    ):
        _require(least <= view[field] <= most, frame.ROUTING, view, field)


def _ipv4(cursor: Cursor) -> HeaderView:
    view = cursor.take(layout.IPV4)
    size, total = layout.IPV4.size_bytes, view["total_length"]
    _require(view["version"] == 4, frame.IP_VERSION, view, "version")
    _require(view["ihl"] * 4 == size, frame.IP_HEADER_LENGTH, view, "ihl")
    fits = size <= total <= cursor.end - view.offset
    _require(fits, frame.IP_LENGTH, view, "total_length")
    more_fragments = view["ip_flags"] & 1
    whole = not more_fragments and view["fragment_offset"] == 0
    _require(whole, frame.FRAGMENT, view, "ip_flags")
    _require(view["protocol"] == layout.PROTOCOL_UDP, frame.NEXT_HEADER, view, "protocol")
    # RFC 1071: a header with a correct checksum sums up to ones
    words = int.from_bytes(cursor.data[view.offset : cursor.at], "big")
    _require(words % 0xFFFF == 0, frame.IP_CHECKSUM, view, "header_checksum")
    cursor.end = view.offset + total
    return view


def read_udp(cursor: Cursor) -> HeaderView:
    """Read the UDP header."""
    view = cursor.take(layout.UDP)
    ports = (layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE)
    _require(view["dst_port"] in ports, frame.UDP_PORT, view, "dst_port")
    _require(view["length"] == cursor.end - view.offset, frame.UDP_LENGTH, view, "length")
    return view


def _transport(cursor: Cursor, trimmed: bool) -> HeaderView:
    """Read the BTH and the headers that its opcode requires; return the BTH."""
    bth = cursor.take(layout.BTH)
    _require(bth["opcode"] in layout.EXTENSIONS, frame.OPCODE, bth, "opcode")
    _require(bth["tver"] == 0, frame.TRANSPORT_VERSION, bth, "tver")
    for header in layout.EXTENSIONS[bth["opcode"]]:
        if header is layout.TSETH and not bth["ts"]:
            continue
        if header is layout.IMMDT and trimmed and not cursor.fits(header):
            continue
        view = cursor.take(header, frame.EXTENSION_LENGTH)
        if "ftype" in view.fields:
            _require(view["ftype"] in header.field("ftype").names, frame.FTYPE, view, "ftype")
    return bth


def _payload(cursor: Cursor, bth: HeaderView) -> int:
    """Return the number of bytes between the headers and the iCRC, without padding."""
    padded, pad = cursor.end - cursor.at, bth["pad"]
    _require(padded % 4 == 0 and padded >= pad, frame.PAD, bth, "pad")
    carries_data = layout.RETH in layout.EXTENSIONS[bth["opcode"]]
    if padded - pad > (layout.PAYLOAD_BYTES_MAX if carries_data else 0):
        raise WireError(frame.PAYLOAD_LENGTH, cursor.at)
    return padded - pad
