"""Encapsulations of captured frames: VLAN tags, a Linux cooked header, a mirror's tunnel, overlays.

`unwrap` removes them, so that the codec sees an Ethernet frame that carries IP. Offsets in messages
count in that frame. Unknown encapsulations are left for the codec to refuse. `inside_ip` removes IP
headers around others, which may be MRC's own: only a reader that could not read a frame asks.
"""

from __future__ import annotations

from typing import NamedTuple

from openmrc.wire import layout

LINK_ETHERNET, LINK_RAW, LINK_SLL, LINK_IPV4, LINK_IPV6, LINK_SLL2 = 1, 101, 113, 228, 229, 276
_RAW = (LINK_RAW, LINK_IPV4, LINK_IPV6)
LINKS = (LINK_ETHERNET, LINK_SLL, LINK_SLL2, *_RAW)

# IEEE 802.1Q and 802.1ad, and what switches used before 802.1ad
TAGS = {0x8100: "VLAN", 0x88A8: "S-VLAN", 0x9100: "S-VLAN"}
LAYERS_MAX = 8  # tags and tunnels around one frame; nobody uses more than two of each

_ETHERNET = layout.ETHERNET.size_bytes
_TYPE_AT = layout.ETHERNET.byte("ethertype")
_GRE, _OPTIONS = 47, 60  # RFC 2784, RFC 8200
_BRIDGED, _ERSPAN_2, _ERSPAN_3, _SPECTRUM = 0x6558, 0x88BE, 0x22EB, 0x8949
_CHECKSUM, _KEY, _SEQUENCE = 0x8000, 0x2000, 0x1000  # flags of GRE: each adds four bytes
_ERSPAN_2_BYTES, _ERSPAN_3_BYTES, _ERSPAN_3_MORE = 8, 12, 8
_SPECTRUM_BYTES = 22  # as SONiC's tests of its mirror Everflow expect
_VXLAN_PORTS, _VXLAN_BYTES, _VXLAN_HAS_ID = (4789, 8472), 8, 0x08  # RFC 7348; Linux's first port
_GENEVE_PORT, _GENEVE_BYTES = 6081, 8  # RFC 8926; options in units of four bytes follow
_UDP = layout.UDP.size_bytes
_IN_IP = {4: layout.ETHERTYPE_IPV4, layout.PROTOCOL_IPV6: layout.ETHERTYPE_IPV6}
_IN_ETHERNET = 143  # RFC 8986
_EXTENSIONS = (0, 43, 60)  # IPv6 headers that another may follow
_ROUTING, _SEGMENTS = 43, 4  # RFC 8754


class Outside(NamedTuple):
    """A frame without its encapsulation, the number of bytes removed, and their description."""

    data: bytes
    removed: int
    said: tuple[str, ...]


def unwrap(data: bytes, link: int = LINK_ETHERNET) -> Outside:
    """Return the frame inside what was captured on a link of this type.

    A packet of a link type outside `LINKS` becomes a frame of an unknown Ethernet type.
    """
    length, said = len(data), []
    if link != LINK_ETHERNET:
        data = _cooked(data, link)
        said.append(_COOKED.get(link, f"link type {link}"))
    for _ in range(LAYERS_MAX):
        kind = int.from_bytes(data[_TYPE_AT:_ETHERNET], "big")
        if kind in TAGS and len(data) >= _ETHERNET + 4:
            tag = int.from_bytes(data[_ETHERNET : _ETHERNET + 2], "big")
            said.append(f"{TAGS[kind]} {tag & 0xFFF}")
            data = data[:_TYPE_AT] + data[_ETHERNET + 2 :]
            continue
        inside = _mirrored(data, kind)
        if inside is None:
            break
        name, data = inside
        said.append(name)
    return Outside(data, length - len(data), tuple(said))


_COOKED = {**dict.fromkeys(_RAW, "raw IP"), LINK_SLL: "cooked", LINK_SLL2: "cooked v2"}


def _cooked(data: bytes, link: int) -> bytes:
    """Return an Ethernet frame in place of a cooked header or a raw IP packet; unknown addresses
    are zero.
    """
    if link in _RAW:
        version = data[0] >> 4 if data else 0
        return _framed(layout.ETHERTYPE_IPV4 if version == 4 else layout.ETHERTYPE_IPV6, data)
    if link not in LINKS:
        return _framed(0, data)
    if link == LINK_SLL:
        size, kind_at, address_at = 16, 14, 6
    else:
        size, kind_at, address_at = 20, 0, 12
    if len(data) < size:
        return data
    source = data[address_at : address_at + 6]
    return bytes(6) + source + data[kind_at : kind_at + 2] + data[size:]


def _framed(kind: int, data: bytes) -> bytes:
    return bytes(12) + kind.to_bytes(2, "big") + data


