"""MRC in ordinary UDP datagrams (row 22): no privilege, and ordinary switches that know only SRv6.

The destination address of a datagram is the carrier itself: block, the uSIDs of the switches, that
of the NIC, and after it the EV in two more. Switches shift it along the path, so the receiver finds
its own uSID first and the EV after it. The kernel sets source port and flow label.

    sent       2001:db8 | T0 | T1 | T0 | NIC | EV high | EV low
    received   2001:db8 | NIC | EV high | EV low | 0 | 0 | 0

The checksum of UDP covers a destination that changes along the path, so there is none; the iCRC
takes its place, over the packet as it arrives: IPv6 with that destination and the sender's own
address, UDP with port 4791 at both ends. To compute and to check it, whole frames are built here
(`wire.codec` reads and writes them), of which only what follows the UDP header is sent.
"""

from __future__ import annotations

import errno
import socket

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.usid import BLOCK
from openmrc.jit import inlined, inner
from openmrc.live.syscalls import Batch, new_batch
from openmrc.wire import codec, srv6
from openmrc.wire.layout import ETHERNET, ETHERTYPE_IPV6, PROTOCOL_UDP, UDP_PORT
from openmrc.wire.words import IPV6, UDP, put

AT = ETHERNET.size_bytes + IPV6.size_bytes + UDP.size_bytes  # what is not sent
IP_AT, UDP_AT = ETHERNET.size_bytes, ETHERNET.size_bytes + IPV6.size_bytes
SRC_AT, DST_AT = IP_AT + IPV6.src, IP_AT + IPV6.dst
ETHERTYPE_AT = ETHERNET.byte("ethertype")
CLASS_AT = IP_AT  # version, then the traffic class across two bytes

NAME_BYTES = 28  # struct sockaddr_in6: family, port, flow label, address, scope
NAME_PORT_AT, NAME_ADDRESS_AT = 2, 8
CONTROL_HEADER = 16  # struct cmsghdr: length, level, type
TX_CONTROL, RX_CONTROL = CONTROL_HEADER + 8, 2 * CONTROL_HEADER + 24 + 8
LEVEL_IPV6, PACKET_INFO, TRAFFIC_CLASS = 41, 50, 67
RECEIVE_PACKET_INFO, RECEIVE_TRAFFIC_CLASS, RECEIVE_ERRORS = 49, 66, 25
NO_CHECK_TX, NO_CHECK_RX = 101, 102  # of SOL_UDP
MTU_DISCOVER, PROBE = 23, 3  # no fragments, whatever path MTU the kernel assumes
BLOCK_BYTES = 4
USIDS_MAX = 4  # two of six carry the EV
BUFFER_BYTES = 8 << 20


def check(fabric: Fabric) -> None:
    """`InputError` if a path's uSIDs leave no room for the EV."""
    if fabric.n_tiers > 2:
        raise InputError(
            f'fabric.tiers = {fabric.n_tiers}: mode "udp" has room for paths of two tiers;'
            ' use mode "native"'
        )


def open_socket(interface: str) -> socket.socket:
    """Return a socket that sends and receives on one interface, without any privilege."""
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
        for level, option in (
            (socket.IPPROTO_UDP, NO_CHECK_TX),
            (socket.IPPROTO_UDP, NO_CHECK_RX),
            (LEVEL_IPV6, RECEIVE_PACKET_INFO),
            (LEVEL_IPV6, RECEIVE_TRAFFIC_CLASS),
            (LEVEL_IPV6, RECEIVE_ERRORS),
        ):
            one.setsockopt(level, option, 1)
        one.setsockopt(LEVEL_IPV6, MTU_DISCOVER, PROBE)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            one.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        one.bind(("::", UDP_PORT))
        one.setblocking(False)
    except OSError as error:
        one.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"{interface}: UDP port {UDP_PORT} is in use") from None
        raise
    return one


def new_tx(n: int, room: int) -> Batch:
    """A transmit batch: frames are written whole, datagrams begin after their UDP header."""
    batch = _behind_headers(new_batch(n, room, NAME_BYTES, TX_CONTROL))
    batch.name[:, :2] = np.frombuffer(np.uint16(socket.AF_INET6).tobytes(), np.uint8)
    batch.name[:, NAME_PORT_AT : NAME_PORT_AT + 2] = list(UDP_PORT.to_bytes(2, "big"))
    words = batch.control.view(np.int32)
    words[:, 0], words[:, 2], words[:, 3] = CONTROL_HEADER + 4, LEVEL_IPV6, TRAFFIC_CLASS
    return batch


