"""Capture files: a writer of pcapng, a reader of pcapng and of classic pcap.

They follow draft-ietf-opsawg-pcapng and draft-ietf-opsawg-pcap. The reader streams, accepts both
byte orders and checks every length: a file that is cut off in its last block, as an interrupted
capture leaves it, ends there (`Reader.cut_at`); an inconsistent file is an `InputError` with the
offset from which it cannot be read. A packet of an unsupported link type, in a file that has
supported ones too, becomes a frame of an unknown Ethernet type.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, NamedTuple, NoReturn, Self

from openmrc.errors import InputError
from openmrc.printable import printable
from openmrc.reading import STANDARD_INPUT, check_file
from openmrc.wire.outside import (
    LINK_ETHERNET,
    LINK_IPV4,
    LINK_IPV6,
    LINK_RAW,
    LINK_SLL,
    LINK_SLL2,
    unwrap,
)
from openmrc.wire.outside import LINKS as READ

NS_PER_S = 10**9

PACKET_BYTES_MAX = 256 * 1024  # the limit of tcpdump and Wireshark; an IP packet has 64 KiB
BLOCK_BYTES_MAX = 16 * 1024 * 1024  # as in Wireshark; a larger block has a wrong length
INTERFACES_MAX = 65_536  # of one section: the older packet block numbers no more
NAME_CHARACTERS_MAX = 256  # of an interface; Linux allows 15, a link of a fabric needs some 40

# Link types that a reader may meet, named in the message that refuses all but `READ`.
LINKS = {
    0: "NULL",
    LINK_ETHERNET: "ETHERNET",
    LINK_RAW: "RAW",
    105: "IEEE802_11",
    LINK_SLL: "LINUX_SLL, the interface 'any'",
    127: "IEEE802_11_RADIOTAP",
    197: "ERF",
    LINK_IPV4: "IPV4",
    LINK_IPV6: "IPV6",
    247: "INFINIBAND",
    LINK_SLL2: "LINUX_SLL2, the interface 'any'",
}

# Block types
_SECTION, _INTERFACE, _OLD_PACKET, _SIMPLE, _COUNTS, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 5, 6
_SECTION_BYTES = _SECTION.to_bytes(4)  # a palindrome: the same in both byte orders
_ORDER_MAGIC = 0x1A2B3C4D
# Options
_END, _USER_APPLICATION, _IF_NAME, _IF_TSRESOL, _IF_TSOFFSET = 0, 4, 2, 9, 14
_ISB_IFDROP, _ISB_OSDROP = 5, 7  # of an interface's statistics
_BLOCK_BYTES_MIN = 12  # type, length, length
_BUFFER_BYTES = 1024 * 1024
_MICROSECONDS = 10**6  # the unit of an interface that states none

_HEAD, _PACKET = Struct("<II"), Struct("<IIIIIII")
_WORD = Struct("<I")
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")  # by the length modulo 4


class Captured(NamedTuple):
    """One packet of a capture, `data` from the Ethernet header of the NIC's frame on."""

    number: int  # from 1, as Wireshark counts
    interface: str  # "" if the file names none
    time_ns: int | None  # None if the file has no times
    data: bytes
    original_length: int  # on the wire; more than `data` if the capture truncated the packet
    outside: tuple[str, ...] = ()  # encapsulations of the frame: tags, a mirror's tunnel


