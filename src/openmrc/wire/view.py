"""A decoded frame: every header with its fields, as text, as JSON, and as the engine's record.

Plain Python, and without Numba until a record is asked for. `wire.walk` reads the bytes.
"""

from __future__ import annotations

import ipaddress
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from openmrc.engine import packet
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK_BITS, FIRST_LINK, USID_BITS
from openmrc.wire import frame as envelope
from openmrc.wire import layout
from openmrc.wire.frame import WireError
from openmrc.wire.walk import OUTER, HeaderView, Walk, invariant_crc, read, walk

JSON_BITS = 53  # wider numbers lose digits in readers that parse every number as a double
TEXT_WIDTH = 100
CARRIERS = ((OUTER, "dst"), (layout.SRH.name, "segment"))
HEXADECIMAL = {
    *("ethertype", "flow_label", "header_checksum", "src_port", "checksum", "opcode", "pkey"),
    *("dest_qpn", "va", "rkey", "imm", "syndrome", "nack_reason", "entropy", "spdcid", "dpdcid"),
    *("sack_bitmap", "port_status_mask", "icrc"),
}


@dataclass(frozen=True)
class DecodedFrame:
    """A decoded frame.

    `frame` is what was captured, `length` the size on the wire, in bytes. `payload` is as much of
    the payload as was captured, `payload_length` all of it without padding, in bytes; both exclude
    the remains of a trimmed packet. `icrc_ok` is None if there is no iCRC to check. `notes` are
    sentences about what is unusual, `dscps` the table by which DSCPs have names.
    """

    frame: bytes
    length: int
    headers: tuple[HeaderView, ...]
    payload_at: int
    payload_length: int
    ip_end: int
    icrc_ok: bool | None
    notes: tuple[str, ...]
    dscps: Dscps

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
        """Return everything for JSON; `headers` by name, in the order on the wire.

        Fields are numbers; addresses are text, 64-bit fields are hexadecimal text, and each field
        whose value has a name is accompanied by `FIELD_name`.
        """
        return {
            "length": self.length,
            "headers": {view.name: fields_of(view, self.dscps) for view in self.headers},
            **self._own(),
            "icrc_ok": self.icrc_ok,
            "payload_at": self.payload_at,
            "payload_length": self.payload_length,
            "notes": list(self.notes),
        }

    def _own(self) -> dict[str, Any]:
        """The part of `as_dict` that is specific to one protocol."""
        return {}


@dataclass(frozen=True)
class Packet(DecodedFrame):
    """A decoded frame of MRC; `trim_lengths` as in `walk.Walk`."""

    ev: int
    ev_swapped: bool
    trimmed: bool
    trim_lengths: str | None

    @property
    def record(self) -> Any:
        """The PACKET record of the engine (`engine.packet`)."""
        return self._records[0]

    @property
    def envelope(self) -> Any:
        """The ENVELOPE record (`wire.frame`)."""
        return self._records[1]

    @cached_property
    def _records(self) -> tuple[Any, Any]:
        import numpy as np

        from openmrc.jit import records
        from openmrc.wire import codec

        p, e = records(1, packet.PACKET)[0], records(1, envelope.ENVELOPE)[0]
        e.ev_swapped, e.dscps = self.ev_swapped, self.dscps.packed
        whole = np.frombuffer(bytearray(self.frame.ljust(self.ip_end, b"\0")), np.uint8)
        code = codec.decode(whole, whole.size, p, e, 0)
        assert code == envelope.OK, f"the codec refuses it: {envelope.REASONS[code]}"
        return p, e

    def _own(self) -> dict[str, Any]:
        own: dict[str, Any] = {"ev": self.ev, "trimmed": self.trimmed}
        return own | {"trim_lengths": self.trim_lengths} if self.trimmed else own

    def show(self) -> str:
        """Return the packet as text: a group of lines for each header, then what is unusual."""
        opcode = layout.OPCODES[self["BTH"]["opcode"]]
        size = f"{self.length} bytes, {self.payload_length} of payload"
        trimmed = ", trimmed" if self.trimmed else ""
        lines = [f"{opcode}, EV 0x{self.ev:08x}, {size}{trimmed}"]
        column = max(len(view.name) for view in self.headers) + 2
        for view in self.headers:
            parts = [f"{name} = {_text(view, name, self.dscps)}" for name in view.fields]
            lines += _group(view.name.ljust(column), parts)
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def decode(
    data: bytes,
    *,
    check: bool = True,
    length: int | None = None,
    ev_swapped: bool = False,
    dscps: Dscps = DEFAULT,
) -> Packet:
    """Read one frame, from its Ethernet header on, without FCS. Raises no exception but
    `WireError`.

    `check` false reports a wrong iCRC in `icrc_ok` and `notes` instead of raising. `length` is the
    frame's length on the wire in bytes if a capture truncated it: the headers must be there, the
    payload need not. `ev_swapped` says which half of the EV is where (row 2), `dscps` is the
    fabric's table of DSCPs.
    """
    data = bytes(data)
    length = max(length or 0, len(data))
    found = walk(data, length, dscps)
    return Packet(
        **vars(checked(found, data, length, check, _notes(found), dscps)),
        ev=ev_of(found.ip, found.udp, ev_swapped),
        ev_swapped=ev_swapped,
        trimmed=found.trimmed,
        trim_lengths=found.trim_lengths,
    )


