"""The headers that switches read, Ethernet and IP, between bytes and the envelope; compiled.

Writers expect zeroed buffers.
"""

from __future__ import annotations

from typing import NamedTuple

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.jit import inlined
from openmrc.wire import classes, layout
from openmrc.wire.checks import IP, ipv4_sum, is_ipv4
from openmrc.wire.ev import HALF_MASK, to_wire
from openmrc.wire.words import ETHERNET, IPV4, IPV6, SRH, add, get, get_bytes, put_bytes, zero

_DO_NOT_FRAGMENT = 2  # of ip_flags


class _Ipv6(NamedTuple):
    """The fields of an IPv6 header; `end` is the end of its packet."""

    dscp: int
    ecn: int
    label: int
    end: int


@inlined
def put_hops(out, p, e, ip, end):
    """Write Ethernet and IP headers: the inner one at `ip`, the end of the packet at `end`."""
    label = to_wire(p.ev, e.ev_swapped) & HALF_MASK
    dscp = _dscp(p, e.dscps)
    ecn = layout.ECN_NOT_ECT if p.klass == pk.CLASS_CONTROL else layout.ECN_ECT0
    first_ecn = layout.ECN_CE if p.flag_bits & pk.CE else ecn
    put_ethernet(out, e, layout.ETHERTYPE_IPV4 if e.ipv4 else layout.ETHERTYPE_IPV6)
    if e.ipv4:
        put_ipv4(out, e, dscp, first_ecn, end)
        return
    udp, hops = layout.PROTOCOL_UDP, e.hop_limit
    first = _Ipv6(dscp, first_ecn, label, end)
    if not e.srv6:
        _put_ipv6(out, ip, first, udp, hops, e.inner_src, e.inner_dst)
        return
    following = layout.PROTOCOL_ROUTING if e.srh else layout.PROTOCOL_IPV6
    _put_ipv6(out, IP, first, following, hops, e.outer_src, e.carrier)
    if e.srh:
        _put_srh(out, IP + IPV6.size_bytes, e)
    second = _Ipv6(dscp, ecn, label, end)
    _put_ipv6(out, ip, second, udp, e.inner_hop_limit, e.inner_src, e.inner_dst)


@inlined
def put_ethernet(out, e, ethertype):
    """Write the Ethernet header."""
    put_bytes(out, ETHERNET.dst_mac, e.dst_mac)
    put_bytes(out, ETHERNET.src_mac, e.src_mac)
    out[ETHERNET.ethertype] = ethertype >> 8
    out[ETHERNET.ethertype + 1] = ethertype & 0xFF


@inlined
def _dscp(p, table):
    if p.klass == pk.CLASS_CONTROL:
        return classes.dscp(table, classes.CONTROL)
    if p.flag_bits & pk.NO_TRIM:
        return classes.dscp(table, classes.NO_TRIM)
    if p.klass == pk.CLASS_RETRANSMIT:
        return classes.dscp(table, classes.TRIMMABLE_RETX)
    return classes.dscp(table, classes.TRIMMABLE)


@inlined
def _put_ipv6(out, at, said, following, hops, src, dst):
    add(out, at, IPV6.version, 6)
    add(out, at, IPV6.dscp, said.dscp)
    add(out, at, IPV6.ecn, said.ecn)
    add(out, at, IPV6.flow_label, said.label)
    add(out, at, IPV6.payload_length, said.end - at - IPV6.size_bytes)
    add(out, at, IPV6.next_header, following)
    add(out, at, IPV6.hop_limit, hops)
    put_bytes(out, at + IPV6.src, src)
    put_bytes(out, at + IPV6.dst, dst)


@inlined
def put_one_ipv6(out, e, dscp, ecn, end):
    """Write the IPv6 header of a packet that has no other, flow label 0; it ends at `end`."""
    said = _Ipv6(dscp, ecn, 0, end)
    _put_ipv6(out, IP, said, layout.PROTOCOL_UDP, e.hop_limit, e.inner_src, e.inner_dst)


