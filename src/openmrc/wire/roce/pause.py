"""Frames of priority flow control, as bytes and as text (IEEE 802.1Q 36, 802.3 31B and 31D).

    dst 01:80:c2:00:00:01, src of the port that sends, ethertype 0x8808
    opcode 0x0101, class-enable vector (bit c: class c), eight times a number of quanta
    zeros up to 60 bytes; the FCS makes it 64

An enabled class is paused for that many quanta of 512 bit times; 0 quanta resume it. Switches do
not forward such frames.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmrc.errors import OpenMrcError
from openmrc.jit import compiled
from openmrc.wire.words import put_bytes, zero

DESTINATION = (0x01, 0x80, 0xC2, 0x00, 0x00, 0x01)
ETHERTYPE = 0x8808
OPCODE = 0x0101
CLASSES = 8
FRAME_BYTES = 60  # without FCS
_SRC, _ETHERTYPE, _OPCODE, _VECTOR, _QUANTA = 6, 12, 14, 16, 18
_END = _QUANTA + 2 * CLASSES

# The class of data: the one that operators of RoCEv2 commonly make lossless.
DATA_PRIORITY = 3


@compiled
def write(out, src_mac, priority, quanta):
    """Write a frame for one class into `out` (uint8); return its length in bytes, -1 if out of
    room.
    """
    if out.shape[0] < FRAME_BYTES:
        return -1
    zero(out[:FRAME_BYTES])
    for i in range(len(DESTINATION)):
        out[i] = DESTINATION[i]
    put_bytes(out, _SRC, src_mac)
    out[_ETHERTYPE] = ETHERTYPE >> 8
    out[_ETHERTYPE + 1] = ETHERTYPE & 0xFF
    out[_OPCODE] = OPCODE >> 8
    out[_OPCODE + 1] = OPCODE & 0xFF
    out[_VECTOR + 1] = 1 << priority
    out[_QUANTA + 2 * priority] = quanta >> 8
    out[_QUANTA + 2 * priority + 1] = quanta & 0xFF
    return FRAME_BYTES


class PauseError(OpenMrcError):
    """A MAC control frame that is not PFC: `offset` is where, `reason` what is wrong."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"byte {offset}: {reason}")


class Pause(NamedTuple):
    """A decoded frame; `quanta` by class, for those that are enabled."""

    source: str  # MAC
    destination: str
    enabled: int  # the vector
    quanta: dict[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the frame for JSON."""
        return {
            "src_mac": self.source,
            "dst_mac": self.destination,
            "class_enable_vector": self.enabled,
            "quanta": {str(number): quanta for number, quanta in self.quanta.items()},
        }


def is_mac_control(data: bytes) -> bool:
    """Whether a frame, which may be truncated, is one of MAC control."""
    return int.from_bytes(data[_ETHERTYPE : _ETHERTYPE + 2]) == ETHERTYPE


def read(data: bytes) -> Pause:
    """Read a frame, from its Ethernet header on. Raises no exception but `PauseError`."""
    if not is_mac_control(data):
        raise PauseError(_ETHERTYPE, "not MAC control")
    if len(data) < _END:
        raise PauseError(min(len(data), _OPCODE), "the frame ends within a header")
    if int.from_bytes(data[_OPCODE:_VECTOR]) != OPCODE:
        raise PauseError(_OPCODE, "MAC control, but not a PFC frame")
    if data[_VECTOR] != 0:
        raise PauseError(_VECTOR, "a class above 7")
    enabled = data[_VECTOR + 1]
    quanta = {
        number: int.from_bytes(data[_QUANTA + 2 * number : _QUANTA + 2 * number + 2])
        for number in range(CLASSES)
        if enabled >> number & 1
    }
    return Pause(data[_SRC:_ETHERTYPE].hex(":"), data[:_SRC].hex(":"), enabled, quanta)


def line(found: Pause) -> str:
    """Return one line that summarises a frame."""
    told = ", ".join(
        f"class {number} holds for {quanta} quanta" if quanta else f"class {number} goes on"
        for number, quanta in found.quanta.items()
    )
    return f"{found.source} -> {found.destination}  PFC  {told or 'no class'}"
