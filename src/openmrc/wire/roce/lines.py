"""Captured RoCEv2 packets as plain values, and as one line of text each; as `lines` for MRC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from openmrc.engine import packet
from openmrc.wire import frame
from openmrc.wire.lines import Frame, Frames
from openmrc.wire.pcap import Captured
from openmrc.wire.roce import codec as roce_codec
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.roce import view as roce_view

NO_PSN = {roce.CNP}  # opcodes whose BTH.psn has no meaning
_ACK, _RNR, _NAK = 0, 1, 3  # upper three bits of a syndrome


class RoceError(frame.WireError):
    """Bytes that are RoCEv2 by their opcode, but invalid."""


class RoceFrames(Frames):
    """Decodes packet by packet, in its own buffers."""

    _decode = staticmethod(roce_codec.decode)

    def read(self, captured: Captured, check: bool = True) -> Frame:
        """Decode one packet. Raises `RoceError`, and `WireError` if its opcode is not known."""
        try:
            return super().read(captured, check)
        except frame.WireError as error:
            if error.code in (frame.OPCODE, frame.UDP_PORT):
                raise
            raise RoceError(error.code, error.offset) from None

    def _look(self, data: bytes, length: int) -> None:
        roce_view.decode(data, check=False, length=length)


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
        ", ".join(DETAILS[p.opcode](p)),
    ]
    return "  ".join(part for part in parts if part)


def syndrome_name(syndrome: int) -> str:
    """Return "ACK", "RNR_NAK", the reason of a NAK, or the number if it has no name."""
    if syndrome in roce_layout.SYNDROMES:
        return roce_layout.SYNDROMES[syndrome]
    what = syndrome >> 5
    return {_ACK: "ACK", _RNR: "RNR_NAK"}.get(what, f"syndrome {syndrome:#04x}")


def _data(p: Any) -> Iterator[str]:
    if p.opcode in (roce.WRITE_FIRST, roce.WRITE_ONLY, roce.WRITE_ONLY_IMM):
        yield f"va {p.va & (1 << 64) - 1:#x}"
        yield f"{p.payload_len} of {p.dma_len} B"
    else:
        yield f"{p.payload_len} B"
    if p.opcode in (roce.WRITE_LAST_IMM, roce.WRITE_ONLY_IMM):
        yield f"imm {p.imm:#x}"


def _acknowledge(p: Any) -> Iterator[str]:
    yield syndrome_name(p.reason)
    yield f"msn {p.msn}"


DETAILS: dict[int, Callable[[Any], Iterator[str]]] = {
    **{opcode: _data for opcode in roce_layout.OPCODES if opcode <= roce.LAST_DATA},
    roce.ACKNOWLEDGE: _acknowledge,
    roce.CNP: lambda _: iter(()),
}