def _mirrored(data: bytes, kind: int) -> tuple[str, bytes] | None:
    """Return the name of a mirror's tunnel and the frame inside, if it is one."""
    protocol, at = _behind_ip(data, kind)
    if protocol == layout.PROTOCOL_UDP:
        return _overlaid(data, at)
    if protocol != _GRE or len(data) < at + 4:
        return None
    flags, carried = (int.from_bytes(data[at + i : at + i + 2], "big") for i in (0, 2))
    at += 4 + 4 * sum(bool(flags & bit) for bit in (_CHECKSUM, _KEY, _SEQUENCE))
    if carried in layout.ETHERTYPES and len(data) > at:
        return "GRE", _framed(carried, data[at:])
    if carried == _BRIDGED:
        name = "GRE"
    elif carried == _SPECTRUM:
        name, at = "GRE 0x8949", at + _SPECTRUM_BYTES
    elif carried == _ERSPAN_2 and not flags & _SEQUENCE:
        name = "ERSPAN I"
    elif carried == _ERSPAN_2:
        name, at = "ERSPAN II", at + _ERSPAN_2_BYTES
    elif carried == _ERSPAN_3 and len(data) >= at + _ERSPAN_3_BYTES:
        more = data[at + _ERSPAN_3_BYTES - 1] & 1  # a platform-specific subheader follows
        name, at = "ERSPAN III", at + _ERSPAN_3_BYTES + more * _ERSPAN_3_MORE
    else:
        return None
    return (name, data[at:]) if len(data) >= at + _ETHERNET else None


def _overlaid(data: bytes, at: int) -> tuple[str, bytes] | None:
    """Return the name of a tunnel in UDP and the frame inside, if it is one."""
    if len(data) < at + _UDP + _VXLAN_BYTES:
        return None
    port, at = int.from_bytes(data[at + 2 : at + 4], "big"), at + _UDP
    if port in _VXLAN_PORTS and data[at] & _VXLAN_HAS_ID:
        name, carried, at = "VXLAN", _BRIDGED, at + _VXLAN_BYTES
    elif port == _GENEVE_PORT and data[at] >> 6 == 0:
        carried = int.from_bytes(data[at + 2 : at + 4], "big")
        name, at = "GENEVE", at + _GENEVE_BYTES + 4 * (data[at] & 0x3F)
    else:
        return None
    if carried in layout.ETHERTYPES and len(data) > at:
        return name, _framed(carried, data[at:])
    return (name, data[at:]) if carried == _BRIDGED and len(data) >= at + _ETHERNET else None


def inside_ip(data: bytes) -> tuple[str, bytes] | None:
    """Return the frame in the payload of a frame's first IP header, and the name of the tunnel;
    None if no IP packet or frame is there, or a header between them is malformed.
    """
    kind = int.from_bytes(data[_TYPE_AT:_ETHERNET], "big")
    at, name = _ETHERNET, "IP in IP"
    if kind == layout.ETHERTYPE_IPV4 and len(data) > at + 20:
        protocol, at = _behind_ip(data, kind)
    elif kind == layout.ETHERTYPE_IPV6 and len(data) > at + 40:
        protocol, at = data[at + 6], at + 40
        for _ in range(LAYERS_MAX):
            if protocol not in _EXTENSIONS or len(data) < at + 8:
                break
            if protocol == _ROUTING and data[at + 2] == _SEGMENTS:
                if data[at + 3] > data[at + 4] or 2 * (data[at + 4] + 1) > data[at + 1]:
                    return None  # segments left that the list does not have, or a list too long
                name = "SRv6"
            protocol, at = data[at], at + 8 * (data[at + 1] + 1)
    else:
        return None
    if protocol in _IN_IP and len(data) > at:
        return name, data[:_TYPE_AT] + _IN_IP[protocol].to_bytes(2, "big") + data[at:]
    if protocol == _IN_ETHERNET and len(data) >= at + _ETHERNET:
        return name, data[at:]
    return None


def _behind_ip(data: bytes, kind: int) -> tuple[int | None, int]:
    """Return the protocol after the IP header, None if unknown, and its offset."""
    at = _ETHERNET
    if kind == layout.ETHERTYPE_IPV4 and len(data) > at + 20:
        begins_here = not int.from_bytes(data[at + 6 : at + 8], "big") & 0x1FFF
        return (data[at + 9] if begins_here else None), at + 4 * (data[at] & 0xF)
    if kind == layout.ETHERTYPE_IPV6 and len(data) > at + 40:
        protocol, at = data[at + 6], at + 40
        if protocol == _OPTIONS and len(data) > at + 1:  # Linux's limit of tunnels in tunnels
            protocol, at = data[at], at + 8 * (data[at + 1] + 1)
        return protocol, at
    return None, at
