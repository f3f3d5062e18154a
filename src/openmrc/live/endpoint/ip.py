"""MRC in plain UDP over IPv4 or IPv6 (MRC 2.1, without SRv6), between hosts of any network.

A plane is an address of the host, its EVs are source ports (row 2: EV[15:0]), so that networks that
hash flows over paths spray them; the destination is one port of the peer. A datagram is what
follows the UDP header: BTH to iCRC. Each source port is a socket that only sends. The kernel
segments and joins datagrams: consecutive ones to one peer, on one EV and in one class leave in one
call (UDP_SEGMENT) and may arrive as one (UDP_GRO).

    socket of the EV -> [ BTH .. iCRC | BTH .. iCRC | BTH .. iCRC ] -> the peer's port of this plane

The iCRC is that of the IP packet on the wire, with two exceptions for fields that the kernel sets:
the destination port counts as 4791, whatever it is, and IPv4's identification as 0. To compute and
to check it, whole frames are built here, of which only what follows the UDP header is sent.

Nothing in such a network trims, and any hop may rewrite a DSCP: of the traffic class of an arriving
packet only the ECN bits are used.
"""

from __future__ import annotations

import errno

import numpy as np

from openmrc.engine import packet as pk
from openmrc.jit import inlined, inner
from openmrc.live import syscalls
from openmrc.live.endpoint.state import (
    NAME_BYTES,
    RX_BURSTS,
    SOURCE_BASE,
    SOURCE_PORTS,
    SOURCES_MAX,
)
from openmrc.live.endpoint.udp import AT, LEVEL_IPV6, TRAFFIC_CLASS
from openmrc.live.syscalls import Batch, new_batch
from openmrc.wire import codec
from openmrc.wire.checks import ipv4_sum
from openmrc.wire.layout import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    PROTOCOL_UDP,
    UDP_PORT,
)
from openmrc.wire.words import ETHERNET, IPV4, IPV6, UDP, add, put, put_bytes, zero

LEAD = IPV6.size_bytes - IPV4.size_bytes  # by which the headers of IPv4 are shorter than `AT`
IP_AT = ETHERNET.size_bytes
DO_NOT_FRAGMENT = 2  # of IPv4's flags
NAME4_BYTES, NAME4_ADDRESS_AT = 16, 4  # struct sockaddr_in
NAME6_BYTES, NAME6_ADDRESS_AT = NAME_BYTES, 8
NAME_PORT_AT = 2
LEVEL_IP, IP_TOS = 0, 1
LEVEL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
CONTROL_HEADER = 16  # struct cmsghdr: length, level, type
TX_CLASS = CONTROL_HEADER + 8  # with a 4-byte number, padded
TX_CONTROL = 2 * TX_CLASS
RX_CONTROL = 2 * TX_CLASS
DATAGRAM_MAX = 65_507  # bytes after the UDP header in IPv4's largest packet
SEGMENTS_MAX = 64  # that Linux makes of one datagram
ROOM = AT + 65_536


def new_tx(n: int, room: int) -> Batch:
    """A transmit batch: frames are written whole, datagrams begin after their UDP header."""
    batch = new_batch(n, room, 1, TX_CONTROL)
    batch.iov.address += np.uint64(AT)
    batch.iov.length -= np.uint64(AT)
    return batch


def new_rx() -> Batch:
    """A receive batch with room for whole bursts, and before each for headers."""
    batch = new_batch(RX_BURSTS, ROOM, NAME_BYTES, RX_CONTROL)
    batch.iov.address += np.uint64(AT)
    batch.iov.length -= np.uint64(AT)
    return batch


@inner
def write(ep, tx, slot, p, e, payload):
    """Build the datagram of a packet in a slot of `tx`; False if there is no such source port."""
    plane = int(p.plane)
    source = np.int64(p.ev) - SOURCE_BASE
    to = row(ep, int(p.dst), plane)
    if source < 0 or source >= SOURCE_PORTS or to < 0 or to >= ep.reach.shape[0]:
        return False
    fd = int(ep.source[plane, source])
    if fd < 0:
        return False
    if ep.port[plane].ipv4:
        put_bytes(e.inner_dst, 0, ep.reach[to, NAME4_ADDRESS_AT : NAME4_ADDRESS_AT + 4])
        frame = tx.data[slot, LEAD:]
        length = codec.encode(p, e, payload, frame, 1) + LEAD
        traffic_class = np.int64(frame[IP_AT + 1])
    else:
        put_bytes(e.inner_dst, 0, ep.reach[to, NAME6_ADDRESS_AT : NAME6_ADDRESS_AT + 16])
        frame = tx.data[slot]
        length = codec.encode(p, e, payload, frame, 1)
        traffic_class = (np.int64(frame[IP_AT]) & 0xF) << 4 | np.int64(frame[IP_AT + 1]) >> 4
    if length < AT:
        return False
    tx.iov[slot].length = length - AT
    o = ep.outgoing[slot]
    o.fd = fd
    o.to = to
    o.traffic_class = traffic_class
    return True


