"""What a frame that cannot be read was meant as, and how long a packet must be, by its first bytes.

UDP port 4791 is also one that any program may be given: a frame is damaged MRC or RoCEv2 only if
its BTH leaves no doubt, and is another protocol's otherwise.
"""

from __future__ import annotations

import numpy as np

from openmrc.engine import packet
from openmrc.wire import layout
from openmrc.wire.icrc import icrc
from openmrc.wire.offload import Layers
from openmrc.wire.roce import layout as roce_layout
from openmrc.wire.roce import opcodes as roce

MRC, ROCE = "MRC", "RoCEv2"


def exact_bytes(body: bytes, is_trimmed: bool) -> int | None:
    """Bytes from the BTH to the end that a packet must have, by its first bytes; None if its
    payload is as long as the sender chose, or as a switch left it.
    """
    if is_trimmed or len(body) < layout.BTH.size_bytes:
        return None
    opcode = body[0]
    if opcode in layout.OPCODES and opcode > packet.LAST_DATA:
        headers: tuple[layout.Header, ...] = layout.EXTENSIONS[opcode]
    elif opcode in roce_layout.OPCODES and not roce_layout.payload_bytes_max(opcode):
        headers = roce_layout.EXTENSIONS[opcode]
    else:
        return None
    extensions = sum(header.size_bytes for header in headers)
    return int(layout.BTH.size_bytes + extensions + layout.ICRC.size_bytes)


def meant(data: bytes, layers: Layers) -> str | None:
    """The protocol that a frame was surely meant as: it goes to its port, with an opcode of its
    own, and at most one of version, partition and reserved bits is wrong.
    """
    body = data[layers.bth :]
    port = int.from_bytes(data[layers.udp + 2 : layers.udp + 4], "big")
    if port not in (layout.UDP_PORT, layout.UDP_PORT_ALTERNATIVE) or len(body) < 12:
        return None
    opcode, reserved = body[0], 0x0F if body[0] in layout.OPCODES else 0x7F
    wrong = (body[1] & 0xF != 0) + (body[2:4] in (b"\0\0", b"\x80\0")) + (body[8] & reserved != 0)
    if opcode in layout.OPCODES:
        return MRC if wrong <= 1 else None
    if port == roce.UDP_PORT and opcode in roce_layout.OPCODES:
        return ROCE if wrong <= 1 else None
    of_mrc = opcode >> 5 == packet.WRITE_ONLY >> 5 and not wrong
    return MRC if of_mrc and not _has_right_icrc(data, layers) else None


def _has_right_icrc(data: bytes, layers: Layers) -> bool:
    """Whether the last bytes are the iCRC of the packet before them."""
    end = layers.end - layout.ICRC.size_bytes
    if layers.end > len(data) or end < layers.bth:
        return False
    right = icrc(np.frombuffer(bytearray(data), np.uint8), layers.ips[-1], end)
    return bool(int.from_bytes(data[end : layers.end], "little") == right)
