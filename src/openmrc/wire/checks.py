"""The checks of `codec`, compiled: from the Ethernet header to the end of the payload.

`codec` has the table of checks. Each function returns a code of `frame`, and where the frame is
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from openmrc.jit import inlined, inner
from openmrc.wire import frame, layout
from openmrc.wire.classes import is_trimmed
from openmrc.wire.icrc import get_icrc, icrc
from openmrc.wire.words import BTH, ETHERNET, IPV4, IPV6, SRH, TSETH, UDP, get, word

IP = ETHERNET.size_bytes  # where the first IP header begins
USID = 4  # bytes of a carrier before its first uSID (MRC 2.12)

_MORE_FRAGMENTS = 1  # of ip_flags
_STEPS = 4  # the largest number of extension headers in a packet


def _extensions(of: Callable[[layout.Header], int]) -> Any:
    """Shape (2, 256, 4): `of` each extension header by BTH.ts, opcode and place, else 0."""
    table = np.zeros((2, 256, _STEPS), np.int64)
    for opcode, headers in layout.EXTENSIONS.items():
        for ts in (0, 1):
            present = [h for h in headers if ts or h is not layout.TSETH]
            table[ts, opcode, : len(present)] = [of(h) for h in present]
    return table


def _ftype_byte(header: layout.Header) -> int:
    return header.byte("ftype") if any(f.name == "ftype" for f in header.fields) else 0


_BYTES = _extensions(lambda h: h.size_bytes)
_FTYPE = _extensions(_ftype_byte)  # offset of the byte that holds it; 0: there is none
_SPARED = _extensions(lambda h: int(h is layout.IMMDT))  # trimming may remove it
_UNSTAMPED = _extensions(lambda h: int(h is layout.PETH or h is layout.ERTH))  # ftype 0 is accepted
_ALL, _OUTER, _NONE, _SOME = range(len(frame.TRIM_LENGTHS_FOUND))
EXTENSIONS_BYTES = _BYTES.sum(axis=2)  # all of them, by BTH.ts and opcode; 0: not an opcode of MRC


@inlined
def _bad(code, at):
    return code, at, 0, 0, 0, 0


@inlined
def trimmed(data, n, table):
    """Whether the first IP header of a frame, or the inner one, marks it as trimmed."""
    if n < IP + IPV4.size_bytes:
        return False
    if _ethertype(data) == layout.ETHERTYPE_IPV4:
        return is_trimmed(table, get(data, IP, IPV4.dscp))
    if n < IP + IPV6.size_bytes:
        return False
    if is_trimmed(table, get(data, IP, IPV6.dscp)):
        return True
    following = get(data, IP, IPV6.next_header)
    inside = IP + IPV6.size_bytes
    if following == layout.PROTOCOL_ROUTING:
        inside += SRH.size_bytes
    elif following != layout.PROTOCOL_IPV6:
        return False
    return n >= inside + 4 and is_trimmed(table, get(data, inside, IPV6.dscp))


@inlined
def _ethertype(data):
    return np.int64(data[ETHERNET.ethertype]) << 8 | np.int64(data[ETHERNET.ethertype + 1])


@inner
def headers(data, n, trimmed):
    """Check Ethernet to UDP: (code, offset of the error, SRH or 0, inner IP, UDP, end of the
    packet). A `trimmed` packet may claim to be longer than the frame.
    """
    if n < IP:
        return _bad(frame.TOO_SHORT, 0)
    ethertype = _ethertype(data)
    if ethertype == layout.ETHERTYPE_IPV6:
        code, at, srh, ip, udp, end = _ipv6_or_two(data, n, trimmed)
    elif ethertype == layout.ETHERTYPE_IPV4:
        code, at, srh, ip, udp, end = _ipv4(data, n, trimmed)
    else:
        return _bad(frame.ETHERTYPE, ETHERNET.ethertype)
    if code != frame.OK:
        return _bad(code, at)
    if end < udp + UDP.size_bytes:
        return _bad(frame.TOO_SHORT, udp)
    port = get(data, udp, UDP.dst_port)
    if port != layout.UDP_PORT and port != layout.UDP_PORT_ALTERNATIVE:
        return _bad(frame.UDP_PORT, udp + UDP.dst_port.byte)
    if _claimed(udp + get(data, udp, UDP.length), end, trimmed) != end:
        return _bad(frame.UDP_LENGTH, udp + UDP.length.byte)
    return frame.OK, 0, srh, ip, udp, end


@inlined
def _claimed(end, limit, trimmed):
    """The end that a length gives, of a trimmed packet at most the end of what is there: not every
    switch that trims adjusts all lengths.
    """
    return limit if trimmed and end > limit else end


@inlined
def trim_lengths(data, ip, udp, end):
    """Which lengths of a trimmed packet that ends at `end` were adjusted: a place in
    `frame.TRIM_LENGTHS_FOUND`.
    """
    if is_ipv4(ip, udp):
        first = IP + get(data, IP, IPV4.total_length) <= end
        inside = first
    else:
        first = IP + IPV6.size_bytes + get(data, IP, IPV6.payload_length) <= end
        inside = ip + IPV6.size_bytes + get(data, ip, IPV6.payload_length) <= end
    behind = udp + get(data, udp, UDP.length) <= end
    if first and inside and behind:
        return _ALL
    if first and not behind and (ip == IP or not inside):
        return _OUTER
    return _SOME if first or inside or behind else _NONE


@inlined
def _ipv6_or_two(data, n, trimmed):
    code, at, end = _one_ipv6(data, IP, n, trimmed)
    if code != frame.OK:
        return _bad(code, at)
    ip, srh = IP + IPV6.size_bytes, 0
    following = get(data, IP, IPV6.next_header)
    if following == layout.PROTOCOL_UDP:
        return frame.OK, 0, 0, IP, ip, end
    if following != layout.PROTOCOL_IPV6 and following != layout.PROTOCOL_ROUTING:
        return _bad(frame.NEXT_HEADER, IP + IPV6.next_header.byte)
    carrier = IP + IPV6.dst
    if data[carrier + USID] == 0 and data[carrier + USID + 1] == 0:
        return _bad(frame.CARRIER_EMPTY, carrier)
    if following == layout.PROTOCOL_ROUTING:
        srh = ip
        code, at = _srh(data, srh, end)
        if code != frame.OK:
            return _bad(code, at)
        ip += SRH.size_bytes
    code, at, inner_end = _one_ipv6(data, ip, end, trimmed)
    if code != frame.OK:
        return _bad(code, at)
    if inner_end != end:
        return _bad(frame.IP_LENGTH, ip + IPV6.payload_length.byte)
    if get(data, ip, IPV6.next_header) != layout.PROTOCOL_UDP:
        return _bad(frame.NEXT_HEADER, ip + IPV6.next_header.byte)
    return frame.OK, 0, srh, ip, ip + IPV6.size_bytes, end


@inlined
def _one_ipv6(data, at, limit, trimmed):
    """Check both IPv6 headers: (code, offset of the error, end of its payload)."""
    if limit < at + IPV6.size_bytes:
        return frame.TOO_SHORT, at, 0
    if get(data, at, IPV6.version) != 6:
        return frame.IP_VERSION, at + IPV6.version.byte, 0
    end = _claimed(at + IPV6.size_bytes + get(data, at, IPV6.payload_length), limit, trimmed)
    if end > limit:
        return frame.IP_LENGTH, at + IPV6.payload_length.byte, 0
    return frame.OK, 0, end


@inlined
def _srh(data, at, end):
    if end < at + SRH.size_bytes:
        return frame.TOO_SHORT, at
    if get(data, at, SRH.next_header) != layout.PROTOCOL_IPV6:
        return frame.NEXT_HEADER, at + SRH.next_header.byte
    if get(data, at, SRH.hdr_ext_len) != SRH.size_bytes // 8 - 1:
        return frame.ROUTING, at + SRH.hdr_ext_len.byte
    if get(data, at, SRH.routing_type) != layout.ROUTING_SEGMENT:
        return frame.ROUTING, at + SRH.routing_type.byte
    if get(data, at, SRH.segments_left) > 1:
        return frame.ROUTING, at + SRH.segments_left.byte
    if get(data, at, SRH.last_entry) != 0:
        return frame.ROUTING, at + SRH.last_entry.byte
    return frame.OK, 0


@inlined
def _ipv4(data, n, trimmed):
    udp = IP + IPV4.size_bytes
    if n < udp:
        return _bad(frame.TOO_SHORT, IP)
    if get(data, IP, IPV4.version) != 4:
        return _bad(frame.IP_VERSION, IP + IPV4.version.byte)
    if get(data, IP, IPV4.ihl) != IPV4.size_bytes // 4:
        return _bad(frame.IP_HEADER_LENGTH, IP + IPV4.ihl.byte)
    end = _claimed(IP + get(data, IP, IPV4.total_length), n, trimmed)
    if end < udp or end > n:
        return _bad(frame.IP_LENGTH, IP + IPV4.total_length.byte)
    more = get(data, IP, IPV4.ip_flags) & _MORE_FRAGMENTS
    if more or get(data, IP, IPV4.fragment_offset) != 0:
        return _bad(frame.FRAGMENT, IP + IPV4.ip_flags.byte)
    if get(data, IP, IPV4.protocol) != layout.PROTOCOL_UDP:
        return _bad(frame.NEXT_HEADER, IP + IPV4.protocol.byte)
    if ipv4_sum(data) != 0xFFFF:
        return _bad(frame.IP_CHECKSUM, IP + IPV4.header_checksum.byte)
    return frame.OK, 0, 0, IP, udp, end


@inlined
def ipv4_sum(data):
    """The ones' complement sum of the IPv4 header (RFC 791); 0xFFFF if the checksum is right."""
    total = 0
    for at in range(IP, IP + IPV4.size_bytes, 4):
        pair = word(data, at)
        total += (pair >> 16) + (pair & 0xFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    return (total >> 16) + (total & 0xFFFF)


@inlined
def is_ipv4(ip, udp):
    """True if the header between these offsets is IPv4's: only that has this length."""
    return udp - ip == IPV4.size_bytes


@inlined
def dscp_of(data, ip, udp, table):
    """The DSCP that counts: that of the first IP header, unless only the inner one says trimmed."""
    if is_ipv4(ip, udp):
        return get(data, IP, IPV4.dscp)
    first, inside = get(data, IP, IPV6.dscp), get(data, ip, IPV6.dscp)
    if not is_trimmed(table, first) and is_trimmed(table, inside):
        return inside
    return first


@inlined
def transport(data, bth, stop, trimmed):
    """Check BTH and extensions: (code, offset of the error or end of these headers)."""
    at = bth + BTH.size_bytes
    if stop < at:
        return frame.TOO_SHORT, bth
    opcode = get(data, bth, BTH.opcode)
    if EXTENSIONS_BYTES[0, opcode] == 0:
        return frame.OPCODE, bth + BTH.opcode.byte
    if get(data, bth, BTH.tver) != 0:
        return frame.TRANSPORT_VERSION, bth + BTH.tver.byte
    ts = get(data, bth, BTH.ts)
    for step in range(_STEPS):
        size_bytes = _BYTES[ts, opcode, step]
        if at + size_bytes > stop:
            if trimmed and _SPARED[ts, opcode, step]:
                break
            return frame.EXTENSION_LENGTH, at
        ftype = _FTYPE[ts, opcode, step]
        if ftype:
            kind = data[at + ftype] & TSETH.ftype.mask
            none = kind == layout.FTYPE_NONE and _UNSTAMPED[ts, opcode, step]  # row 31
            if kind != layout.FTYPE_TIMESTAMP and not none:
                return frame.FTYPE, at + ftype
        at += size_bytes
    return frame.OK, at


@inlined
def payload(data, ip, bth, at, stop, most, check):
    """Check `data[at:stop]`, and with `check` the iCRC after it: (code, offset of the error, bytes
    without the padding). The payload may have `most` bytes.
    """
    pad = get(data, bth, BTH.pad)
    room = stop - at
    if room & 3 or pad > room:
        return frame.PAD, bth + BTH.pad.byte, 0
    if room - pad > most:
        return frame.PAYLOAD_LENGTH, at, 0
    if check and get_icrc(data, stop) != icrc(data, ip, stop):
        return frame.ICRC, stop, 0
    return frame.OK, 0, room - pad
