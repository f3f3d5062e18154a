"""Lengths that are right again after a change, so that changes reach the headers behind them."""

from __future__ import annotations

from openmrc.wire import layout


def set_lengths(data: bytearray) -> None:
    """Write the lengths of all IP headers and of UDP, as far as they can be found."""
    udp = layout.ETHERNET.size_bytes + layout.IPV4.size_bytes
    is_ipv4 = data[12:14] == layout.ETHERTYPE_IPV4.to_bytes(2, "big")
    if is_ipv4 and udp + layout.UDP.size_bytes <= len(data):
        set_ipv4_lengths(data, udp)
        return
    at, following = layout.ETHERNET.size_bytes, layout.PROTOCOL_IPV6
    sizes = {
        layout.PROTOCOL_IPV6: (
            layout.IPV6,
            layout.IPV6.byte("payload_length"),
            layout.IPV6.size_bytes,
        ),
        layout.PROTOCOL_ROUTING: (layout.SRH, None, 0),
        layout.PROTOCOL_UDP: (layout.UDP, layout.UDP.byte("length"), 0),
    }
    while following in sizes:
        header, length_at, counted_from = sizes[following]
        after = at + header.size_bytes
        if after > len(data):
            return
        if length_at is not None:
            left = len(data) - at - counted_from & 0xFFFF
            data[at + length_at : at + length_at + 2] = left.to_bytes(2, "big")
        if header is layout.UDP:
            return
        following = data[at + header.byte("next_header")]
        at = after


def set_ipv4_lengths(data: bytearray, udp: int) -> None:
    """The same for one IPv4 header, with its sum."""
    ip = layout.ETHERNET.size_bytes
    for header, at in ((layout.IPV4, ip), (layout.UDP, udp)):
        name = "total_length" if header is layout.IPV4 else "length"
        length_at = at + header.byte(name)
        data[length_at : length_at + 2] = (len(data) - at & 0xFFFF).to_bytes(2, "big")
    sum_at = ip + layout.IPV4.byte("header_checksum")
    data[sum_at : sum_at + 2] = bytes(2)
    words = int.from_bytes(data[ip:udp], "big")
    data[sum_at : sum_at + 2] = (-words % 0xFFFF).to_bytes(2, "big")
