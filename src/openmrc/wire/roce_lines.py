"""Captured RoCEv2 packets as plain values, and as one line of text each; as `lines` for MRC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import frame, roce, roce_codec, roce_layout, roce_view
from openmrc.wire.lines import Fields, Frame, frame_of
from openmrc.wire.pcap import PACKET_BYTES_MAX, Captured

NO_PSN = {roce.CNP}  # whose BTH.psn says nothing
_ACK, _RNR, _NAK = 0, 1, 3  # upper three bits of a syndrome


class RoceError(frame.WireError):
    """Bytes that are RoCEv2 by their opcode, and wrong."""


class RoceFrames:
    """Decodes packet by packet, in buffers that it keeps."""

    def __init__(self) -> None:
        self._bytes = np.zeros(PACKET_BYTES_MAX, np.uint8)
        self._window = self._bytes.data
        self._packet = records(1, packet.PACKET)[0]
        self._envelope = records(1, frame.ENVELOPE)[0]

    def read(self, captured: Captured) -> Frame:
        """Decode one packet. Raises `RoceError`, and `WireError` if its opcode is not known.

        Of a packet that the capture cut short only the headers must be there, and the iCRC is not
        looked at.
        """
        n, length = len(captured.data), captured.original_length
        cut = n < length <= PACKET_BYTES_MAX
        self._window[:n] = captured.data
        if cut:
            self._window[n:length] = bytes(length - n)
        else:
            length = n
        p, e = self._packet, self._envelope
        code = roce_codec.decode(self._bytes, length, p, e, int(not cut))
        try:
            if cut and (code != frame.OK or e.payload_at > n):
                # The zeros in place of what is not there may have been read: the plain view knows.
                roce_view.decode(captured.data, check=False, length=length)
            if code != frame.OK:
                raise frame.WireError(code, int(e.error_at))
        except frame.WireError as error:
            if error.code in (frame.OPCODE, frame.UDP_PORT):
                raise
            raise RoceError(error.code, error.offset) from None
        return frame_of(Fields._make(p.item()), e)


def line(found: Frame) -> str:
    """Return what a person wants to know of one packet."""
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
    """Return "ACK", "RNR_NAK", the reason of a NAK, or the number of what has no name."""
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


def _cnp(p: Any) -> Iterator[str]:
    yield from ()


DETAILS: dict[int, Callable[[Any], Iterator[str]]] = {
    roce.WRITE_FIRST: _data,
    roce.WRITE_MIDDLE: _data,
    roce.WRITE_LAST: _data,
    roce.WRITE_LAST_IMM: _data,
    roce.WRITE_ONLY: _data,
    roce.WRITE_ONLY_IMM: _data,
    roce.ACKNOWLEDGE: _acknowledge,
    roce.CNP: _cnp,
}
