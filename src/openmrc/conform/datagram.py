"""A packet with the fields as rules name them, to and from what follows the UDP header; in plain
Python.

Values are used unchanged, even wrong ones: a kit must be able to send them. The tables of
`wire.layout` give the position of each; no codec of this project is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address

from openmrc.conform.events import KINDS
from openmrc.engine import packet as pk
from openmrc.wire import layout
from openmrc.wire.layout import Header

ICRC_BYTES = layout.ICRC.size_bytes
_BTH = ("opcode", "psn", "a", "rtx")  # of those that a rule may name; `m` is the SETH's
_OPCODES = {kind: opcode for opcode, kind in KINDS.items() if opcode > pk.LAST_DATA}
_ID = ("request", "response")  # whose BTH.psn rules call `id`
Address = IPv4Address | IPv6Address


def pack(header: Header, values: Mapping[str, int]) -> bytes:
    """Return the bytes of a header; fields that are not named are zero."""
    bits = 0
    for field in header.fields:
        bits = bits << field.bits | values.get(field.name, 0) & (1 << field.bits) - 1
    return bits.to_bytes(header.size_bytes, "big")


def unpack(header: Header, data: bytes) -> dict[str, int]:
    """Return the fields of a header at the start of `data`, except the reserved ones."""
    bits, left, found = int.from_bytes(data[: header.size_bytes], "big"), header.size_bytes * 8, {}
    for field in header.fields:
        left -= field.bits
        value = bits >> left & (1 << field.bits) - 1
        if field.signed and value >> field.bits - 1:
            value -= 1 << field.bits
        if field.name != layout.RESERVED:
            found[field.name] = value
    return found


def build(kind: str, fields: Mapping[str, int], dest_qpn: int, payload: bytes = b"") -> bytes:
    """Return BTH to padding of a packet with these fields; others have their correct values."""
    opcode = fields.get("opcode") or _OPCODES[kind]
    ftype = layout.FTYPE_NONE if fields.get("unstamped") else layout.FTYPE_TIMESTAMP
    given = {"ftype": ftype, **fields}
    if kind == "nack":
        given.setdefault("cc_type", layout.CC_TYPE_NACK)
    psn = fields.get("psn", fields.get("id", fields.get("cack_psn", fields.get("nack_psn", 0))))
    start = {name: given[name] for name in _BTH if name in given}
    start |= {"opcode": opcode, "psn": psn, "dest_qpn": dest_qpn, "pkey": layout.PKEY_DEFAULT}
    start |= {"ts": int(kind == "data"), "pad": -len(payload) % 4}
    headers = [pack(header, given) for header in layout.EXTENSIONS[opcode]]
    return pack(layout.BTH, start) + b"".join(headers) + payload + bytes(-len(payload) % 4)


def read(data: bytes) -> tuple[str, dict[str, int]] | None:
    """Return kind and fields of BTH to iCRC; None if it is not a packet of MRC."""
    if len(data) < layout.BTH.size_bytes + ICRC_BYTES:
        return None
    bth = unpack(layout.BTH, data)
    if bth["opcode"] not in layout.EXTENSIONS or bth["tver"]:
        return None
    kind, at = KINDS[bth["opcode"]], layout.BTH.size_bytes
    fields = {name: bth[name] for name in (*_BTH, "dest_qpn")}
    for header in layout.EXTENSIONS[bth["opcode"]]:
        if header is layout.TSETH and not bth["ts"]:
            continue
        if at + header.size_bytes > len(data) - ICRC_BYTES:
            return None
        fields |= unpack(header, data[at:])
        at += header.size_bytes
    fields["length"] = len(data) - ICRC_BYTES - at - bth["pad"]
    fields["payload_crc"] = zlib.crc32(data[at : at + fields["length"]])
    fields["unstamped"] = int("ftype" in fields and fields["ftype"] == layout.FTYPE_NONE)
    if kind in _ID:
        fields["id"] = fields["psn"] & 0xFFFF
    if kind == "response":
        fields["op"] = fields["op"] or fields["op_alternative"]
    return kind, fields


def icrc(src: Address, src_port: int, dst: Address, data: bytes) -> bytes:
    """Return the iCRC of BTH to padding in plain UDP: the destination port counts as 4791, IPv4's
    identification as 0, and fields that change in transit as ones.
    """
    length = layout.UDP.size_bytes + len(data) + ICRC_BYTES
    ports = {"src_port": src_port, "dst_port": layout.UDP_PORT, "length": length}
    udp = pack(layout.UDP, {**ports, "checksum": 0xFFFF})
    ends = {"src": int(src), "dst": int(dst)}
    if src.version == 4:
        whole = {"total_length": layout.IPV4.size_bytes + length, "ip_flags": 2, "ttl": 0xFF}
        whole |= {"version": 4, "ihl": 5, "dscp": 0x3F, "ecn": 3, "protocol": layout.PROTOCOL_UDP}
        ip = pack(layout.IPV4, {**whole, **ends, "header_checksum": 0xFFFF})
    else:
        whole = {"version": 6, "dscp": 0x3F, "ecn": 3, "flow_label": 0xF_FFFF, "hop_limit": 0xFF}
        whole |= {"payload_length": length, "next_header": layout.PROTOCOL_UDP}
        ip = pack(layout.IPV6, {**whole, **ends})
    covered = bytearray(data)
    covered[4] = 0xFF  # of the BTH, reserved
    return zlib.crc32(b"\xff" * 8 + ip + udp + covered).to_bytes(ICRC_BYTES, "little")


def inverted(crc: bytes) -> bytes:
    """Return an iCRC that is wrong in every bit."""
    return bytes(each ^ 0xFF for each in crc)
