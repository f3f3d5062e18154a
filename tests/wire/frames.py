"""Packets and envelopes of every opcode and shape, each field at its full width, and what to do
with them in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.engine.packet import PACKET
from openmrc.fabric.dscp import Dscps
from openmrc.jit import records
from openmrc.wire import codec, frame, layout
from openmrc.wire.frame import ENVELOPE

Draw = Callable[[int, int], int]  # an integer between both, included

SHAPES = ("ipv6", "ipv4", "srv6", "srh")
DATA = tuple(opcode for opcode in layout.OPCODES if opcode <= packet.LAST_DATA)
IMMEDIATE = (packet.WRITE_LAST_IMM, packet.WRITE_ONLY_IMM)
ELSEWHERE = Dscps(63, 11, 16, 0, 21, 4)  # a fabric's own; values of the defaults mean others
SIGNED_16 = (-(1 << 15), (1 << 15) - 1)

# by opcode: (least, most) of each field of the record, and of the envelope, that its headers carry
_WRITE = {
    "va": (-(1 << 63), (1 << 63) - 1),
    "rkey": (0, 2**32 - 1),
    "dma_len": (0, 2**32 - 1),
    "msn": (0, 2**16 - 1),
    "rqmsn": (0, 2**16 - 1),
}
_TIME = {"timestamp": (0, 2**16 - 1)}
_EVERY = {"dst_qpn": (0, 2**24 - 1), "psn": (0, 2**24 - 1)}
_RECORD: dict[int, dict[str, tuple[int, int]]] = {
    **dict.fromkeys(DATA, _WRITE),
    **dict.fromkeys(IMMEDIATE, _WRITE | {"imm": (0, 2**32 - 1)}),
    packet.ACKNOWLEDGE: {"reason": (0, 255), "msn": (0, 2**24 - 1)},
    packet.SACK: _TIME
    | {
        "m": (0, 3),
        "ack_offset": SIGNED_16,
        "entropy": (0, 2**32 - 1),
        "cack_psn": (0, 2**24 - 1),
        "mpr": (0, 255),
        "sack_offset": SIGNED_16,
        "bitmap": (0, 2**64 - 1),
        "ooo_count": (0, 2**15 - 1),
        "penalty": (0, 255),
        "rcvd_units": (0, 2**24 - 1),
    },
    packet.NACK: _TIME | {"reason": (0, 255), "entropy": (0, 2**32 - 1)},
    packet.PROBE: _TIME | {"ack_offset": SIGNED_16},
    packet.ENDPOINT_REQUEST: _TIME | {"reason": (0, 3), "m": (0, 255), "imm": (0, 2**32 - 1)},
    packet.ENDPOINT_RESPONSE: _TIME | {"reason": (0, 3)},
}
_CONNECTION = {"spdcid": (0, 2**16 - 1), "dpdcid": (0, 2**16 - 1)}
_ENVELOPE: dict[int, dict[str, tuple[int, int]]] = {
    packet.SACK: _CONNECTION,
    packet.NACK: _CONNECTION,
    packet.PROBE: _CONNECTION,
}


def one(dtype: np.dtype[Any], **values: Any) -> Any:
    """A zeroed record with some fields set."""
    record = records(1, dtype)[0]
    for name, value in values.items():
        record[name] = value
    return record


def write(**values: Any) -> Any:
    """A data packet of a full PMTU."""
    defaults = {"opcode": packet.WRITE_MIDDLE, "klass": packet.CLASS_DATA, "payload_len": 4096}
    return one(PACKET, **(defaults | values))


def control(opcode: int, **values: Any) -> Any:
    """A packet of the control class."""
    return one(PACKET, **({"opcode": opcode, "klass": packet.CLASS_CONTROL} | values))


def around(shape: str, **values: Any) -> Any:
    """An envelope of one of SHAPES; every address byte in it is different from zero."""
    e = one(ENVELOPE, hop_limit=64, udp_port=layout.UDP_PORT, pkey=layout.PKEY_DEFAULT)
    inner_bytes = 4 if shape == "ipv4" else 16
    for name in ("dst_mac", "src_mac"):
        e[name] = range(1, 7)
    for name in ("inner_src", "inner_dst"):
        e[name][:inner_bytes] = range(0x10, 0x10 + inner_bytes)
    e.ipv4 = shape == "ipv4"
    if shape in ("srv6", "srh"):
        e.srv6 = 1
        e.inner_hop_limit = 63
        e.outer_src = range(0x30, 0x40)
        e.carrier = range(0x40, 0x50)
    if shape == "srh":
        e.srh = 1
        e.segment = range(0x50, 0x60)
    for name, value in values.items():
        e[name] = value
    return e


def any_frame(draw: Draw, opcode: int, shape: str) -> tuple[Any, Any]:
    """A packet and its envelope, every field drawn, as `decode` gives them back."""
    e = around(shape)
    for name in ("dst_mac", "src_mac", "outer_src", "carrier", "segment", "inner_src", "inner_dst"):
        for i in np.flatnonzero(e[name]):
            e[name][i] = draw(0, 255)
    if e.srv6 and not e.carrier[4]:
        e.carrier[5] = draw(1, 255)  # MRC 2.12: one uSID at least
    e.hop_limit = draw(0, 255)
    e.inner_hop_limit = draw(0, 255) if e.srv6 else 0
    e.segments_left = draw(0, 1) if e.srh else 0
    e.udp_port = (layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE)[draw(0, 1)]
    e.pkey = draw(0, 2**16 - 1)
    e.ev_swapped = draw(0, 1)
    e.dscps = (0, ELSEWHERE.packed)[draw(0, 1)]
    e.tseth = draw(0, 1) if opcode in DATA else 0
    for name, (least, most) in _ENVELOPE.get(opcode, {}).items():
        e[name] = draw(least, most)

    p = one(PACKET, opcode=opcode, ev=draw(0, 2**32 - 1))
    for name, (least, most) in (_EVERY | _RECORD[opcode] | (_TIME if e.tseth else {})).items():
        p[name] = draw(least, most)
    if e.ipv4:
        p.ev &= 0xFFFF_0000 if e.ev_swapped else 0xFFFF  # MRC 2.11: half of it
    if opcode in DATA:
        p.payload_len = draw(0, layout.PAYLOAD_BYTES_MAX)
    flags = [packet.RTX, packet.ACK_REQ, packet.CE]
    if opcode == packet.SACK:
        flags.append(packet.PROBE_ANSWER)
    p.flag_bits = sum(flag * draw(0, 1) for flag in flags)
    if opcode in (packet.PROBE, packet.ENDPOINT_REQUEST) and draw(0, 1):
        p.flag_bits |= packet.UNSTAMPED
        p.timestamp = 0
    if opcode == packet.ENDPOINT_REQUEST and draw(0, 1):
        e.ports_from_1 = 1
        p.imm &= 0x7FFF_FFFF
    p.klass = draw(packet.CLASS_CONTROL, packet.CLASS_DATA)
    again = packet.CLASS_RETRANSMIT if p.flag_bits & packet.RTX else packet.CLASS_DATA
    if p.klass == again:  # the one DSCP of NO_TRIM leaves the class to the RTX bit
        p.flag_bits |= packet.NO_TRIM * draw(0, 1)
    return p, e


def sent(p: Any, e: Any, payload: bytes = b"", check: int = 1) -> bytearray:
    """The frame, with the payload repeated until it is long enough."""
    out = np.full(layout.PAYLOAD_BYTES_MAX + 256, 0xEE, np.uint8)
    whole = (payload * (p.payload_len // len(payload) + 1))[: p.payload_len] if payload else b""
    n = codec.encode(p, e, np.frombuffer(bytearray(whole), np.uint8), out, check)
    assert n > 0, frame.REASONS[-n]
    assert (out[n:] == 0xEE).all()
    return bytearray(out[:n].tobytes())


@dataclass(frozen=True)
class Verdict:
    """What `decode` says: a code of `frame`, where, and the records it filled."""

    code: int
    at: int
    p: Any
    e: Any

    @property
    def brief(self) -> tuple[int, int]:
        return self.code, self.at


def received(
    data: bytes | bytearray, n: int | None = None, check: int = 1, **senders: int
) -> Verdict:
    """Decode the first `n` bytes, by default all; `senders` are what an envelope knows of them."""
    p, e = one(PACKET), one(ENVELOPE, **senders)
    array = np.frombuffer(bytearray(data), np.uint8)
    code = codec.decode(array, len(data) if n is None else n, p, e, check)
    return Verdict(code, int(e.error_at), p, e)


def senders(e: Any) -> dict[str, int]:
    """What an envelope knows of senders, for `received`."""
    return {name: int(e[name]) for name in ("ev_swapped", "ports_from_1", "dscps")}


def trimmed(
    data: bytes | bytearray, last_hop: int = 0, dscps: int = 0, lengths: int = 0
) -> bytearray:
    """The frame after a switch has cut it."""
    out = np.frombuffer(bytearray(data), np.uint8)
    n = codec.trim(out, len(data), last_hop, dscps, lengths)
    assert n > 0, frame.REASONS[-n]
    return bytearray(out[:n].tobytes())


def fields(record: Any, *but: str) -> dict[str, Any]:
    """All fields of a record, as Python's own values."""
    return {name: record[name].tolist() for name in record.dtype.names if name not in but}


def patched(data: bytes | bytearray, at: int, new: bytes) -> bytearray:
    """A copy with some bytes written over."""
    copy = bytearray(data)
    copy[at : at + len(new)] = new
    return copy
