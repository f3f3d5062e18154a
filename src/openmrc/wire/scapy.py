"""Scapy layers for all of MRC, from the BTH to the iCRC, generated from `layout`.

    from openmrc.wire.scapy import *

    frame = (
        Ether() / IPv6(dst=carrier) / IPv6(dst=nic) / UDP()
        / MRC_BTH(dest_qpn=7, psn=5) / MRC_METH(msn=1) / MRC_RETH(va=0x1000) / b"payload"
    )
    set_ev(frame, 0x0002_0003)

Ethernet, IP, the SRH and UDP are Scapy's own. A layer is called `MRC_` and the header's name, its
fields have the names of `layout`, reserved ones `reserved1` and so on. If left out, these are
computed when the frame is built: the opcode from the layer after the BTH (data: RDMA_WRITE_ONLY),
`ts`, `pad`, the padding and the iCRC, the UDP port and a zero UDP checksum.

`MRC_iCRC` is the end of a packet: padding and iCRC. A frame that was dissected keeps them, as Scapy
does with checksums: after a change, `del frame[MRC_iCRC].icrc`. A trimmed packet, marked by the
DSCP of an IP header, has no such layer; the remains of its payload are `Raw`.

UDP port 4791 is also that of RoCE, and Scapy has RoCE layers in `scapy.contrib.roce`. Regardless of
the order of loading, an opcode of MRC's group (0xC0 to 0xDF) is dissected here, any other by RoCE
if it is loaded.
"""

from __future__ import annotations

import sys
from typing import Any

from openmrc.engine import packet
from openmrc.errors import MissingExtra

try:
    from scapy.base_classes import Packet_metaclass
    from scapy.compat import raw
    from scapy.fields import BitEnumField, BitField, SignedShortField, StrLenField, XLEIntField
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
    from scapy.layers.l2 import Ether
    from scapy.packet import Packet, Raw, bind_top_down
except ImportError as missing:
    raise MissingExtra("openmrc.wire.scapy", "scapy") from missing

import numpy as np

from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import icrc, layout
from openmrc.wire.dissector import HEADERS, named_fields
from openmrc.wire.layout import Field, Header
from openmrc.wire.walk import walk

OPCODE_GROUP_BITS, OPCODE_GROUP = 3, 0b110  # MRC 2.3
TRIMMED = set(DEFAULT.trims)  # `use_dscps` changes both
_table = [DEFAULT]
_ICRC_BYTES = layout.ICRC.size_bytes
_DEFAULTS = {
    "pkey": layout.PKEY_DEFAULT,
    "ftype": layout.FTYPE_TIMESTAMP,
    ("NETH", "cc_type"): layout.CC_TYPE_NACK,
    ("BTH", "opcode"): packet.WRITE_ONLY,
    ("BTH", "pad"): None,
    ("BTH", "ts"): None,
}


def _fields(header: Header) -> list[Any]:
    """Return the Scapy fields of a header."""
    return [_field(header, name, field) for name, _, field in named_fields(header)]


def _field(header: Header, name: str, field: Field) -> Any:
    default: Any = _DEFAULTS.get((header.name, name), _DEFAULTS.get(name, 0))
    if field.signed:
        assert field.bits == 16, "Scapy has signed fields of whole bytes only"
        return SignedShortField(name, default)
    if field.names:
        return BitEnumField(name, default, field.bits, field.names)
    return BitField(name, default, field.bits)


def _end_fields() -> list[Any]:
    """Return the fields of a packet's end; both are computed when it is built."""
    (field,) = layout.ICRC.fields
    assert field.bits == 32, "Scapy has little-endian fields of these widths only"
    absent: Any = None
    return [
        StrLenField("padding", absent, length_from=lambda end: len(end.original) - _ICRC_BYTES),
        XLEIntField(field.name, absent),
    ]


class _Layer(Packet):
    """A header of `layout`; the BTH below it determines what follows."""

    header: Header

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        """Return the layer that follows, if it is complete."""
        following = _following(self)
        if following is None or len(payload) < following.size_bytes:
            return Raw
        return LAYERS[following.name]