def new_rx(n: int, room: int) -> Batch:
    """A receive batch, with room before each datagram for the headers that `restore` writes."""
    return _behind_headers(new_batch(n, room, NAME_BYTES, RX_CONTROL))


def _behind_headers(batch: Batch) -> Batch:
    batch.iov.address += np.uint64(AT)
    batch.iov.length -= np.uint64(AT)
    return batch


@inner
def write(tx, slot, p, e, payload, headend):
    """Build the datagram of a packet in a slot of `tx`; False if there is no path."""
    name = tx.name[slot]
    n = srv6.write_carrier(name, NAME_ADDRESS_AT, headend, int(p.src), int(p.dst), int(p.ev))
    if n < 0 or n > USIDS_MAX:
        return False
    _put_ev(name, NAME_ADDRESS_AT + BLOCK_BYTES + 2 * n, int(p.ev))
    last = NAME_ADDRESS_AT + BLOCK_BYTES + 2 * (n - 1)
    for i in range(BLOCK_BYTES):
        e.inner_dst[i] = name[NAME_ADDRESS_AT + i]
    for i in range(BLOCK_BYTES, 16):
        e.inner_dst[i] = name[last + i - BLOCK_BYTES] if i < BLOCK_BYTES + 6 else 0
    data = tx.data[slot]
    ev = p.ev
    p.ev = UDP_PORT  # the source port of the pseudo header (row 2), and flow label 0
    length = codec.encode(p, e, payload, data, 1)
    p.ev = ev
    if length < 0:
        return False
    tx.iov[slot].length = length - AT
    tx.control[slot, CONTROL_HEADER] = traffic_class(data)
    return True


@inlined
def _put_ev(data, at, ev):
    for i in range(4):
        data[at + i] = (ev >> (24 - 8 * i)) & 0xFF


@inlined
def traffic_class(data):
    """DSCP and ECN of a frame's IPv6 header."""
    return (int(data[CLASS_AT]) & 0xF) << 4 | int(data[CLASS_AT + 1]) >> 4


@inner
def restore(rx, i, length):
    """Write the headers with which datagram `i` arrived before it; return the length of the frame
    in bytes, 0 if the kernel did not report all of them.
    """
    data, name, control = rx.data[i], rx.name[i], rx.control[i]
    for k in range(AT):
        data[k] = 0
    data[ETHERTYPE_AT] = ETHERTYPE_IPV6 >> 8
    data[ETHERTYPE_AT + 1] = ETHERTYPE_IPV6 & 0xFF
    put(data, IP_AT, IPV6.version, 6)
    put(data, IP_AT, IPV6.payload_length, UDP.size_bytes + length)
    put(data, IP_AT, IPV6.next_header, PROTOCOL_UDP)
    put(data, IP_AT, IPV6.hop_limit, 1)
    put(data, UDP_AT, UDP.src_port, UDP_PORT)
    put(data, UDP_AT, UDP.dst_port, UDP_PORT)
    put(data, UDP_AT, UDP.length, UDP.size_bytes + length)
    for k in range(16):
        data[SRC_AT + k] = name[NAME_ADDRESS_AT + k]
    known = 0
    at = 0
    end = int(rx.message[i].control_length)
    while at + CONTROL_HEADER <= end:
        size = _four_bytes(control, at)
        if size < CONTROL_HEADER or at + size > end:
            break
        if _four_bytes(control, at + 8) == LEVEL_IPV6:
            kind = _four_bytes(control, at + 12)
            if kind == PACKET_INFO and size >= CONTROL_HEADER + 16:
                for k in range(16):
                    data[DST_AT + k] = control[at + CONTROL_HEADER + k]
                known |= 1
            elif kind == TRAFFIC_CLASS and size >= CONTROL_HEADER + 4:
                value = int(control[at + CONTROL_HEADER])
                data[CLASS_AT] = 6 << 4 | value >> 4
                data[CLASS_AT + 1] = (value & 0xF) << 4
                known |= 2
        at += (size + 7) & ~7
    return AT + length if known == 3 else 0


@inlined
def _four_bytes(data, at):
    """A native (little-endian) number that is small and positive."""
    return int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16


@inlined
def accept(e, p, headend, nic):
    """Whether a restored frame is for this NIC; if so, move its EV from the address into the
    packet.
    """
    for i in range(BLOCK_BYTES):
        if e.inner_dst[i] != (BLOCK >> (24 - 8 * i)) & 0xFF:
            return False
    if int(e.inner_dst[4]) << 8 | int(e.inner_dst[5]) != int(headend.nic[nic].usid):
        return False
    ev = 0
    for i in range(4):
        ev = ev * 256 + int(e.inner_dst[BLOCK_BYTES + 2 + i])
    p.ev = ev
    return True
