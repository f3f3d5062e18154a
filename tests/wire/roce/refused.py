"""RoCEv2 frames that are none: why they are refused, and at which byte."""

from __future__ import annotations

from openmrc.wire import frame
from openmrc.wire.layout import ETHERNET, IPV4, UDP
from tests.wire.roce.roce_frames import a_frame

UDP_AT = ETHERNET.size_bytes + IPV4.size_bytes
BTH_AT = UDP_AT + UDP.size_bytes


def changed(data: bytes, at: int, *new: int) -> bytes:
    return data[:at] + bytes(new) + data[at + len(new) :]


REFUSED = {
    "the other port of MRC": (changed(a_frame(0x0A), UDP_AT + 2, 0x13, 0x6B), frame.UDP_PORT, 36),
    "reserved": (changed(a_frame(0x0A), BTH_AT, 0x18), frame.OPCODE, BTH_AT),
    "version": (changed(a_frame(0x0A), BTH_AT + 1, 0x01), frame.TRANSPORT_VERSION, BTH_AT + 1),
    "no RETH": (changed(a_frame(0x11), BTH_AT, 0x06), frame.EXTENSION_LENGTH, BTH_AT + 12),
    "no ImmDt": (
        changed(a_frame(0x06, payload_len=0), BTH_AT, 0x0B),
        frame.EXTENSION_LENGTH,
        BTH_AT + 28,
    ),
    "pad": (changed(a_frame(0x11), BTH_AT + 1, 0x30), frame.PAD, BTH_AT + 1),
    "ACK with payload": (
        changed(a_frame(0x0A, payload_len=4), BTH_AT, 0x11),
        frame.PAYLOAD_LENGTH,
        BTH_AT + 16,
    ),
    "iCRC": (changed(a_frame(0x11), BTH_AT + 14, 0x99), frame.ICRC, BTH_AT + 16),
    "no BTH": (a_frame(0x11)[:14], frame.TOO_SHORT, 14),
}