class Writer:
    """Writes pcapng to `stream`, which the caller closes.

    Interface i of a packet is `interfaces[i]`; times are nanoseconds. Of each packet the first
    `snap_bytes` are kept. Raises `InputError` for more interfaces than `INTERFACES_MAX` and for a
    `snap_bytes` outside 1 .. `PACKET_BYTES_MAX`.
    """

    def __init__(
        self, stream: BinaryIO, interfaces: Sequence[str], snap_bytes: int = PACKET_BYTES_MAX
    ) -> None:
        if not 1 <= snap_bytes <= PACKET_BYTES_MAX:
            raise InputError(f"snap_bytes: {snap_bytes} is refused; 1 to {PACKET_BYTES_MAX}")
        if len(interfaces) > INTERFACES_MAX:
            raise InputError(
                f"a capture of {len(interfaces)} interfaces; at most {INTERFACES_MAX}, name fewer"
            )
        self._write = stream.write
        self._snap_bytes = snap_bytes
        self._write(_section_block())
        for name in interfaces:
            self._write(_interface_block(name, snap_bytes))

    def write(
        self,
        interface: int,
        time_ns: int,
        data: bytes | memoryview,
        original_length: int | None = None,
    ) -> None:
        """Write one packet; `original_length`, bytes, is needed if `data` is only its beginning."""
        length = len(data)
        if original_length is None:
            original_length = length
        if length > self._snap_bytes:
            length = self._snap_bytes
            data = data[:length]
        block_bytes = 32 + (length + 3 & ~3)
        head = _PACKET.pack(
            _ENHANCED,
            block_bytes,
            interface,
            time_ns >> 32,
            time_ns & 0xFFFF_FFFF,
            length,
            original_length,
        )
        self._write(b"".join((head, data, _PADDING[length & 3], _WORD.pack(block_bytes))))


def _section_block() -> bytes:
    unknown_length = b"\xff" * 8
    fixed = Struct("<IHH").pack(_ORDER_MAGIC, 1, 0) + unknown_length
    return _block(_SECTION, fixed + _option(_USER_APPLICATION, b"openmrc") + _option(_END, b""))


def _interface_block(name: str, snap_bytes: int) -> bytes:
    fixed = Struct("<HHI").pack(LINK_ETHERNET, 0, snap_bytes)
    options = _option(_IF_NAME, name.encode()) + _option(_IF_TSRESOL, b"\x09")
    return _block(_INTERFACE, fixed + options + _option(_END, b""))


def _option(code: int, value: bytes) -> bytes:
    return Struct("<HH").pack(code, len(value)) + value + _PADDING[len(value) & 3]


def _block(kind: int, body: bytes) -> bytes:
    length = _BLOCK_BYTES_MIN + len(body)
    return _HEAD.pack(kind, length) + body + _WORD.pack(length)


class _Order:
    """The structures of a file in one byte order."""

    def __init__(self, mark: str) -> None:
        self.word = Struct(mark + "I")
        self.head = Struct(mark + "II")  # of a block: type, length
        self.version = Struct(mark + "HH")  # major, minor
        self.interface = Struct(mark + "HHI")  # link type, reserved, snap length
        self.counts = Struct(mark + "III")  # interface, time high, low
        self.counter = Struct(mark + "Q")
        self.option = Struct(mark + "HH")  # code, length
        self.seconds = Struct(mark + "q")
        self.enhanced = Struct(mark + "IIIII")  # interface, time high, low, captured, original
        self.older = Struct(mark + "HHIIII")  # interface, drops, then as `enhanced`
        self.classic = Struct(mark + "HHIIII")  # version, zone, accuracy, snap length, link type
        self.record = Struct(mark + "IIII")  # seconds, fraction, captured, original


_LITTLE, _BIG = _Order("<"), _Order(">")
_SECTION_MAGIC = {bytes.fromhex("4d3c2b1a"): _LITTLE, bytes.fromhex("1a2b3c4d"): _BIG}
_GZIP = b"\x1f\x8b"
# Classic pcap: the byte order, and the nanoseconds in a unit of the fraction of a second.
_CLASSIC_MAGIC = {
    bytes.fromhex("d4c3b2a1"): (_LITTLE, 1000),
    bytes.fromhex("a1b2c3d4"): (_BIG, 1000),
    bytes.fromhex("4d3cb2a1"): (_LITTLE, 1),
    bytes.fromhex("a1b23c4d"): (_BIG, 1),
}
_CLASSIC_VERSION = (bytes.fromhex("02000400"), bytes.fromhex("00020004"))  # 2.4
_RECORD_BYTES = _LITTLE.record.size


