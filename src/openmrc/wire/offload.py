"""Frames as hosts and mirrors have them, made into the packets of the wire.

Three things stand in captures that no link carries:

* **Joined packets.** A host segments behind the place of capture (GSO, USO) and joins before it
  (GRO): one IP packet whose UDP payload is that of several, of equal size but the last, which may
  be shorter. `split` makes them again: the headers in front are those of the first, with the
  lengths of each; every packet begins with a BTH of its own.
* **Lengths of 0.** A host leaves those of IP to its NIC: the packet then ends where UDP says, or,
  of more than 64 KiB, with the frame.
* **Cut copies.** A mirror keeps the first bytes of a frame and not its length: the IP length still
  says the whole.

Nothing in a frame says how large the joined packets are. They are as large as an opcode without
payload must be; or so that every packet continues the first one's PSNs, or, trimmed, is of its QP;
or so that the first one's iCRC is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from openmrc.wire import layout
from openmrc.wire.pcap import Captured

SIZES_MAX = 64  # sizes that are tried for a frame, where its bytes allow several
HEADERS_MAX = 8  # IP headers and their extensions, one within the other

_UNIT = 4  # bytes; packets are padded to it
_IP_IN_IP, _HOP_BY_HOP, _OPTIONS = 4, 0, 60
_BTH, _ICRC = layout.BTH.size_bytes, layout.ICRC.size_bytes
_PKEY, _QPN, _PSN = (layout.BTH.byte(name) for name in ("pkey", "dest_qpn", "psn"))
_IDENTIFICATION = layout.IPV4.byte("identification")
_TOTAL_LENGTH, _PAYLOAD_LENGTH = (
    layout.IPV4.byte("total_length"),
    layout.IPV6.byte("payload_length"),
)
_CHECKSUM = layout.IPV4.byte("header_checksum")
_UDP_LENGTH = layout.UDP.byte("length")
COPY = "cut copy"


class Layers(NamedTuple):
    """Where the headers of a frame are, in bytes from its first."""

    ips: tuple[int, ...]  # outermost first
    udp: int
    end: int  # of the first IP packet, as its length says, or of the frame
    fits: bool  # whether all lengths agree, and the sum of an IPv4 header
    zero: bool  # whether an IP length was 0

    @property
    def bth(self) -> int:
        """What follows UDP."""
        return self.udp + layout.UDP.size_bytes


def layers(data: bytes, length: int) -> Layers | None:
    """Find the headers of a frame of `length` bytes up to UDP; None if it has none, or not all."""
    kind = int.from_bytes(data[12:14], "big")
    if kind not in layout.ETHERTYPES:
        return None
    at, protocol = layout.ETHERNET.size_bytes, layout.PROTOCOL_IPV6
    if kind == layout.ETHERTYPE_IPV4:
        protocol = _IP_IN_IP
    ips: list[int] = []
    ends: list[int] = []  # 0: not said
    fits = True
    for _ in range(HEADERS_MAX):
        if protocol == layout.PROTOCOL_UDP:
            if len(data) < at + layout.UDP.size_bytes:
                return None
            told = _number(data, at + _UDP_LENGTH)
            zero = 0 in ends
            here = at + told if told or not zero else length
            ends = [end or here for end in ends]
            return Layers(tuple(ips), at, ends[0], fits and {*ends} == {here}, zero)
        if protocol == _IP_IN_IP:
            size = 4 * (data[at] & 0xF) if len(data) > at else 0
            if len(data) < at + 20 or data[at] >> 4 != 4 or size < 20:
                return None
            if _number(data, at + 6) & 0x3FFF:  # more fragments, or not the first one
                return None
            told = _number(data, at + _TOTAL_LENGTH)
            fits = fits and (told == 0 or _number_of(data[at : at + size]) % 0xFFFF == 0)
            following, behind = data[at + 9], at + size
            end = at + told if told else 0
        elif protocol == layout.PROTOCOL_IPV6:
            if len(data) < at + 40 or data[at] >> 4 != 6:
                return None
            told = _number(data, at + _PAYLOAD_LENGTH)
            following, behind = data[at + 6], at + 40
            end = behind + told if told else 0
        elif protocol in (_HOP_BY_HOP, _OPTIONS, layout.PROTOCOL_ROUTING) and len(data) > at + 1:
            protocol, at = data[at], at + 8 * (data[at + 1] + 1)
            continue
        else:
            return None
        ips.append(at)
        ends.append(end)
        protocol, at = following, behind
    return None


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "big")


def _number_of(data: bytes) -> int:
    return int.from_bytes(data, "big")


def whole(captured: Captured, found: Layers) -> Captured:
    """Fill lengths of 0, without the option that says them instead (RFC 2675), and give a cut copy
    the length that its IP header says.
    """
    at = found.ips[0]
    if found.zero and captured.data[at] >> 4 == 6 and captured.data[at + 6] == _HOP_BY_HOP:
        return _without_option(captured, at)
    if found.zero and found.end - found.ips[0] <= 0xFFFF:
        front = _front(captured.data, found, found.end)
        return captured._replace(data=front + captured.data[found.bth :])
    if found.fits and found.end > captured.original_length:
        outside = (*captured.outside, COPY)
        return captured._replace(original_length=found.end, outside=outside)
    return captured


def _without_option(captured: Captured, at: int) -> Captured:
    data, behind = captured.data, at + layout.IPV6.size_bytes
    size = 8 * (data[behind + 1] + 1)
    front = data[: at + 6] + data[behind : behind + 1] + data[at + 7 : behind]
    length = captured.original_length - size
    return captured._replace(data=front + data[behind + size :], original_length=length)


def _front(data: bytes, found: Layers, end: int, identification: int | None = None) -> bytes:
    """The headers up to UDP of a packet that ends at `end`."""
    front = bytearray(data[: found.bth])
    for at in found.ips:
        if front[at] >> 4 == 4:
            _put(front, at + _TOTAL_LENGTH, end - at)
            if identification is not None:
                _put(front, at + _IDENTIFICATION, identification)
            _put(front, at + _CHECKSUM, 0)
            header = front[at : at + 4 * (front[at] & 0xF)]
            _put(front, at + _CHECKSUM, -_number_of(bytes(header)) % 0xFFFF)
        else:
            _put(front, at + _PAYLOAD_LENGTH, end - at - layout.IPV6.size_bytes)
    _put(front, found.udp + _UDP_LENGTH, end - found.udp)
    return bytes(front)


def _put(data: bytearray, at: int, value: int) -> None:
    data[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")


def identified(captured: Captured, found: Layers, more: int | None) -> Captured:
    """The frame with another identification in its inner IPv4 header: that of the first of joined
    packets and `more`, as the kernel numbers them; or 0, as senders take it that leave it to the
    kernel.
    """
    at = found.ips[-1]
    if captured.data[at] >> 4 != 4:
        return captured
    told = 0 if more is None else _number(captured.data, at + _IDENTIFICATION) + more
    front = _front(captured.data, found, found.end, told & 0xFFFF)
    return captured._replace(data=front + captured.data[found.bth :])


class Joined(NamedTuple):
    """The packets of a frame of which the beginning was captured, and how many there are."""

    packets: list[Captured]
    total: int


def split(
    captured: Captured,
    found: Layers,
    size_of: Callable[[bytes], int | None],
    is_right: Callable[[Captured], bool],
    in_order: bool = True,
) -> Joined | None:
    """The packets of a frame that holds several; None if it holds one, or they cannot be told.

    `size_of` says how many bytes from a BTH on a packet must have, or None, by its first bytes;
    `is_right` whether the iCRC of a packet is right. Without `in_order` PSNs need not continue:
    switches trim some packets of several.
    """
    room = found.end - found.bth
    body = captured.data[found.bth : found.end]
    exact = size_of(body)
    for size in _sizes(body, room) if exact is None else [exact]:
        if not 0 < size < room or size % _UNIT:
            continue
        starts = range(0, min(room, len(body) - _BTH + 1), size)
        if len(starts) < 2 and exact is None:
            continue
        if room % size and room % size < _BTH:
            continue
        first = _packet(captured, found, 0, min(size, room))
        if exact is not None:
            right = all(size_of(body[at:]) == exact for at in starts if at + size <= room)
        else:
            right = _continues(body, starts, in_order) or (size <= len(body) and is_right(first))
        if right:
            packets = [_packet(captured, found, at, min(size, room - at)) for at in starts]
            return Joined(packets, -(-room // size))
    return None


def _sizes(body: bytes, room: int) -> Iterator[int]:
    """Sizes after which another BTH of the same partition, and first the same QP, begins."""
    told: set[int] = set()
    pkey = body[_PKEY : _PKEY + 2]
    for wanted in (body[_PKEY : _PSN - 1], pkey):
        at = body.find(wanted, _BTH + _ICRC + _PKEY) if len(wanted) >= 2 else -1
        while at >= 0 and len(told) < SIZES_MAX:
            size = at - _PKEY
            if size % _UNIT == 0 and size not in told and size < room:
                told.add(size)
                yield size
            at = body.find(wanted, at + 1)


def _continues(body: bytes, starts: range, in_order: bool) -> bool:
    """Whether a BTH is at each of these places, and, `in_order`, each has the PSN behind the one
    before.
    """
    front = body[_PKEY : _PKEY + 2], body[_QPN : _QPN + 3]
    psn = int.from_bytes(body[_PSN : _PSN + 3], "big")
    for number, at in enumerate(starts):
        there = body[at + _PKEY : at + _PKEY + 2], body[at + _QPN : at + _QPN + 3]
        expected = psn + number & 0xFF_FFFF
        told = int.from_bytes(body[at + _PSN : at + _PSN + 3], "big")
        if there != front or (in_order and told != expected):
            return False
        if (body[at] ^ body[0]) & 0xE0:  # of another service, or protocol
            return False
    return True


def _packet(captured: Captured, found: Layers, at: int, size: int) -> Captured:
    """The packet of `size` bytes from its BTH on, which begins `at` bytes behind the first."""
    end = found.bth + size
    begin = found.bth + at
    data = _front(captured.data, found, end) + captured.data[begin : begin + size]
    return captured._replace(data=data, original_length=end)
