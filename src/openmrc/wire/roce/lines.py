"""Captured RoCEv2 packets as plain values, and as one line of text each; as `lines` for MRC."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from openmrc.engine import packet
from openmrc.wire import frame, layout
from openmrc.wire.lines import Fields, Frame, Frames, Missing, ends_of_part, frame_of
from openmrc.wire.pcap import PACKET_BYTES_MAX, Captured
from openmrc.wire.roce import codec as roce_codec
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce import view as roce_view
from openmrc.wire.walk import Part, walk_part

NO_PSN = {roce.CNP}  # opcodes whose BTH.psn has no meaning
_ACK, _RNR, _NAK = 0, 1, 3  # upper three bits of a syndrome


class RoceError(frame.WireError):
    """Bytes that are RoCEv2 by their opcode, but invalid."""


class RoceFrames(Frames):
    """Decodes packet by packet, in its own buffers. A QP of RoCEv2 has one address: its row is
    that of its destination.
    """

    _decode = staticmethod(roce_codec.decode)

    def read(self, captured: Captured, check: bool = True) -> Frame:
        """Decode one packet. Raises `RoceError`, and `WireError` if its opcode is not known."""
        try:
            return super().read(captured, check)
        except frame.WireError as error:
            if error.code in (frame.OPCODE, frame.UDP_PORT):
                raise
            raise RoceError(error.code, error.offset) from None

    def _frame(self, p: Any, envelope: Any) -> Frame:
        found = frame_of(p, envelope)
        return found._replace(endpoint=found.destination)

    def _look(self, data: bytes, length: int) -> None:
        roce_view.decode(data, check=False, length=length)

    def part(self, captured: Captured) -> Part:
        """Return the complete headers of a packet that `read` refused."""
        kept, length = len(captured.data), captured.original_length
        return walk_part(
            captured.data,
            length if length <= PACKET_BYTES_MAX else kept,
            None,
            roce_layout.BTH,
            roce_layout.EXTENSIONS,
        )

    def part_frame(self, part: Part) -> Frame | None:
        """Return what is known of such a packet, None without a complete BTH."""
        ip, udp = part.header(layout.IPV6, layout.IPV4), part.header(layout.UDP)
        bth = part.header(roce_layout.BTH)
        if ip is None or udp is None or bth is None:
            return None
        p = SimpleNamespace(**dict.fromkeys(Fields._fields, 0))
        p.opcode, p.psn, p.dst_qpn = bth["opcode"], bth["psn"], bth["dest_qpn"]
        p.ev, p.payload_len = udp["src_port"], part.payload_length
        marked = any(said.fields.get("ecn") == layout.ECN_CE for said in part.headers)
        p.flag_bits = packet.ACK_REQ * bth["a"] | packet.CE * marked
        for header, names in _SAID:
            said = part.header(header)
            vars(p).update((name, None if said is None else said[told]) for name, told in names)
        source, destination, _ = ends_of_part(part, ip)
        return Frame(p, source, destination, destination, part.missing)

    def part_line(self, part: Part) -> str:
        """Return the line of such a packet; an empty line without a complete BTH of RoCEv2."""
        found = self.part_frame(part)
        return line(found) if found and found.p.opcode in roce_layout.OPCODES else ""


# fields of the record by headers, and their names there
_SAID = (
    (layout.RETH, (("va", "va"), ("dma_len", "dma_length"))),
    (layout.IMMDT, (("imm", "imm"),)),
    (layout.AETH, (("reason", "syndrome"), ("msn", "msn"))),
)


def line(found: Frame) -> str:
    """Return one line that summarises a packet."""
    p = found.p
    flags = {packet.ACK_REQ: "ACK_REQ", packet.CE: "CE"}
    parts = [
        f"{found.source} -> {found.destination}",
        f"QP {p.dst_qpn:#x}",
        roce_layout.OPCODES[p.opcode],
        "" if p.opcode in NO_PSN else f"PSN {p.psn}",
        f"port {p.ev}",
        " ".join(name for bit, name in flags.items() if p.flag_bits & bit),
        ", ".join(_details(p, found.missing)),
    ]
    return "  ".join(part for part in parts if part)


def syndrome_name(syndrome: int) -> str:
    """Return "ACK", "RNR_NAK", the reason of a NAK, or the number if it has no name."""
    if syndrome in roce_layout.SYNDROMES:
        return roce_layout.SYNDROMES[syndrome]
    what = syndrome >> 5
    return {_ACK: "ACK", _RNR: "RNR_NAK"}.get(what, f"syndrome {syndrome:#04x}")


def _details(p: Any, missing: Missing) -> Iterator[str]:
    """What the extension headers say, as far as they are there, and the bytes of the payload."""
    headers = [header for header in roce_layout.EXTENSIONS[p.opcode] if header not in missing]
    carries = roce_layout.payload_bytes_max(p.opcode) > 0
    if layout.RETH in headers:
        yield f"va {p.va & (1 << 64) - 1:#x}"
        yield f"{p.payload_len} of {p.dma_len} B" if carries else f"{p.dma_len} B"
    elif roce_layout.ATOMIC in headers and p.va is not None:
        yield f"va {p.va & (1 << 64) - 1:#x}"
    elif carries:
        yield f"{p.payload_len} B"
    if layout.IMMDT in headers:
        yield f"imm {p.imm:#x}"
    if layout.AETH in headers:
        yield syndrome_name(p.reason)
        yield f"msn {p.msn}"