class _Interface(NamedTuple):
    name: str
    link: int
    snap_bytes: int  # 0: no limit
    units_per_s: int
    offset_ns: int


class _CutOff(Exception):
    """The file ends within a block."""


def read(path: Path | str) -> Reader:
    """Open a capture, "-" for standard input. Raises `InputError` if the file is missing, or not a
    capture of Ethernet.
    """
    given = str(path) == STANDARD_INPUT
    name = "standard input" if given else str(path)
    try:
        if not given:
            check_file(path, "a capture file, or - for standard input")
        # the reader closes it; standard input stays open
        file = io.FileIO(0 if given else path, closefd=not given)
        stream = _plain(file)
    except OSError as error:
        raise InputError(
            f"{name}: cannot be read ({error.strerror}); name a capture file"
        ) from None
    try:
        return Reader(stream, name)
    except InputError:
        stream.close()
        raise


def _plain(file: io.FileIO) -> BinaryIO:
    """The content of a file, decompressed if it is gzip's. `OSError` if it cannot be read."""
    stream = io.BufferedReader(file, _BUFFER_BYTES)
    try:
        zipped = stream.peek(2)[:2] == _GZIP
    except OSError:
        stream.close()
        raise
    return io.BufferedReader(_Unzipped(fileobj=stream), _BUFFER_BYTES) if zipped else stream


class _Unzipped(gzip.GzipFile):
    """What is in a file of gzip; nobody knows how much."""

    def fileno(self) -> int:
        raise io.UnsupportedOperation

    def readinto(self, buffer: Any) -> int:
        data = self.read1(len(buffer))  # what is there, also of a file that is cut off
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        file: Any = self.fileobj
        super().close()
        if file is not None:
            file.close()