@inner
def send(ep, tx, plane, first, n):
    """Pass the first of `n` slots to the kernel, with those that fit into the same call; return how
    many were taken, or -errno.
    """
    port = ep.port[plane]
    together = _alike(ep, tx, first, n) if port.segments else 1
    sent = _send(ep, tx, plane, first, together)
    if together > 1 and (sent == -errno.EIO or sent == -errno.EINVAL):
        port.segments = 0  # this interface computes no checksums, and does not segment
        together = 1
        sent = _send(ep, tx, plane, first, 1)
    if sent == 1:
        return together
    port.full_fd = ep.outgoing[first].fd
    return sent


@inner
def _alike(ep, tx, first, n):
    """How many slots from `first` on are one burst: of one EV, peer and class, and of one length,
    except for the last, which may be shorter.
    """
    o = ep.outgoing[first]
    size = np.int64(tx.iov[first].length)
    total = size
    k = 1
    while k < min(n, SEGMENTS_MAX):
        other = ep.outgoing[first + k]
        length = np.int64(tx.iov[first + k].length)
        total += length
        if (
            other.fd != o.fd
            or other.to != o.to
            or other.traffic_class != o.traffic_class
            or length > size
            or total > DATAGRAM_MAX
        ):
            break
        k += 1
        if length < size:
            break
    return k


@inner
def _send(ep, tx, plane, first, together):
    """Send a burst in one call: 1, or -errno."""
    port, o, m = ep.port[plane], ep.outgoing[first], tx.message[first]
    m.name = ep.reach.ctypes.data + int(o.to) * NAME_BYTES
    m.name_length = NAME4_BYTES if port.ipv4 else NAME6_BYTES
    m.iov_length = together  # the slots' records are contiguous
    control = tx.control[first]
    if port.ipv4:
        _put_control(control, 0, 4, LEVEL_IP, IP_TOS, int(o.traffic_class))
    else:
        _put_control(control, 0, 4, LEVEL_IPV6, TRAFFIC_CLASS, int(o.traffic_class))
    m.control_length = TX_CLASS
    if together > 1:
        _put_control(control, TX_CLASS, 2, LEVEL_UDP, UDP_SEGMENT, np.int64(tx.iov[first].length))
        m.control_length = TX_CONTROL
    return syscalls.send(int(o.fd), tx, first, 1)


@inlined
def _put_control(control, at, n_bytes, level, kind, value):
    """Write a control message with a number, in the machine's (little-endian) order."""
    for i in range(TX_CLASS):
        control[at + i] = 0
    control[at] = CONTROL_HEADER + n_bytes
    control[at + 8] = level
    control[at + 12] = kind
    control[at + CONTROL_HEADER] = value & 0xFF
    control[at + CONTROL_HEADER + 1] = value >> 8


@inner
def told(rx, i):
    """What the kernel reports of datagram `i`: its ECN bits, and the length in bytes of its
    segments (except for the last), 0 if it is one packet.
    """
    control = rx.control[i]
    end = np.int64(rx.message[i].control_length)
    ecn = np.int64(0)
    segment = np.int64(0)
    at = np.int64(0)
    while at + CONTROL_HEADER < end:
        size = np.int64(control[at]) | np.int64(control[at + 1]) << 8
        if size <= CONTROL_HEADER or at + size > end:
            break
        level, kind = np.int64(control[at + 8]), np.int64(control[at + 12])
        value = np.int64(control[at + CONTROL_HEADER])
        if (level == LEVEL_IP and kind == IP_TOS) or (
            level == LEVEL_IPV6 and kind == TRAFFIC_CLASS
        ):
            ecn = value & 3
        elif level == LEVEL_UDP and kind == UDP_GRO and size >= CONTROL_HEADER + 2:
            segment = value | np.int64(control[at + CONTROL_HEADER + 1]) << 8
        at += (size + 7) & ~7
    return ecn, segment


