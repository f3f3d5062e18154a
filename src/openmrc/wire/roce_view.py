"""A RoCEv2 frame for people: every header with its fields, for JSON. Plain Python, without Numba.

`roce_codec` does the same compiled; the two were written apart from each other, make the same
checks in the same order, and the tests hold one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from openmrc.wire import frame as codes
from openmrc.wire import layout, roce, roce_layout
from openmrc.wire.frame import WireError
from openmrc.wire.view import fields_of
from openmrc.wire.walk import Cursor, HeaderView, Walk, invariant_crc, read, read_ip, read_udp


@dataclass(frozen=True)
class RocePacket:
    """A decoded frame; names as in `view.Packet`."""

    frame: bytes
    length: int
    headers: tuple[HeaderView, ...]
    payload_at: int
    payload_length: int
    ip_end: int
    icrc_ok: bool | None
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> HeaderView:
        """Return the header of this name; `KeyError` if the frame has none."""
        for view in self.headers:
            if view.name == name:
                return view
        raise KeyError(name)

    @property
    def payload(self) -> bytes:
        """The payload without padding, as far as it was captured."""
        return self.frame[self.payload_at : self.payload_at + self.payload_length]

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON, as `view.Packet.as_dict`."""
        return {
            "length": self.length,
            "headers": {view.name: fields_of(view) for view in self.headers},
            "icrc_ok": self.icrc_ok,
            "payload_at": self.payload_at,
            "payload_length": self.payload_length,
            "notes": list(self.notes),
        }


def decode(data: bytes, *, check: bool = True, length: int | None = None) -> RocePacket:
    """Read one frame, from its Ethernet header on, without FCS. Raises `WireError` and no other.

    `check` and `length` as in `view.decode`.
    """
    data = bytes(data)
    length = max(length or 0, len(data))
    found = _walk(data, length)
    headers, notes = list(found.headers), list(_notes(found, data, length))
    icrc_ok = None
    if found.ip_end <= len(data):
        icrc = read(layout.ICRC, data, found.ip_end - layout.ICRC.size_bytes)
        headers.append(icrc)
        right = invariant_crc(data, found)
        icrc_ok = icrc["icrc"] == right
        if check and not icrc_ok:
            raise WireError(codes.ICRC, icrc.offset)
        if not icrc_ok:
            notes.append(f"wrong iCRC: 0x{icrc['icrc']:08x} where 0x{right:08x} is right")
    return RocePacket(
        frame=data,
        length=length,
        headers=tuple(headers),
        payload_at=found.payload_at,
        payload_length=found.payload_length,
        ip_end=found.ip_end,
        icrc_ok=icrc_ok,
        notes=tuple(notes),
    )


def _walk(data: bytes, length: int) -> Walk:
    cursor = Cursor(data, length)
    ip = read_ip(cursor)
    ip_end = cursor.end
    udp = read_udp(cursor)
    if udp["dst_port"] != roce.UDP_PORT:
        raise WireError(codes.UDP_PORT, udp.at("dst_port"))
    cursor.end -= layout.ICRC.size_bytes
    bth = cursor.take(roce_layout.BTH)
    if bth["opcode"] not in roce_layout.EXTENSIONS:
        raise WireError(codes.OPCODE, bth.at("opcode"))
    if bth["tver"] != 0:
        raise WireError(codes.TRANSPORT_VERSION, bth.at("tver"))
    for header in roce_layout.EXTENSIONS[bth["opcode"]]:
        cursor.take(header, codes.EXTENSION_LENGTH)
    padded, pad = cursor.end - cursor.at, bth["pad"]
    if padded % 4 or padded < pad:
        raise WireError(codes.PAD, bth.at("pad"))
    most = layout.PAYLOAD_BYTES_MAX if bth["opcode"] <= roce.LAST_DATA else 0
    if padded - pad > most:
        raise WireError(codes.PAYLOAD_LENGTH, cursor.at)
    headers = tuple(cursor.headers)
    return Walk(headers, ip, udp, bth, cursor.at, padded - pad, ip_end, trimmed=False)


def _notes(found: Walk, data: bytes, length: int) -> Iterator[str]:
    for view in found.headers:
        if view.reserved:
            yield f"{view.name}: reserved bits set"
    if len(data) < length:
        yield f"cut short by the capture: {len(data)} of {length} bytes"
    if found.ip_end < length:
        yield f"{length - found.ip_end} bytes behind the IP packet"
