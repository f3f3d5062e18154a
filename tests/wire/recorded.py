"""Frames of every kind, whole, cut, trimmed and damaged, and a hash of what the codec says of each:
plain and compiled must agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from openmrc.wire import codec, layout
from tests.wire.frames import SHAPES, any_frame, fields, received, senders, sent, trimmed

SEED = 21
DAMAGED = 12  # copies of each frame with a few bytes changed


def run() -> list[str]:
    """One line for each opcode and shape."""
    rng = np.random.default_rng(SEED)
    return [
        f"{name} {shape} {digest(rng, opcode, shape)}"
        for opcode, name in layout.OPCODES.items()
        for shape in SHAPES
    ]


def digest(rng: np.random.Generator, opcode: int, shape: str) -> str:
    """Hash of the frame and of all verdicts on it and its descendants."""

    def draw(least: int, most: int) -> int:
        if most == layout.PAYLOAD_BYTES_MAX:
            most = 40  # plain Python is slow
        return int.from_bytes(rng.bytes(9), "big") % (most - least + 1) + least

    p, e = any_frame(draw, opcode, shape)
    wire = sent(p, e, rng.bytes(7))
    h = hashlib.sha256(bytes(wire))
    for data in descendants(rng, wire):
        verdict = received(data, **senders(e))
        h.update(repr((verdict.brief, fields(verdict.p), fields(verdict.e))).encode())
        out: Any = np.frombuffer(bytearray(data), np.uint8)
        h.update(repr(int(codec.trim(out, len(out), len(out) & 1, 0, 0))).encode() + out.tobytes())
    return h.hexdigest()[:16]


def descendants(rng: np.random.Generator, wire: bytearray) -> Iterator[bytes]:
    yield bytes(wire)
    yield bytes(trimmed(wire))
    for n in range(0, len(wire), 7):
        yield bytes(wire[:n])
    for _ in range(DAMAGED):
        data = bytearray(wire)
        for at in rng.integers(12, len(data), 2):
            data[at] ^= int(rng.integers(1, 256))
        yield bytes(data)


if __name__ == "__main__":
    print("\n".join(run()))
