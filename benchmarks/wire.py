"""What bytes cost: nanoseconds for a frame written, read and trimmed, and GB/s of its iCRC.

    .venv/bin/python benchmarks/wire.py [--quick] [--json]

Each line is a compiled loop over `wire.codec` on one core. `near` is one frame again and again,
`far` 8192 of them in turn, 36 MB, which no cache of a core holds. The frames are those of MRC 2.1:
IPv6 in IPv6, with a time stamp. Without iCRC, as where hardware computes it, is the figure to hold
against two million packets a second; zlib's own CRC-32, called from Python on the same bytes, is
what the iCRC is held against.

Figures are the best of several runs; `bare` is the unit of `parts.py`: following one link of a list
of 1024 records and adding one to each.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from typing import Any

import numpy as np
from parts import bare, best_of, timed

from openmrc.engine import packet
from openmrc.engine.packet import PACKET
from openmrc.jit import compiled, records
from openmrc.wire import codec, frame, layout
from openmrc.wire.frame import ENVELOPE
from openmrc.wire.icrc import icrc

PMTU = 4096
ROOM_BYTES = 4352  # of a frame of that payload, in whole cache lines
INNER_IP = 54  # where the inner packet of these frames begins
TRIMMED_BYTES = 14 + codec.KEPT_BYTES
SIZES = {"near": 1, "far": 8192}  # frames; powers of two
CASES = {  # opcode, bytes of payload
    "data": (packet.WRITE_MIDDLE, PMTU),
    "headers": (packet.WRITE_MIDDLE, 0),
    "sack": (packet.SACK, 0),
}


# --- the loops


@compiled
def _encode(packets, e, payloads, frames, check, steps):
    n, last = 0, frames.shape[0] - 1
    for i in range(steps):
        k = i & last
        n = codec.encode(packets[k], e, payloads[k], frames[k], check)
    return n


@compiled
def _decode(packets, e, frames, n, check, steps):
    wrong, last = 0, frames.shape[0] - 1
    for i in range(steps):
        k = i & last
        wrong += codec.decode(frames[k], n, packets[k], e, check)
    return wrong


@compiled
def _trim(frames, n, steps):
    total, last = 0, frames.shape[0] - 1
    for i in range(steps):
        total += codec.trim(frames[i & last], n, 0, 0, 0)
    return total


@compiled
def _icrc(frames, start, end, steps):
    crc, last = 0, frames.shape[0] - 1
    for i in range(steps):
        crc ^= icrc(frames[i & last], start, end)
    return crc


# --- the measurements


class Room:
    """So many frames of one case, with their packets and payloads."""

    def __init__(self, n: int, opcode: int, payload_bytes: int) -> None:
        self.packets = records(n, PACKET)
        self.packets.opcode = opcode
        self.packets.klass = packet.CLASS_DATA
        self.packets.payload_len = payload_bytes
        self.packets.psn = np.arange(n)
        self.e: Any = records(1, ENVELOPE)[0]
        self.e.srv6 = self.e.tseth = 1
        self.e.udp_port = layout.UDP_PORT
        self.e.carrier = range(1, 17)
        self.payloads = np.random.default_rng(1).integers(0, 256, (n, PMTU), np.uint8)
        self.frames = np.zeros((n, ROOM_BYTES), np.uint8)

    def encode(self, check: int, steps: int) -> int:
        """Return the length of a frame."""
        return int(_encode(self.packets, self.e, self.payloads, self.frames, check, steps))

    def decode(self, n: int, check: int, steps: int) -> None:
        wrong = _decode(self.packets, self.e, self.frames, n, check, steps)
        assert wrong == frame.OK


def codec_ns(n: int, opcode: int, payload_bytes: int, repeats: int, steps: int) -> dict[str, float]:
    """Nanoseconds to write and to read a frame, without and with its iCRC."""
    room = Room(n, opcode, payload_bytes)
    size_bytes = room.encode(1, n)
    room.decode(size_bytes, 1, n)
    figures = {}
    for check, suffix in ((0, ""), (1, "_icrc")):
        for name, run in (
            ("encode", lambda check=check: room.encode(check, steps)),
            ("decode", lambda check=check: room.decode(size_bytes, check, steps)),
        ):
            if check:
                room.encode(1, n)
            figures[name + suffix] = best_of(repeats, lambda run=run: (timed(run)[0], steps))
    return figures


def trim_ns(n: int, repeats: int, steps: int) -> float:
    """Nanoseconds to trim what is trimmed already: the same reads and writes as the first time."""
    room = Room(n, packet.WRITE_MIDDLE, PMTU)
    assert _trim(room.frames, room.encode(0, n), n) == TRIMMED_BYTES * n

    def run() -> tuple[float, int]:
        seconds, total = timed(_trim, room.frames, TRIMMED_BYTES, steps)
        assert total == TRIMMED_BYTES * steps
        return seconds, steps

    return best_of(repeats, run)


def icrc_gb_per_s(n: int, repeats: int, steps: int) -> dict[str, float]:
    """GB/s over the inner packet of a full frame: the project's, and zlib's called from Python."""
    room = Room(n, packet.WRITE_MIDDLE, PMTU)
    end = room.encode(0, n) - 4
    views = [memoryview(room.frames[k])[INNER_IP:end] for k in range(n)]

    def by_zlib() -> tuple[float, int]:
        started = time.perf_counter()
        for i in range(steps):
            zlib.crc32(views[i & n - 1])
        return time.perf_counter() - started, steps

    _icrc(room.frames, INNER_IP, end, 1)
    own = best_of(repeats, lambda: (timed(_icrc, room.frames, INNER_IP, end, steps)[0], steps))
    return {
        "icrc": (end - INNER_IP) / own,
        "zlib": (end - INNER_IP) / best_of(repeats, by_zlib),
    }


def measure(quick: bool = False) -> dict[str, Any]:
    """All figures: {"bare": ns, "near": {"data": {"encode": ns, ...}, ...}, "far": ...}."""
    repeats, steps = (1, 100) if quick else (5, 50_000)
    result: dict[str, Any] = {"bare": bare(repeats, 40 * steps)}
    for size, n in SIZES.items():
        n = min(n, 16) if quick else n
        result[size] = {
            case: codec_ns(n, opcode, payload_bytes, repeats, steps)
            for case, (opcode, payload_bytes) in CASES.items()
        }
        result[size]["trim"] = trim_ns(n, repeats, steps)
        result[size]["gb_per_s"] = icrc_gb_per_s(n, repeats, steps // 4)
    return result


WORDS = {
    "data": f"a data packet of {PMTU} B",
    "headers": "a data packet without payload",
    "sack": "a SACK",
}
VERBS = {
    "encode": "{} written",
    "decode": "{} read",
    "encode_icrc": "{} written, with iCRC",
    "decode_icrc": "{} read, iCRC checked",
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="little data: does it run at all")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    result = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    print(f"bare: {result['bare']:.2f} ns a record")
    print(f"{'':52}{'near':>14}{'far':>27}")
    rows = [
        (text.format(words), [result[size][case][verb] for size in SIZES])
        for case, words in WORDS.items()
        for verb, text in VERBS.items()
    ]
    rows.append(("a data packet trimmed", [result[size]["trim"] for size in SIZES]))
    for words, figures in rows:
        print(f"{words:50}", *(f"{ns:10.1f} ns {1e3 / ns:6.2f} M/s" for ns in figures), sep="  ")
    for name, words in (("icrc", "iCRC of such a packet"), ("zlib", "zlib.crc32 of the same")):
        figures = [result[size]["gb_per_s"][name] for size in SIZES]
        print(f"{words:50}", *(f"{figure:15.2f} GB/s  " for figure in figures), sep="  ")


if __name__ == "__main__":
    main()