@inner
def restore(ep, rx, i, at, length, plane, ecn):
    """Write the headers with which the packet `data[AT + at:][:length]` of a datagram arrived
    before it; return where its frame begins.
    """
    data, name = rx.data[i], rx.name[i]
    own = ep.envelope[plane]
    udp = at + AT - UDP.size_bytes
    if ep.port[plane].ipv4:
        first = at + LEAD
        frame = data[first:]
        zero(frame[: AT - LEAD])
        frame[ETHERNET.ethertype] = ETHERTYPE_IPV4 >> 8
        add(frame, IP_AT, IPV4.version, 4)
        add(frame, IP_AT, IPV4.ihl, IPV4.size_bytes // 4)
        add(frame, IP_AT, IPV4.ecn, ecn)
        add(frame, IP_AT, IPV4.total_length, IPV4.size_bytes + UDP.size_bytes + length)
        add(frame, IP_AT, IPV4.ip_flags, DO_NOT_FRAGMENT)
        add(frame, IP_AT, IPV4.ttl, 1)
        add(frame, IP_AT, IPV4.protocol, PROTOCOL_UDP)
        put_bytes(frame, IP_AT + IPV4.src.byte, name[NAME4_ADDRESS_AT : NAME4_ADDRESS_AT + 4])
        put_bytes(frame, IP_AT + IPV4.dst.byte, own.inner_src[:4])
        add(frame, IP_AT, IPV4.header_checksum, 0xFFFF - ipv4_sum(frame))
    else:
        first = at
        frame = data[first:]
        zero(frame[:AT])
        frame[ETHERNET.ethertype] = ETHERTYPE_IPV6 >> 8
        frame[ETHERNET.ethertype + 1] = ETHERTYPE_IPV6 & 0xFF
        add(frame, IP_AT, IPV6.version, 6)
        add(frame, IP_AT, IPV6.ecn, ecn)
        add(frame, IP_AT, IPV6.payload_length, UDP.size_bytes + length)
        add(frame, IP_AT, IPV6.next_header, PROTOCOL_UDP)
        add(frame, IP_AT, IPV6.hop_limit, 1)
        put_bytes(frame, IP_AT + IPV6.src, name[NAME6_ADDRESS_AT : NAME6_ADDRESS_AT + 16])
        put_bytes(frame, IP_AT + IPV6.dst, own.inner_src)
    source = np.int64(name[NAME_PORT_AT]) << 8 | np.int64(name[NAME_PORT_AT + 1])
    put(data, udp, UDP.src_port, source)
    put(data, udp, UDP.dst_port, UDP_PORT)
    put(data, udp, UDP.length, UDP.size_bytes + length)
    return first


@inner
def whose(ep, st, e, p, plane):
    """Number of the peer that sent a packet, or -1: that of its queue pair, if the address matches;
    else the one with this address and source port, because processes of one host share an address.
    """
    qi = int(p.dst_qpn) & int(ep.ctl[0].qpn_mask)
    if qi < ep.ctl[0].n_qps and st.qp[qi].qpn == p.dst_qpn and p.dst_qpn != pk.ENDPOINT_QPN:
        peer = int(st.qp[qi].peer_nic)
        there = row(ep, peer, plane)
        if 0 <= there < ep.reach.shape[0] and _is_address(ep, e, there, plane):
            return peer
    n_planes = int(ep.ctl[0].n_planes)
    for there in range(plane, ep.reach.shape[0], n_planes):
        if _is_address(ep, e, there, plane):
            for i in range(SOURCES_MAX):
                if ep.peer_source[there, i] == np.int64(p.ev):
                    return there // n_planes
    return -1


@inlined
def row(ep, peer, plane):
    """The row of a peer's plane in the tables."""
    return peer * int(ep.ctl[0].n_planes) + plane


@inlined
def _is_address(ep, e, there, plane):
    """Whether a packet's source is the address in a row; an unused row has none."""
    name = ep.reach[there]
    at, n = NAME6_ADDRESS_AT, 16
    if ep.port[plane].ipv4:
        at, n = NAME4_ADDRESS_AT, 4
    for i in range(n):
        if e.inner_src[i] != name[at + i]:
            return False
    return name[0] != 0
