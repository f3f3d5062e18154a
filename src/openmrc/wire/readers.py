"""Readers of the protocols in a capture: MRC, RoCEv2 on the same port, pause frames.

`Readers.read` reads one packet. `Readers.packets` reads a frame of a capture: it takes apart what a
host has joined, reads on behind other people's IP headers, and decides what a frame is that could
not be read: a cut copy, another protocol's, or a damaged one, which is one that was surely meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil
from typing import Any, NamedTuple

from openmrc.engine import packet
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import frame, layout, lines, offload, outside, view
from openmrc.wire.frame import WireError
from openmrc.wire.lines import FOREIGN, Frames
from openmrc.wire.meant import MRC, ROCE, exact_bytes, meant
from openmrc.wire.offload import Layers
from openmrc.wire.pcap import Captured
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import lines as roce_lines
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce import pause
from openmrc.wire.roce import view as roce_view
from openmrc.wire.roce.lines import RoceError, RoceFrames
from openmrc.wire.roce.pause import PauseError
from openmrc.wire.roce.summary import RoceSummary
from openmrc.wire.summary import QpRow, Summary
from openmrc.wire.walk import Part, is_trimmed

PFC = "PFC"


SEGMENTS_MAX = 128  # packets that Linux joins (UDP_MAX_SEGMENTS)
JOINED = "several packets in one frame, which cannot be told apart"
UNKNOWN_OPCODE = "an opcode of neither MRC nor RoCEv2"
TRIMS = packet.TRIMMED | packet.TRIMMED_LASTHOP
_PMTU_LEAST = 256  # bytes
# errors of a frame that may have another's IP headers around it
_AROUND = {frame.ROUTING, frame.CARRIER_EMPTY, frame.NEXT_HEADER, frame.IP_LENGTH, frame.IP_VERSION}


class Found(NamedTuple):
    """A packet that was read: its protocol, and the reader's result.

    `more` packets at most stand behind it in its frame and were not captured; `size`, bytes, is
    that of its payload if the frame may also be one packet. `numbered_0`: its iCRC is right for an
    IPv4 identification of 0.
    """

    protocol: str
    frame: Any  # lines.Frame; for PFC a Pause
    more: int = 0
    size: int | None = None
    numbered_0: bool = False

    @property
    def qpn(self) -> int | None:
        """The destination QP; None for a pause frame."""
        return None if self.protocol == PFC else int(self.frame.p.dst_qpn)

    @property
    def hidden(self) -> int:
        """Packets at most that the frame surely holds and the capture does not."""
        return 0 if self.size is not None else self.more

    def line(self) -> str:
        """One line that summarises it."""
        return _LINES[self.protocol](self.frame)

    def add_to(
        self, captured: Captured, mrc: Summary, roce: RoceSummary, hosts: dict[str, str]
    ) -> None:
        """Count it in the summary of its protocol; `mrc` counts all packets. `hosts` names the
        rows of addresses.
        """
        if self.protocol == PFC:
            mrc.packets += 1
            roce.add_pause(self.frame, captured.interface)
            return
        endpoint = hosts.get(self.frame.destination, self.frame.endpoint)
        row: QpRow | None
        if self.protocol == MRC:
            source = hosts.get(self.frame.source, self.frame.source)
            row = mrc.add(self.frame.p, endpoint, source)
        else:
            mrc.packets += 1
            row = roce.add(self.frame.p, endpoint)
        if row is not None:
            row.hide(self.more, self.size)


class Unread(NamedTuple):
    """A packet that could not be read: its protocol, or None if unknown."""

    protocol: str | None
    offset: int
    reason: str
    # its fields, if all headers can be read, as the protocol that they were read as
    found: Found | None = None
    whole: Captured | None = None
    # else: the complete headers, and their fields
    part: Part | None = None
    said: str = ""
    code: int = frame.OK
    is_cut: bool = False  # the capture lacks the rest, which may be all right
    counted: Found | None = None  # of one that is cut: what goes into the tables

    @property
    def is_shown(self) -> bool:
        """Whether its headers can be read up to the BTH at least."""
        part = self.part
        behind_udp = part is not None and (part.missing or part.has_bth)
        return self.found is not None or bool(behind_udp and self.said)

    @property
    def qpn(self) -> int | None:
        """The destination QP, if it is counted."""
        return None if self.counted is None else self.counted.qpn

    def line(self) -> str:
        """The readable part, with the error and the missing headers in brackets; without a BTH, the
        offset of the error.
        """
        said = self.said if self.found is None else self.found.line()
        if not self.is_shown:
            bad = f"BAD byte {self.offset}: {self.reason}"
            return f"{said}  {bad}" if said else bad
        names = ", ".join(header.name for header in self.part.missing) if self.part else ""
        missing = f": {names} missing" if names else ""
        return f"{said}  [{self.reason}{missing}]"


class Readers:
    """Reads packet by packet, in its own buffers; the senders' choices are as in `lines.Frames`.

    `on_roce` is called before the first packet that may be RoCEv2; `check` verifies iCRCs.
    """

    def __init__(
        self,
        ev_swapped: bool = False,
        on_roce: Callable[[], None] = lambda: None,
        ports_from_1: bool = False,
        check: bool = True,
        dscps: Dscps = DEFAULT,
    ) -> None:
        self._swapped, self._check, self._dscps = ev_swapped, check, dscps
        self._mrc = Frames(ev_swapped, ports_from_1, dscps)
        self._roce: RoceFrames | None = None
        self._on_roce = on_roce

    def packets(self, captured: Captured) -> Iterator[tuple[Captured, Found | Unread]]:
        """Read a frame, and yield the packets in it, each with its own bytes."""
        found = self.read(captured)
        if self._is_settled(captured, found):
            yield captured, found
        else:
            yield from self._packets(captured, found, outside.LAYERS_MAX)

    def _is_settled(self, captured: Captured, found: Found | Unread) -> bool:
        """Whether a packet is what `read` says: its iCRC is right, or it is not IP."""
        if isinstance(found, Unread):
            return found.code == frame.ETHERTYPE or found.protocol == PFC
        if found.protocol == PFC:
            return True
        is_whole = len(captured.data) >= captured.original_length
        return self._check and is_whole and not found.frame.p.flag_bits & TRIMS

    def _packets(
        self, captured: Captured, found: Found | Unread, depth: int
    ) -> Iterator[tuple[Captured, Found | Unread]]:
        """The packets of a frame that may be more, or less, than what `read` made of it."""
        if self._keeps_lengths(captured, found):
            yield captured, found
            return
        captured, found, layers = self._completed(captured, found)
        if isinstance(found, Unread) and found.code in _AROUND and depth:
            inside = self._inside(captured, depth)
            if inside:
                yield from inside
                return
        joined = layers and self._split(captured, layers)
        if not layers or not joined:
            yield self._judged(captured, found, layers)
            return
        for number, part in enumerate(joined.packets):
            name = f"{number + 1} of {joined.total}"
            one = part._replace(outside=(*part.outside, name))
            found_there = offload.layers(one.data, one.original_length)
            one, told = self._judged(one, self.read(one), found_there, number)
            if number + 1 == len(joined.packets):
                told = _with_more(told, joined.total - number - 1)
            yield one, told

    def _keeps_lengths(self, captured: Captured, found: Found | Unread) -> bool:
        """Whether lengths of a trimmed packet are still those of the whole: it is neither a cut
        copy nor several packets, though they read like it.
        """
        if not isinstance(found, Found) or not found.frame.p.flag_bits & TRIMS:
            return False
        layers = offload.layers(captured.data, captured.original_length)
        return layers is not None and (layers.end > captured.original_length or not layers.fits)

    def _completed(
        self, captured: Captured, found: Found | Unread
    ) -> tuple[Captured, Found | Unread, Layers | None]:
        """A frame with the lengths that it was sent with, read again if they differ."""
        layers = offload.layers(captured.data, captured.original_length)
        if layers is None and isinstance(found, Unread) and found.code == frame.IP_LENGTH:
            said = _length_said(captured.data)
            if said > captured.original_length:
                outside = (*captured.outside, offload.COPY)
                captured = captured._replace(original_length=said, outside=outside)
                found = self.read(captured)
        while layers is not None:
            better = offload.whole(captured, layers)
            if better is captured:
                break
            captured = better
            found = self.read(captured)
            layers = offload.layers(captured.data, captured.original_length)
        return captured, found, layers

    def _inside(self, captured: Captured, depth: int) -> list[tuple[Captured, Found | Unread]]:
        """What is in other people's IP headers; nothing if that is neither MRC nor RoCEv2, or if
        the headers are meant as MRC's, with a fault behind them that is not of the payload alone.
        """
        inside = outside.inside_ip(captured.data)
        if inside is None:
            return []
        name, data = inside
        length = captured.original_length - len(captured.data) + len(data)
        around = (*captured.outside, name)
        one = captured._replace(data=data, original_length=length, outside=around)
        found = self.read(one)
        told = [*self._packets(one, found, depth - 1)]
        protocols = {each.protocol for _, each in told}
        return [] if None in protocols or any(_is_damage(each) for _, each in told) else told

    def _split(self, captured: Captured, layers: Layers) -> offload.Joined | None:
        trimmed = is_trimmed(captured.data, self._dscps)

        def size_of(body: bytes) -> int | None:
            return exact_bytes(body, trimmed)

        def is_right(one: Captured) -> bool:
            if trimmed or len(one.data) < one.original_length:
                return False
            found = offload.layers(one.data, len(one.data))
            _, told = self._judged(one, self._read_checked(one), found)
            return isinstance(told, Found)

        if meant(captured.data, layers) is None:
            return None
        return offload.split(captured, layers, size_of, is_right, in_order=not trimmed)

    def _read_checked(self, captured: Captured) -> Found | Unread:
        check, self._check = self._check, True
        try:
            return self.read(captured)
        finally:
            self._check = check

    def _judged(
        self, captured: Captured, found: Found | Unread, layers: Layers | None, number: int = 0
    ) -> tuple[Captured, Found | Unread]:
        """What a packet is: one that may hold more, cut, of another protocol, or damaged; `number`
        is its place in its frame, from 0, by which the kernel numbers it over IPv4.
        """
        cut = len(captured.data) < captured.original_length or (
            layers is None and _says_no_length(captured.data)
        )
        if isinstance(found, Found):
            return captured, _perhaps_more(found) if cut and found.protocol != PFC else found
        if found.code == frame.ICRC and layers is not None:
            for more in (number, None):
                one = offload.identified(captured, layers, more)
                again = self.read(one)
                if isinstance(again, Found) and more is None:
                    return captured, again._replace(numbered_0=True)
                if isinstance(again, Found):
                    return one, again
        return captured, self._unread(found, layers and meant(captured.data, layers), layers, cut)

    def _unread(
        self, bad: Unread, protocol: str | None, layers: Layers | None, cut: bool
    ) -> Unread:
        """What a packet that cannot be read is; `protocol` is what it was surely meant as."""
        if bad.code == frame.TOO_SHORT and cut:
            return self._cut(bad)
        if protocol is None or layers is None:
            reason = UNKNOWN_OPCODE if bad.code == frame.OPCODE else bad.reason
            return Unread(None, bad.offset, reason, code=bad.code)
        if bad.code == frame.PAYLOAD_LENGTH and bad.part is not None:
            least = layout.BTH.size_bytes + layout.ICRC.size_bytes
            room = (layers.end - layers.bth) // least
            return self._cut(bad._replace(reason=JOINED), min(room, SEGMENTS_MAX) - 1)
        return bad

    def _cut(self, bad: Unread, more: int = 0) -> Unread:
        """A packet of which the tables count what is there."""
        frames = self._roce if bad.protocol == ROCE else self._mrc
        known = roce_layout.OPCODES if bad.protocol == ROCE else layout.OPCODES
        told = bad.part and frames and frames.part_frame(bad.part)
        if not told or not bad.part or not bad.part.has_bth or told.p.opcode not in known:
            return bad._replace(is_cut=True)
        counted = Found(bad.protocol or MRC, told, more)
        if more:
            told.p.payload_len = 0  # of the first packet: not known
        else:
            counted = _perhaps_more(counted)
        return bad._replace(is_cut=True, counted=counted)

    def read(self, captured: Captured) -> Found | Unread:
        """Read one packet of any of these protocols."""
        try:
            return Found(MRC, self._mrc.read(captured, self._check))
        except WireError as error:
            if error.code == frame.OPCODE:
                return self._read_roce(captured, error)
            if error.code == frame.ETHERTYPE and pause.is_mac_control(captured.data):
                return _read_pause(captured)
            known = None if error.code in FOREIGN else MRC
            return self._damaged(captured, known, self._mrc, error)

    def _damaged(
        self, captured: Captured, protocol: str | None, frames: Frames, error: WireError
    ) -> Unread:
        """The readable part of a packet with a wrong iCRC, a missing tail, or another error."""
        unread = Unread(protocol, error.offset, error.reason, code=error.code)
        if error.code == frame.IP_LENGTH:
            captured = captured._replace(original_length=_length_said(captured.data))
        if error.code in (frame.IP_LENGTH, frame.ICRC):
            try:
                found = Found(protocol or MRC, frames.read(captured, check=False))
                return unread._replace(found=found, whole=captured)
            except WireError:
                pass
        if protocol is None:
            return unread
        part = frames.part(captured)
        return unread._replace(part=part, said=frames.part_line(part))

    def _read_roce(self, captured: Captured, as_mrc: WireError) -> Found | Unread:
        if self._roce is None:
            self._on_roce()
            self._roce = RoceFrames()
        try:
            return Found(ROCE, self._roce.read(captured, self._check))
        except RoceError as error:
            return self._damaged(captured, ROCE, self._roce, error)
        except WireError:  # an opcode of neither
            return self._damaged(captured, MRC, self._mrc, as_mrc)

    def part_fields(self, captured: Captured, part: Part) -> dict[str, Any]:
        """The fields of all complete headers, and the names of the missing ones."""
        return {
            "length": captured.original_length,
            "headers": {each.name: view.fields_of(each, self._dscps) for each in part.headers},
            "missing": [header.name for header in part.missing],
        }

    def fields(self, captured: Captured, protocol: str) -> dict[str, Any]:
        """Every header's fields of a packet that was read, or whose iCRC alone is wrong."""
        data, length = captured.data, captured.original_length
        if protocol == PFC:
            return {"length": length, "headers": {PFC: pause.read(data).as_dict()}}
        if protocol == ROCE:
            return roce_view.decode(data, check=False, length=length).as_dict()
        return view.decode(
            data, check=False, length=length, ev_swapped=self._swapped, dscps=self._dscps
        ).as_dict()