def checked(
    found: Walk,
    data: bytes,
    length: int,
    check: bool,
    own_notes: Iterable[str] = (),
    dscps: Dscps = DEFAULT,
) -> DecodedFrame:
    """Return a walked frame, with its iCRC checked and notes on anything unusual.

    `check` is as in `decode`; `own_notes` are those of the protocol.
    """
    headers, notes = list(found.headers), list(_all_notes(found, data, length, own_notes))
    icrc_ok = None
    if not found.trimmed and found.ip_end <= len(data):
        icrc = read(layout.ICRC, data, found.ip_end - layout.ICRC.size_bytes)
        headers.append(icrc)
        right = invariant_crc(data, found)
        icrc_ok = icrc["icrc"] == right
        if check and not icrc_ok:
            raise WireError(envelope.ICRC, icrc.offset)
        if not icrc_ok:
            notes.append(f"wrong iCRC: 0x{icrc['icrc']:08x} where 0x{right:08x} is right")
    return DecodedFrame(
        frame=data,
        length=length,
        headers=tuple(headers),
        payload_at=found.payload_at,
        payload_length=found.payload_length,
        ip_end=found.ip_end,
        icrc_ok=icrc_ok,
        notes=tuple(notes),
        dscps=dscps,
    )


def encode(p: Any, e: Any, payload: bytes = b"") -> bytes:
    """Return the frame of a PACKET and an ENVELOPE record, trimmed if its flags say so.

    A payload shorter than `p.payload_len` is padded with zeros. Raises `WireError` if the records
    describe no frame.
    """
    import numpy as np

    from openmrc.wire import codec

    flag_bits = int(p.flag_bits)
    headers = sum(header.size_bytes for header in layout.HEADERS) + layout.IPV6.size_bytes
    out = np.zeros(headers + max(int(p.payload_len), 0), np.uint8)
    n = codec.encode(p, e, np.frombuffer(bytearray(payload), np.uint8), out, 1)
    if n > 0 and flag_bits & (packet.TRIMMED | packet.TRIMMED_LASTHOP):
        n = codec.trim(out, n, int(flag_bits & packet.TRIMMED_LASTHOP != 0), e.dscps, 0)
    if n < 0:
        raise WireError(-n, 0)
    return out[:n].tobytes()


def ev_of(ip: HeaderView, udp: HeaderView, swapped: bool) -> int:
    """Row 2: EV[15:0] is the source port, EV[31:16] the low half of the flow label; or swapped."""
    port, label = udp["src_port"], ip.fields.get("flow_label", 0) & 0xFFFF
    return port << 16 | label if swapped else label << 16 | port


def _notes(found: Walk) -> Iterator[str]:
    labels = {v["flow_label"] & 0xFFFF for v in found.headers if v.header is layout.IPV6}
    if len(labels) > 1:  # row 3
        yield "the flow labels of the outer and the inner header differ; the inner one counts"
    if found.trimmed:
        yield f"trimmed: {found.ip_end - found.payload_at} bytes are left behind the headers"
        if found.kept:
            yield f"lengths of the whole packet stand in {' and '.join(found.kept)}"


def _all_notes(found: Walk, data: bytes, length: int, own: Iterable[str]) -> Iterator[str]:
    for view in found.headers:
        if view.reserved:
            yield f"{view.name}: reserved bits set"
    yield from own
    if len(data) < length:
        yield f"cut short by the capture: {len(data)} of {length} bytes"
    if found.ip_end < length:
        yield f"{length - found.ip_end} bytes behind the IP packet"


def fields_of(view: HeaderView, dscps: Dscps = DEFAULT) -> dict[str, int | str]:
    """Return the fields of a header for JSON."""
    out: dict[str, int | str] = {}
    for name, value in view.fields.items():
        field = view.header.field(name)
        number = f"0x{value:x}" if field.bits > JSON_BITS else value
        out[name] = _address(view.header, field, value) or number
        if value in (names := _names(field, dscps)):
            out[f"{name}_name"] = names[value]
    return out


def _names(field: layout.Field, dscps: Dscps) -> Mapping[int, str]:
    return dscps.names if field.name == "dscp" else field.names


def _text(view: HeaderView, name: str, dscps: Dscps) -> str:
    """Return a field's value for people, with its name if it has one."""
    field, value = view.header.field(name), view[name]
    digits = (field.bits + 3) // 4
    number = f"0x{value:0{digits}x}" if name in HEXADECIMAL else str(value)
    text = _address(view.header, field, value) or number
    if (view.name, name) in CARRIERS:
        usids = " ".join("uA " * (usid >= FIRST_LINK) + f"{usid:04x}" for usid in _usids(value))
        text += f" (uSIDs {usids})" if usids else " (no uSID)"
    names = _names(field, dscps)
    return f"{text} ({names[value]})" if value in names else text


def _address(header: layout.Header, field: layout.Field, value: int) -> str:
    """Return an address as text; an empty text for a field that is not an address."""
    if field.bits == 48:
        return value.to_bytes(6, "big").hex(":")
    if field.bits == ADDRESS_BITS:
        return str(ipaddress.IPv6Address(value))
    if header is layout.IPV4 and field.name in ("src", "dst"):
        return str(ipaddress.IPv4Address(value))
    return ""


def _usids(carrier: int) -> Iterator[int]:
    """Yield the uSIDs of a carrier up to the zeros at its end (MRC 2.12)."""
    left = ADDRESS_BITS - BLOCK_BITS
    while rest := carrier & (1 << left) - 1:
        left -= USID_BITS
        yield rest >> left


def _group(title: str, parts: list[str]) -> list[str]:
    """Return `title` followed by the parts, on lines that break between parts only."""
    glue = "\0"  # in place of the blanks within a part
    lines = textwrap.wrap(
        "  ".join(part.replace(" ", glue) for part in parts),
        TEXT_WIDTH,
        initial_indent=title,
        subsequent_indent=" " * len(title),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(glue, " ") for line in lines]