class MRC_BTH(_Layer):  # noqa: N801
    """The BTH: it knows where a packet ends, and therefore handles padding and iCRC."""

    name = "MRC_BTH"
    header = layout.BTH
    fields_desc = _fields(layout.BTH)

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *_: Any, **__: Any) -> type[Packet]:
        """Leave RoCE opcodes to Scapy's own layers."""
        roce = sys.modules.get("scapy.contrib.roce")
        if roce and _pkt and _pkt[0] >> 8 - OPCODE_GROUP_BITS != OPCODE_GROUP:
            return roce.BTH  # type: ignore[no-any-return]
        return cls

    def do_dissect_payload(self, s: bytes) -> None:
        """Dissect what follows, then padding and iCRC."""
        tail = self.pad + _ICRC_BYTES
        if is_trimmed(self) or self.opcode not in layout.EXTENSIONS or len(s) < tail:
            super().do_dissect_payload(s)
            return
        super().do_dissect_payload(s[:-tail])
        self.add_payload(MRC_iCRC(s[-tail:]))

    def do_build(self) -> bytes:
        """Build the packet; without a given iCRC, ignore the dissected bytes."""
        end = self.getlayer(MRC_iCRC)
        if end is not None and end.icrc is None:
            self.raw_packet_cache = None  # so that `post_build` is called
        return super().do_build()

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Fill what was left out: `ts`, `pad`, padding and iCRC."""
        if self.ts is None:
            pkt = _with_bits(pkt, "ts", int(self.haslayer(MRC_TSETH)))
        if is_trimmed(self):
            return pkt + pay
        end = self.getlayer(MRC_iCRC)
        if end is None:
            pay += bytes(_ICRC_BYTES)
        pad = self.pad
        if pad is None:
            pad = -len(pay) % 4 if end is None or end.padding is None else len(end.padding)
            pkt = _with_bits(pkt, "pad", pad)
        if end is None or end.padding is None:
            pay = pay[:-_ICRC_BYTES] + bytes(pad) + pay[-_ICRC_BYTES:]
        if end is None or end.icrc is None:
            body = pkt + pay[:-_ICRC_BYTES]
            pay = pay[:-_ICRC_BYTES] + _invariant_crc(self, body).to_bytes(_ICRC_BYTES, "little")
        return pkt + pay


def _layer(header: Header) -> type[Packet]:
    """Return the layer class of a header."""
    name = f"MRC_{header.name}"
    fields: dict[str, Any] = {"header": header, "name": name, "__module__": __name__}
    description = _end_fields() if header is layout.ICRC else _fields(header)
    made: type[Packet] = Packet_metaclass(name, (_Layer,), fields | {"fields_desc": description})
    return made


def use_dscps(**dscps: int) -> None:
    """Use a fabric's DSCPs, as `trimmed=11`, in place of the defaults; `InputError` for invalid
    ones.
    """
    table = Dscps.parse(", ".join(f"{name}={value}" for name, value in dscps.items()))
    TRIMMED.clear()
    TRIMMED.update(table.trims)
    _table[:] = [table]


def is_trimmed(layer: Packet) -> bool:
    """Return whether an IP header below this layer marks the packet as trimmed (row 21)."""
    below = layer.underlayer
    while below is not None:
        traffic_class = below.tc if isinstance(below, IPv6) else getattr(below, "tos", 0)
        if traffic_class >> layout.IPV6.field("ecn").bits in TRIMMED:
            return True
        below = below.underlayer
    return False


def trim_lengths(frame: Packet) -> str | None:
    """Return which lengths of a trimmed frame were adjusted: "all", "outer", "none" or "some"; None
    for a whole packet. Raises `WireError` for a frame that is none of MRC.
    """
    data = raw(frame)
    return walk(data, len(data), _table[0]).trim_lengths


def _following(layer: _Layer) -> Header | None:
    """Return the header after this one, by the opcode and TS bit of the BTH."""
    bth: Packet | None = layer
    while bth is not None and not isinstance(bth, MRC_BTH):
        bth = bth.underlayer
    if bth is None:
        return None
    chain = [layout.BTH, *layout.EXTENSIONS.get(bth.opcode, ())]
    if not bth.ts and layout.METH in chain:
        chain.remove(layout.TSETH)
    at = chain.index(layer.header) + 1
    return chain[at] if at < len(chain) else None


def _with_bits(bth: bytes, name: str, value: int) -> bytes:
    """Return the BTH with a field set that was zero."""
    shift = layout.BTH.size_bytes * 8 - layout.BTH.bit(name) - layout.BTH.field(name).bits
    return (int.from_bytes(bth, "big") | value << shift).to_bytes(layout.BTH.size_bytes, "big")


def _invariant_crc(bth: Packet, body: bytes) -> int:
    """Return the iCRC of BTH and what follows it; 0 if there are no UDP and IP headers below."""
    udp = bth.underlayer
    ip = udp.underlayer if isinstance(udp, UDP) else None
    if not isinstance(ip, IPv6 | IP):
        return 0
    assert isinstance(udp, UDP)
    udp_bytes = layout.UDP.size_bytes + len(body) + _ICRC_BYTES
    datagram = bytearray(udp.self_build() + body)
    _set_length(datagram, udp.len, layout.UDP, "length", udp_bytes)
    header = bytearray(ip.self_build())
    if isinstance(ip, IPv6):
        _set_length(header, ip.plen, layout.IPV6, "payload_length", udp_bytes)
    else:
        header[0] |= len(header) // 4  # ihl, if it was left out
        _set_length(header, ip.len, layout.IPV4, "total_length", len(header) + udp_bytes)
    whole = np.frombuffer(header + datagram, np.uint8)
    return int(icrc.icrc(whole, 0, len(whole)))


def _set_length(data: bytearray, given: int | None, header: Header, name: str, value: int) -> None:
    """Fill a length that Scapy computes later; leave one that was `given`."""
    if given is None:
        at = header.byte(name)
        data[at : at + 2] = value.to_bytes(2, "big")


def set_ev(frame: Packet, ev: int, *, swapped: bool = False) -> Packet:
    """Put an EV into the UDP source port and every flow label (rows 2 and 3); return the frame."""
    low, high = ev & 0xFFFF, ev >> 16
    frame[UDP].sport, label = (high, low) if swapped else (low, high)
    for layer in frame.iterpayloads():
        if isinstance(layer, IPv6):
            layer.fl = label
    return frame


def get_ev(frame: Packet, *, swapped: bool = False) -> int:
    """Return the EV of a frame: IPv4 carries half of it, the other half is zero."""
    ip = frame[UDP].underlayer
    port, label = int(frame[UDP].sport), int(ip.fl) & 0xFFFF if isinstance(ip, IPv6) else 0
    return port << 16 | label if swapped else label << 16 | port


_behind_bth = list(map(_layer, HEADERS[1:]))
MRC_METH, MRC_TSETH, MRC_RETH, MRC_ImmDt, MRC_AETH, MRC_SETH = _behind_bth[:6]
MRC_CC_STATE, MRC_NETH, MRC_PETH, MRC_ERTH, MRC_EETH, MRC_iCRC = _behind_bth[6:]

_layers: list[type[Packet]] = [MRC_BTH, *_behind_bth]
LAYERS = {header.name: layer for header, layer in zip(HEADERS, _layers, strict=True)}

# Before all others: a source port is half an EV and may be that of another protocol.
UDP.payload_guess = [
    ({"dport": layout.UDP_PORT}, MRC_BTH),
    ({"dport": layout.UDP_PORT_ALTERNATIVE}, MRC_BTH),
    *UDP.payload_guess,
]
bind_top_down(UDP, MRC_BTH, sport=0, dport=layout.UDP_PORT, chksum=0)
for _opcode, _chain in layout.EXTENSIONS.items():
    if _chain[0] is not layout.METH:
        bind_top_down(MRC_BTH, LAYERS[_chain[0].name], opcode=_opcode)

__all__ = [
    "IP",
    "MRC_AETH",
    "MRC_BTH",
    "MRC_CC_STATE",
    "MRC_EETH",
    "MRC_ERTH",
    "MRC_METH",
    "MRC_NETH",
    "MRC_PETH",
    "MRC_RETH",
    "MRC_SETH",
    "MRC_TSETH",
    "UDP",
    "Ether",
    "IPv6",
    "IPv6ExtHdrSegmentRouting",
    "MRC_ImmDt",
    "MRC_iCRC",
    "Raw",
    "get_ev",
    "is_trimmed",
    "raw",
    "set_ev",
    "trim_lengths",
    "use_dscps",
]