class Reader:
    """The packets of a capture in file order; iterate over it once.

    `offset` is how far the file has been read, in bytes; `number` counts packets. `cut_at` is None,
    or, after the last packet, the offset of a block that begins in the file and does not end there.
    Iterating raises `InputError` where the file is inconsistent, after yielding the packets before
    that. `size` is that of a file in bytes, 0 of a pipe. The stream is closed at the end, or by
    leaving `with`.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.offset = 0
        self.number = 0
        self.cut_at: int | None = None
        self.size = _size(stream)
        self._stream = stream
        self._block_at = 0
        self._order = _LITTLE
        self._interfaces: list[_Interface] = []
        self._sections = 0
        self._dropped: dict[tuple[int, int], int] = {}  # by section and interface
        try:
            self._packets = self._begin()
        except _CutOff:
            what = "ends within its first header" if self.offset else "is empty"
            raise InputError(f"{name}: {what}; name a capture file") from None

    @property
    def dropped(self) -> int:
        """Packets that were there and that the capture lost, as far as it says so, at its end."""
        return sum(self._dropped.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[Captured]:
        with self:
            try:
                yield from self._packets
            except _CutOff:
                self.cut_at = self._block_at

    def _head(self, n: int) -> bytes:
        """Return the first `n` bytes of a block, none at the end of the file."""
        self._block_at = self.offset
        data = self._read(n)
        if data and len(data) < n:
            raise _CutOff
        return data

    def _take(self, n: int) -> bytes:
        data = self._read(n)
        if len(data) < n:
            raise _CutOff
        return data

    def _read(self, n: int) -> bytes:
        try:
            data = self._stream.read(n)
        except EOFError:  # of gzip's file
            raise _CutOff from None
        except (OSError, zlib.error) as error:
            why = getattr(error, "strerror", None) or f"{error}"
            raise InputError(f"{self.name}: byte {self.offset}: {why}") from None
        self.offset += len(data)
        return data

    def _refuse(self, why: str) -> NoReturn:
        raise InputError(
            f"{self.name}: byte {self._block_at}: {why};"
            " nothing can be read from there on; copy or capture the file again"
        )

    def _begin(self) -> Iterator[Captured]:
        magic = self._take(4)
        if magic in _CLASSIC_MAGIC:
            return self._classic(*self._file(magic + self._take(20)))
        if magic == _SECTION_BYTES:
            self._section(self._take(4))
            return self._blocks()
        raise InputError(
            f"{self.name}: is not a capture (it begins with {magic.hex()}); "
            "pcap and pcapng are read, also compressed by gzip"
        )

    def _check_link(self, link: int, where: str) -> None:
        if link not in READ:
            named = f" ({LINKS[link]})" if link in LINKS else ""
            raise InputError(
                f"{self.name}: {where} has link type {link}{named};"
                " only Ethernet, Linux cooked and raw IP are read,"
                " so capture on an Ethernet interface"
            )

    def _file(self, head: bytes) -> tuple[int, int]:
        """Read a classic file's header: the nanoseconds of its unit of time, and its link type."""
        self._order, unit_ns = _CLASSIC_MAGIC[head[:4]]
        major, _, _, _, _, link = self._order.classic.unpack(head[4:])
        if major != 2:
            self._refuse(f"version {major} of pcap, not 2")
        # The upper bits describe an FCS, which no reader needs: it lies after the IP packet.
        self._check_link(link & 0xFFFF, "the file")
        return unit_ns, link & 0xFFFF

    def _classic(self, unit_ns: int, link: int) -> Iterator[Captured]:
        while head := self._head(_RECORD_BYTES):
            if head[:4] in _CLASSIC_MAGIC and head[4:8] in _CLASSIC_VERSION:  # joined by cat
                unit_ns, link = self._file(head + self._take(8))
                continue
            seconds, fraction, captured, original = self._order.record.unpack(head)
            self._check_captured(captured, PACKET_BYTES_MAX)
            data = self._take(captured)
            self.number += 1
            time_ns = seconds * NS_PER_S + fraction * unit_ns
            yield _captured(self.number, "", time_ns, data, original, link)

    def _blocks(self) -> Iterator[Captured]:
        while head := self._head(8):
            if head[:4] == _SECTION_BYTES:
                self._section(head[4:])
                continue
            kind, length = self._order.head.unpack(head)
            body = self._body(length, taken=8)
            if kind == _ENHANCED:
                yield self._timed(body, self._order.enhanced)
            elif kind == _SIMPLE:
                yield self._simple(body)
            elif kind == _OLD_PACKET:
                yield self._timed(body, self._order.older)
            elif kind == _INTERFACE:
                self._interface(body)
            elif kind == _COUNTS:
                self._counts(body)
            # and no other block: names, secrets, and private ones

    def _body(self, length: int, taken: int) -> bytes:
        """Return the bytes between the first `taken` bytes of a block and its second length."""
        if length < max(_BLOCK_BYTES_MIN, taken + 4) or length % 4 or length > BLOCK_BYTES_MAX:
            self._refuse(
                f"a block of {length} bytes, where a multiple of 4 from"
                f" {_BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX} is expected"
            )
        body = self._take(length - taken)
        (again,) = self._order.word.unpack_from(body, len(body) - 4)
        if again != length:
            self._refuse(f"a block of {length} bytes whose second length is {again}")
        return body[:-4]

    def _section(self, length: bytes) -> None:
        magic = self._take(4)
        if magic not in _SECTION_MAGIC:
            self._refuse(f"a section whose byte order is {magic.hex()}")
        self._order = _SECTION_MAGIC[magic]
        (length_bytes,) = self._order.word.unpack(length)
        body = self._body(length_bytes, taken=12)
        self._check_room(body, self._order.version)
        major, _ = self._order.version.unpack_from(body)
        if major != 1:
            self._refuse(f"version {major} of pcapng, not 1")
        self._interfaces = []
        self._sections += 1

    def _interface(self, body: bytes) -> None:
        if len(self._interfaces) >= INTERFACES_MAX:
            self._refuse(f"more than {INTERFACES_MAX} interfaces")
        fixed = self._order.interface
        self._check_room(body, fixed)
        link, _, snap_bytes = fixed.unpack_from(body)
        name, units_per_s, offset_ns = "", _MICROSECONDS, 0
        for code, value in self._options(body, fixed.size):
            if code == _IF_NAME:
                name = _name(value)
            elif code == _IF_TSRESOL and len(value) == 1:
                power = value[0] & 0x7F
                units_per_s = 2**power if value[0] & 0x80 else 10**power
            elif code == _IF_TSOFFSET and len(value) == 8:
                offset_ns = self._order.seconds.unpack(value)[0] * NS_PER_S
        self._interfaces.append(_Interface(name, link, snap_bytes, units_per_s, offset_ns))

    def _counts(self, body: bytes) -> None:
        """Note how many packets the program that captured lost; later blocks have newer counts."""
        fixed = self._order.counts
        self._check_room(body, fixed)
        (interface, *_), lost = fixed.unpack_from(body), 0
        for code, value in self._options(body, fixed.size):
            if code in (_ISB_IFDROP, _ISB_OSDROP) and len(value) == 8:
                lost += self._order.counter.unpack(value)[0]
        self._dropped[self._sections, interface] = lost

    def _options(self, body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
        head = self._order.option
        while at + head.size <= len(body):
            code, length = head.unpack_from(body, at)
            at += head.size
            if code == _END:
                return
            if at + length > len(body):
                self._refuse(f"an option of {length} bytes, longer than its block")
            yield code, body[at : at + length]
            at += length + 3 & ~3

    def _timed(self, body: bytes, fixed: Struct) -> Captured:
        self._check_room(body, fixed)
        interface, *_, high, low, captured, original = fixed.unpack_from(body)
        return self._packet(interface, high << 32 | low, body, fixed.size, captured, original)

    def _simple(self, body: bytes) -> Captured:
        fixed = self._order.word
        self._check_room(body, fixed)
        (original,) = fixed.unpack_from(body)
        snap_bytes = self._interfaces[0].snap_bytes if self._interfaces else 0
        captured = min(original, snap_bytes or original)
        return self._packet(0, None, body, fixed.size, captured, original)

    def _packet(
        self, interface: int, units: int | None, body: bytes, at: int, captured: int, original: int
    ) -> Captured:
        if interface >= len(self._interfaces):
            self._refuse(f"a packet of interface {interface}, which is not described before it")
        on = self._interfaces[interface]
        if not any(other.link in READ for other in self._interfaces):
            self._check_link(on.link, f"interface {interface} {on.name!r}")
        self._check_captured(captured, len(body) - at)
        self.number += 1
        time_ns = None if units is None else units * NS_PER_S // on.units_per_s + on.offset_ns
        data = body[at : at + captured]
        return _captured(self.number, on.name, time_ns, data, original, on.link)

    def _check_room(self, body: bytes, fixed: Struct) -> None:
        if len(body) < fixed.size:
            self._refuse(f"a block with {len(body)} of the {fixed.size} bytes that it must have")

    def _check_captured(self, captured: int, room: int) -> None:
        if captured > min(room, PACKET_BYTES_MAX):
            self._refuse(
                f"a packet of {captured} bytes, where at most {min(room, PACKET_BYTES_MAX)} fit"
            )


def _size(stream: BinaryIO) -> int:
    try:
        return os.fstat(stream.fileno()).st_size
    except OSError:  # in memory
        return 0


def _captured(
    number: int, name: str, time_ns: int | None, data: bytes, original: int, link: int
) -> Captured:
    data, removed, said = unwrap(data, link)
    return Captured(number, name, time_ns, data, original - removed, said)


def _name(name: bytes) -> str:
    """A name as text that is safe to show on a terminal."""
    return printable(name.decode(errors="replace").rstrip("\0"))[:NAME_CHARACTERS_MAX]
