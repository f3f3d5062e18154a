"""Readers of the protocols in a capture: MRC, RoCEv2 on the same port, pause frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import frame, layout, lines, view
from openmrc.wire.frame import WireError
from openmrc.wire.lines import FOREIGN, Frames
from openmrc.wire.pcap import Captured
from openmrc.wire.roce import lines as roce_lines
from openmrc.wire.roce import pause
from openmrc.wire.roce import view as roce_view
from openmrc.wire.roce.lines import RoceError, RoceFrames
from openmrc.wire.roce.pause import PauseError
from openmrc.wire.roce.summary import RoceSummary
from openmrc.wire.summary import Summary
from openmrc.wire.walk import Part

MRC, ROCE, PFC = "MRC", "RoCEv2", "PFC"


class Found(NamedTuple):
    """A packet that was read: its protocol, and the reader's result."""

    protocol: str
    frame: Any  # lines.Frame; for PFC a Pause

    @property
    def qpn(self) -> int | None:
        """The destination QP; None for a pause frame."""
        return None if self.protocol == PFC else int(self.frame.p.dst_qpn)

    def line(self) -> str:
        """One line that summarises it."""
        return _LINES[self.protocol](self.frame)

    def add_to(self, captured: Captured, mrc: Summary, roce: RoceSummary) -> None:
        """Count it in the summary of its protocol; `mrc` counts all packets."""
        if self.protocol == MRC:
            mrc.add(self.frame.p, self.frame.endpoint)
            return
        mrc.packets += 1
        if self.protocol == ROCE:
            roce.add(self.frame.p, self.frame.endpoint)
        else:
            roce.add_pause(self.frame, captured.interface)


class Unread(NamedTuple):
    """A packet that could not be read: its protocol, or None if unknown."""

    protocol: str | None
    offset: int
    reason: str
    # its fields, if all headers can be read, as the protocol that they were read as
    found: Found | None = None
    whole: Captured | None = None
    # else, for MRC: the complete headers, and their fields
    part: Part | None = None
    said: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether its headers can be read up to the BTH at least."""
        part = self.part
        behind_udp = part is not None and (part.missing or part.header(layout.BTH))
        return self.found is not None or bool(behind_udp)

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
        unread = Unread(protocol, error.offset, error.reason)
        if error.code == frame.IP_LENGTH:
            captured = captured._replace(original_length=_length_said(captured.data))
        if error.code in (frame.IP_LENGTH, frame.ICRC):
            try:
                found = Found(protocol or MRC, frames.read(captured, check=False))
                return unread._replace(found=found, whole=captured)
            except WireError:
                pass
        if protocol != MRC:
            return unread
        part = self._mrc.part(captured)
        return unread._replace(part=part, said=self._mrc.part_line(part))

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
