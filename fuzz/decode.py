#!/usr/bin/env python3
"""Coverage-guided fuzzing of both decoders of frames (README.md beside this says how).

Whatever the bytes, the plain and the compiled decoder must give the same verdict and the same
values, and what they accept must come back the same after encoding and decoding once more.
"""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import suppress
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PACKAGE = ROOT / "src" / "openmrc"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
}
PLAIN = {
    "openmrc.wire.offload",
    "openmrc.wire.walk",
    "openmrc.wire.view",
    "openmrc.wire.roce.view",
}
# Numba cannot compile what is instrumented: the compiled decoder is only where it stays Python
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
SEEN = {m for m in MODULES if m.startswith("openmrc.wire.")} if INTERPRETED else PLAIN

with atheris.instrument_imports(include=["openmrc"], exclude=sorted(MODULES - SEEN)):
    from fuzz.lengths import set_lengths
    from openmrc.engine import packet
    from openmrc.wire import Packet, WireError, decode, encode, frame, layout
    from openmrc.wire.meant import MRC, ROCE
    from openmrc.wire.offload import layers
    from openmrc.wire.pcap import Captured
    from openmrc.wire.readers import Found, Readers
    from openmrc.wire.roce import pause
    from openmrc.wire.roce.pause import PauseError
    from tests.wire.joined import with_lengths
    from tests.wire.roce.roce_frames import both as both_of_roce
    from tests.wire.vectors import both, values


def one_input(data: bytes) -> None:
    """Read one frame in every way; raises `AssertionError` where two answers differ."""
    found, strict = both(data, check=False), both(data, check=True)
    captured_of(data)
    of_others(data)
    of_a_capture(data[: len(data) * 3 // 4])
    of_a_capture(twice(data))
    if not isinstance(found, Packet):
        assert strict == found
        return
    assert found.show()
    assert json.dumps(found.as_dict())
    if found.icrc_ok is False:
        assert strict == (frame.ICRC, found.ip_end - layout.ICRC.size_bytes)
    if not found.trimmed:
        again = both(encode(found.record, found.envelope, found.payload), check=True)
        assert isinstance(again, Packet)
        assert values(again.record, packet.PACKET) == values(found.record, packet.PACKET)
        assert values(again.envelope, frame.ENVELOPE) == values(found.envelope, frame.ENVELOPE)


def captured_of(data: bytes) -> None:
    """Read what a capture kept of a frame, three quarters."""
    try:
        found = decode(data[: len(data) * 3 // 4], check=False, length=len(data))
    except WireError:
        return
    assert int(found.record.opcode) == found["BTH"]["opcode"]


def of_a_capture(data: bytes) -> None:
    """Read what a host's capture or a mirror's copy has, one packet or several, in both ways."""
    readers = Readers(check=False)
    for one, found in readers.packets(Captured(1, "", 0, data, len(data))):
        assert found.line()
        if isinstance(found, Found) and found.protocol in (MRC, ROCE):
            told = readers.fields(one, found.protocol)
            p, bth = found.frame.p, told["headers"]["BTH"]
            assert (p.opcode, p.dst_qpn) == (bth["opcode"], bth["dest_qpn"])
            assert p.payload_len == told["payload_length"]


def twice(data: bytes) -> bytes:
    """A frame as a host has it that joined two packets."""
    found = layers(data, len(data))
    if found is None or found.end > len(data):
        return data
    body = 2 * data[found.bth : found.end]
    return with_lengths(data[: found.bth], found.ips, found.udp, len(body) & 0xFFFF, False) + body


def of_others(data: bytes) -> None:
    """Read it as RoCEv2, in both ways, and as a pause frame."""
    both_of_roce(data, check=False)
    both_of_roce(data, check=True)
    with suppress(PauseError):
        assert pause.line(pause.read(data))


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change a frame as the fuzzer likes; every other time with lengths that are right again."""
    changed = bytearray(atheris.Mutate(data, most))
    if random.Random(seed).random() < 0.5:
        set_lengths(changed)
    return bytes(changed)


def main() -> None:
    """Hand over to libFuzzer and its options."""
    atheris.Setup(sys.argv, one_input, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
