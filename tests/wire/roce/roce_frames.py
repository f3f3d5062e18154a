"""RoCEv2 packets of every opcode, and what both decoders say of any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import packet
from openmrc.jit import records
from openmrc.wire import DecodedFrame, WireError, addresses, decode_roce, frame
from openmrc.wire.icrc import icrc
from openmrc.wire.layout import Header
from openmrc.wire.roce import codec
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce
from tests.wire.vectors import array, values

DATA = [opcode for opcode in roce.WRITTEN if opcode <= roce.LAST_DATA]
NAMING = (roce.WRITE_FIRST, roce.WRITE_ONLY, roce.WRITE_ONLY_IMM)
IMMEDIATE = (roce.WRITE_LAST_IMM, roce.WRITE_ONLY_IMM)


def a_packet(opcode: int, **fields: int) -> Any:
    """A record with every field that the opcode carries at an odd value."""
    p = records(1, packet.PACKET)[0]
    p.opcode, p.dst_qpn, p.psn, p.ev = opcode, 0xABCDEF, 0x123456, 0xC0DE
    p.klass = packet.CLASS_DATA if opcode in DATA else packet.CLASS_CONTROL
    if opcode in DATA:
        p.payload_len, p.flag_bits = 1021, packet.ACK_REQ | packet.CE
    if opcode in NAMING:
        p.va, p.rkey, p.dma_len = -0x1234_5678_9ABC, 0xFEDC_BA98, 0x89AB_CDEF
    if opcode in IMMEDIATE:
        p.imm = 0xA5A5_5A5A
    if opcode == roce.ACKNOWLEDGE:
        p.reason, p.msn = roce.AETH_NAK_SEQUENCE, 0x89ABCD
    for name, value in fields.items():
        setattr(p, name, value)
    return p


def an_envelope() -> Any:
    e = records(1, frame.ENVELOPE)[0]
    addresses.write_ipv4(e.inner_src, 0, 3, 0)
    addresses.write_ipv4(e.inner_dst, 0, 700, 0)
    addresses.write_nic_mac(e.src_mac, 0, 3, 0)
    addresses.write_switch_mac(e.dst_mac, 0, 9)
    e.hop_limit, e.pkey, e.ipv4 = 61, 0xFFFF, 1
    return e


def a_frame(opcode: int, ect: int = 1, **fields: int) -> bytes:
    out = np.full(9000, 0xAA, np.uint8)
    n = int(codec.encode(a_packet(opcode, **fields), an_envelope(), ect, out))
    assert n > 0
    assert (out[n:] == 0xAA).all()
    return out[:n].tobytes()


def read_only(opcode: int, payload: bytes = b"", psn: int = 5, qpn: int = 7, **more: int) -> bytes:
    """A frame of any opcode, from the layouts; fields of its headers by their names."""
    pad = -len(payload) % 4
    parts = [(roce_layout.BTH, {"opcode": opcode, "pad": pad, "pkey": 0xFFFF, "psn": psn})]
    parts[0][1]["dest_qpn"] = qpn
    parts += [(header, more) for header in roce_layout.EXTENSIONS[opcode]]
    body = b"".join(packed(header, fields) for header, fields in parts) + payload + bytes(pad)
    front = bytearray(a_frame(roce.WRITE_MIDDLE, payload_len=0)[:42])
    front[16:18] = (20 + 8 + len(body) + 4).to_bytes(2, "big")
    front[38:40] = (8 + len(body) + 4).to_bytes(2, "big")
    front[24:26] = b"\0\0"
    front[24:26] = (-int.from_bytes(front[14:34], "big") % 0xFFFF).to_bytes(2, "big")
    whole = bytes(front) + body
    crc = int(icrc(array(whole), 14, len(whole)))
    return whole + crc.to_bytes(4, "little")


def packed(header: Header, fields: dict[str, int]) -> bytes:
    """A header with some fields set."""
    value = 0
    for field in header.fields:
        value = value << field.bits | fields.get(field.name, 0) & (1 << field.bits) - 1
    return value.to_bytes(header.size_bytes, "big")


def plain(data: bytes, *, check: bool) -> DecodedFrame | tuple[int, int]:
    """What the plain decoder makes of a frame."""
    try:
        return decode_roce(data, check=check)
    except WireError as error:
        return error.code, error.offset


def both(data: bytes, *, check: bool = True) -> DecodedFrame | tuple[int, int]:
    """What both decoders say of a frame; asserts that they say the same, value for value."""
    p, e = records(1, packet.PACKET)[0], records(1, frame.ENVELOPE)[0]
    code = int(codec.decode(array(data), len(data), p, e, int(check)))
    found = plain(data, check=check)
    verdict = code, int(e.error_at)
    if not isinstance(found, DecodedFrame):
        assert verdict == found, data.hex()
        return found
    assert verdict == (frame.OK, 0), data.hex()
    told = values(p, packet.PACKET)
    bth, udp = found["BTH"], found["UDP"]
    assert (told["opcode"], told["psn"]) == (bth["opcode"], bth["psn"])
    assert told["dst_qpn"] == bth["dest_qpn"]
    assert told["ev"] == udp["src_port"]
    assert told["payload_len"] == found.payload_length
    assert int(e.payload_at) == found.payload_at
    assert bool(p.flag_bits & packet.ACK_REQ) == bool(bth["a"])
    ecns = [view["ecn"] for view in found.headers if "ecn" in view.fields]
    assert bool(p.flag_bits & packet.CE) == (3 in (ecns[0], ecns[-1]))
    for header, fields in (
        ("RETH", {"va": "va", "rkey": "rkey", "dma_len": "dma_length"}),
        ("ImmDt", {"imm": "imm"}),
        ("AETH", {"reason": "syndrome", "msn": "msn"}),
    ):
        names = [view.name for view in found.headers]
        if header == "RETH" and "AtomicETH" in names:
            header, fields = "AtomicETH", {"va": "va", "rkey": "rkey"}
        there = header in names
        for name, field in fields.items():
            value = found[header][field] if there else 0
            assert int(told[name]) % 2**64 == value, (name, data.hex())
    return found
