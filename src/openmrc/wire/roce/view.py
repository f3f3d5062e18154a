"""A RoCEv2 frame for people: every header with its fields, for JSON. Plain Python, without Numba.

`roce.codec` does the same compiled; the two were written independently, make the same checks in the
same order, and tests compare them.
"""

from __future__ import annotations

from openmrc.wire import frame as codes
from openmrc.wire import layout
from openmrc.wire.frame import WireError
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce
from openmrc.wire.view import DecodedFrame, checked
from openmrc.wire.walk import Cursor, Walk, read_ip, read_udp


def decode(data: bytes, *, check: bool = True, length: int | None = None) -> DecodedFrame:
    """Read one frame, from its Ethernet header on, without FCS. Raises no exception but
    `WireError`.

    `check` and `length` as in `view.decode`.
    """
    data = bytes(data)
    length = max(length or 0, len(data))
    found = _walk(data, length)
    return checked(found, data, length, check)


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
    if padded - pad > roce_layout.payload_bytes_max(bth["opcode"]):
        raise WireError(codes.PAYLOAD_LENGTH, cursor.at)
    headers = tuple(cursor.headers)
    return Walk(headers, ip, udp, bth, cursor.at, padded - pad, ip_end, trimmed=False)
