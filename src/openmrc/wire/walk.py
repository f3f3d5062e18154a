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
    iCRC, which a trimmed packet lacks, is the last four bytes before `ip_end`. `kept` are the
    headers of a trimmed packet whose length is still that of the whole.
    """

    headers: tuple[HeaderView, ...]
    ip: HeaderView
    udp: HeaderView
    bth: HeaderView
    payload_at: int
    payload_length: int
    ip_end: int
    trimmed: bool
    kept: tuple[str, ...] = ()

    @property
    def trim_lengths(self) -> str | None:
        """Which lengths of a trimmed packet were adjusted: one of `frame.TRIM_LENGTHS_FOUND`;
        None for other packets.
        """
        return _adjusted(self.headers, self.kept) if self.trimmed else None


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
    kept: tuple[str, ...] = ()

    @property
    def trim_lengths(self) -> str | None:
        """As `Walk.trim_lengths`."""
        return _adjusted(self.headers, self.kept) if self.trimmed else None

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
    trimmed = is_trimmed(data, dscps)
    cursor = Cursor(data, length, trimmed)
    ip = read_ip(cursor)
    ip_end = cursor.end
    udp = read_udp(cursor)
    if not trimmed:
        cursor.end -= layout.ICRC.size_bytes
    bth = _transport(cursor, trimmed)
    payload_length = 0 if trimmed else _payload(cursor, bth)
    headers = tuple(cursor.headers)
    kept = tuple(cursor.kept)
    return Walk(headers, ip, udp, bth, cursor.at, payload_length, ip_end, trimmed, kept)


def _adjusted(headers: tuple[HeaderView, ...], kept: tuple[str, ...]) -> str:
    lengths = [*(v.name for v in headers if "dscp" in v.fields), layout.UDP.name]
    every: tuple[list[str], ...] = ([], lengths[1:], lengths)
    names = zip(frame.TRIM_LENGTHS_FOUND, every, strict=False)
    return next((name for name, those in names if [*kept] == those), "some")


def is_trimmed(data: bytes, dscps: Dscps) -> bool:
    """Return whether the first IP header of a frame marks it as trimmed, or the inner one does."""
    front = layout.ETHERNET.size_bytes
    if int.from_bytes(data[front - 2 : front], "big") == layout.ETHERTYPE_IPV4:
        return len(data) > front + 1 and data[front + 1] >> 2 in dscps.trims
    behind = front + layout.IPV6.size_bytes
    following = data[front + layout.IPV6.byte("next_header")] if len(data) >= behind else None
    if following == layout.PROTOCOL_ROUTING:
        behind += layout.SRH.size_bytes
    has_inner = following in (layout.PROTOCOL_IPV6, layout.PROTOCOL_ROUTING)
    ips = (front, behind) if has_inner else (front,)
    firsts = (int.from_bytes(data[at : at + 2], "big") for at in ips if at + 2 <= len(data))
    return any(first >> 6 & 0x3F in dscps.trims for first in firsts)


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
    trimmed = dscps is not None and is_trimmed(data, dscps)
    cursor = Cursor(data, length, trimmed)
    try:
        read_ip(cursor)
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
    payload_length = room - pad if is_right else 0
    return Part(tuple(cursor.headers), missing, payload_length, trimmed, tuple(cursor.kept))


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

    Switches that trim adjust all lengths, or only that of the first IP header, or none: a `trimmed`
    packet may claim more than is there. `kept` are the headers that do.
    """

    def __init__(self, data: bytes, length: int, trimmed: bool = False) -> None:
        self.data = data
        self.at = 0
        self.end = length
        self.headers: list[HeaderView] = []
        self.kept: list[str] = []
        self._trimmed = trimmed

    def claim(
        self, view: HeaderView, field: str, end: int, code: int, exactly: bool = False
    ) -> None:
        """Take the end of the packet that a header's length gives; `code` is the error if that is
        beyond the end so far, or, where it must be `exactly` that, before it.
        """
        if self._trimmed and end > self.end:
            self.kept.append(view.name)
            return
        _require(end == self.end if exactly else end <= self.end, code, view, field)
        self.end = end

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
    following = first["next_header"]
    if following in (layout.PROTOCOL_IPV6, layout.PROTOCOL_ROUTING):
        first = cursor.headers[-1] = replace(first, name=OUTER)
    end = cursor.at + first["payload_length"]
    cursor.claim(first, "payload_length", end, frame.IP_LENGTH)
    _require(following in layout.PROTOCOLS, frame.NEXT_HEADER, first, "next_header")
    if following == layout.PROTOCOL_UDP:
        return first
    front = first["dst"] >> ADDRESS_BITS - BLOCK_BITS - USID_BITS & (1 << USID_BITS) - 1
    _require(front != 0, frame.CARRIER_EMPTY, first, "dst")
    if following == layout.PROTOCOL_ROUTING:
        _srh(cursor)
    inner = _ipv6(cursor)
    end = cursor.at + inner["payload_length"]
    cursor.claim(inner, "payload_length", end, frame.IP_LENGTH, exactly=True)
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
    _require(size <= total, frame.IP_LENGTH, view, "total_length")
    cursor.claim(view, "total_length", view.offset + total, frame.IP_LENGTH)
    more_fragments = view["ip_flags"] & 1
    whole = not more_fragments and view["fragment_offset"] == 0
    _require(whole, frame.FRAGMENT, view, "ip_flags")
    _require(view["protocol"] == layout.PROTOCOL_UDP, frame.NEXT_HEADER, view, "protocol")
    # RFC 1071: a header with a correct checksum sums up to ones
    words = int.from_bytes(cursor.data[view.offset : cursor.at], "big")
    _require(words % 0xFFFF == 0, frame.IP_CHECKSUM, view, "header_checksum")
    return view


def read_udp(cursor: Cursor) -> HeaderView:
    """Read the UDP header."""
    view = cursor.take(layout.UDP)
    ports = (layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE)
    _require(view["dst_port"] in ports, frame.UDP_PORT, view, "dst_port")
    end = view.offset + view["length"]
    cursor.claim(view, "length", end, frame.UDP_LENGTH, exactly=True)
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