def _length_said(data: bytes) -> int:
    """The length of the frame that its first IP header states."""
    at = layout.ETHERNET.size_bytes
    if data[at] >> 4 == 4:
        return at + int.from_bytes(data[at + 2 : at + 4], "big")
    return at + layout.IPV6.size_bytes + int.from_bytes(data[at + 4 : at + 6], "big")


def _says_no_length(data: bytes) -> bool:
    """Whether the first IP header leaves its length to the NIC."""
    at = {layout.ETHERTYPE_IPV4: 16, layout.ETHERTYPE_IPV6: 18}.get(int.from_bytes(data[12:14]), 0)
    return at > 0 and data[at : at + 2] == b"\0\0"


def _is_damage(found: Found | Unread) -> bool:
    return isinstance(found, Unread) and not found.is_cut and found.code != frame.ICRC


def _with_more(told: Found | Unread, more: int) -> Found | Unread:
    """The last packet of a frame that was captured, with `more` behind it."""
    if isinstance(told, Found):
        return told._replace(more=more, size=None)
    return told._replace(counted=told.counted and told.counted._replace(more=more))


def _perhaps_more(found: Found) -> Found:
    """A packet that was cut. Its payload is that of several packets if it is longer than the
    message; and may be if it is not the last of its message: then it is a PMTU, in nearly all
    networks a power of two, or else that of several.
    """
    p, length = found.frame.p, int(found.frame.p.payload_len)
    name = roce.OPERATIONS.get(p.opcode & roce.OPERATION_MASK, "")
    most = min(ceil(length / _PMTU_LEAST), SEGMENTS_MAX) - 1
    if name.startswith("WRITE") and p.dma_len and length > p.dma_len:
        return found._replace(more=most)
    if name.endswith(("_FIRST", "_MIDDLE")) and length & (length - 1):
        return found._replace(more=most, size=length)
    return found


def _read_pause(captured: Captured) -> Found | Unread:
    try:
        return Found(PFC, pause.read(captured.data))
    except PauseError as error:
        return Unread(PFC, error.offset, error.reason)


_LINES: dict[str, Callable[[Any], str]] = {
    MRC: lines.line,
    ROCE: roce_lines.line,
    PFC: pause.line,
}