@inlined
def _put_srh(out, at, e):
    """MRC 2.12: one segment."""
    add(out, at, SRH.next_header, layout.PROTOCOL_IPV6)
    add(out, at, SRH.hdr_ext_len, SRH.size_bytes // 8 - 1)
    add(out, at, SRH.routing_type, layout.ROUTING_SEGMENT)
    add(out, at, SRH.segments_left, e.segments_left)
    put_bytes(out, at + SRH.segment, e.segment)


@inlined
def put_ipv4(out, e, dscp, ecn, end):
    """Write an IPv4 header; the packet ends at `end`."""
    add(out, IP, IPV4.version, 4)
    add(out, IP, IPV4.ihl, IPV4.size_bytes // 4)
    add(out, IP, IPV4.dscp, dscp)
    add(out, IP, IPV4.ecn, ecn)
    add(out, IP, IPV4.total_length, end - IP)
    add(out, IP, IPV4.ip_flags, _DO_NOT_FRAGMENT)
    add(out, IP, IPV4.ttl, e.hop_limit)
    add(out, IP, IPV4.protocol, layout.PROTOCOL_UDP)
    put_bytes(out, IP + IPV4.src.byte, e.inner_src[:4])
    put_bytes(out, IP + IPV4.dst.byte, e.inner_dst[:4])
    add(out, IP, IPV4.header_checksum, 0xFFFF - ipv4_sum(out))


@inlined
def get_hops(data, srh, ip, udp, payload_at, p, e):
    """Fill the records of a valid frame from its first headers: clear `p`, fill `e` from the
    Ethernet and IP headers. Addresses that the frame lacks are zero.
    """
    es.clear(p)
    e.payload_at = payload_at
    e.error_at = 0
    e.trim_lengths = 0
    outer = 1 if ip != IP else 0
    e.srv6 = outer
    e.srh = 1 if srh else 0
    e.ipv4 = 1 if is_ipv4(ip, udp) else 0
    e.inner_hop_limit = 0
    e.segments_left = 0
    e.spdcid = 0  # unless an extension header sets it
    e.dpdcid = 0
    get_bytes(data, ETHERNET.dst_mac, e.dst_mac)
    get_bytes(data, ETHERNET.src_mac, e.src_mac)
    if e.ipv4:
        e.hop_limit = get(data, IP, IPV4.ttl)
        zero(e.inner_src)
        zero(e.inner_dst)
        get_bytes(data, IP + IPV4.src.byte, e.inner_src[:4])
        get_bytes(data, IP + IPV4.dst.byte, e.inner_dst[:4])
    else:
        e.hop_limit = get(data, IP, IPV6.hop_limit)
        get_bytes(data, ip + IPV6.src, e.inner_src)
        get_bytes(data, ip + IPV6.dst, e.inner_dst)
    if outer:
        e.inner_hop_limit = get(data, ip, IPV6.hop_limit)
        get_bytes(data, IP + IPV6.src, e.outer_src)
        get_bytes(data, IP + IPV6.dst, e.carrier)
    else:
        zero(e.outer_src)
        zero(e.carrier)
    if srh:
        e.segments_left = get(data, srh, SRH.segments_left)
        get_bytes(data, srh + SRH.segment, e.segment)
    else:
        zero(e.segment)


@inlined
def get_class(data, ip, dscp, p, e):
    """Read DSCP and ECN: class, NO_TRIM, TRIMMED, CE."""
    flag_bits, table = int(p.flag_bits), e.dscps
    klass = pk.CLASS_DATA
    if dscp == classes.dscp(table, classes.TRIMMED):
        klass = pk.CLASS_CONTROL
        flag_bits |= pk.TRIMMED
    elif dscp == classes.dscp(table, classes.TRIMMED_LASTHOP):
        klass = pk.CLASS_CONTROL
        flag_bits |= pk.TRIMMED_LASTHOP
    elif dscp == classes.dscp(table, classes.CONTROL):
        klass = pk.CLASS_CONTROL
    elif dscp == classes.dscp(table, classes.TRIMMABLE_RETX):
        klass = pk.CLASS_RETRANSMIT
    elif dscp == classes.dscp(table, classes.NO_TRIM):
        klass = pk.CLASS_RETRANSMIT if flag_bits & pk.RTX else pk.CLASS_DATA
        flag_bits |= pk.NO_TRIM
    if get_ce(data, ip, e):
        flag_bits |= pk.CE
    p.klass = klass
    p.flag_bits = flag_bits


@inlined
def get_ce(data, ip, e):
    """Whether an IP header has the CE mark."""
    if e.ipv4:
        return get(data, IP, IPV4.ecn) == layout.ECN_CE
    marked = get(data, IP, IPV6.ecn) == layout.ECN_CE
    return marked or get(data, ip, IPV6.ecn) == layout.ECN_CE
