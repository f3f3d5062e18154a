#!/usr/bin/env python3
"""Mutated frames and captures by the million, without a fuzzer: errors of ours only, and plain and
compiled agree (README.md beside this says how).

    python fuzz/mutations.py --frames 1000000 --captures 10000 --seed 1
"""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from fuzz.lengths import set_lengths  # noqa: E402
from openmrc.errors import InputError  # noqa: E402
from openmrc.wire import Packet, frame  # noqa: E402
from openmrc.wire.pcap import Writer, read  # noqa: E402
from openmrc.wire.readers import Readers, Unread  # noqa: E402
from openmrc.wire.roce.summary import RoceSummary  # noqa: E402
from openmrc.wire.summary import Summary  # noqa: E402
from tests.wire.vectors import VECTORS, both, frame_of  # noqa: E402

CHANGES_MAX = 8  # of one frame or file
FRAMES_MAX = 12  # of one capture
SHOW_S = 10.0


def seeds() -> list[bytes]:
    """The frames of the vectors, and those that the fuzzer found."""
    corpus = sorted((ROOT / "fuzz/corpus").iterdir())
    return [frame_of(vector) for vector in VECTORS.values()] + [one.read_bytes() for one in corpus]


def mutated(data: bytes, rng: random.Random) -> bytearray:
    """A few bytes changed, cut out, put in, or copied from elsewhere."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, CHANGES_MAX)):
        if not changed:
            break
        at = rng.randrange(len(changed))
        what = rng.randrange(6)
        if what == 0:
            changed[at] = rng.randrange(256)
        elif what == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 3:
            del changed[at : at + rng.randint(1, 16)]
        elif what == 4:
            changed[at:at] = rng.randbytes(rng.randint(1, 16))
        else:
            other, n = rng.randrange(len(changed)), rng.randint(1, 8)
            changed[at : at + n] = changed[other : other + n]
    return changed


def one_frame(frames: Sequence[bytes], rng: random.Random) -> str:
    """Both decoders on a mutated frame; what they say, in a word."""
    data = mutated(rng.choice(frames), rng)
    if rng.random() < 0.5:
        set_lengths(data)
    found = both(bytes(data), check=False)
    both(bytes(data), check=True)
    return "accepted" if isinstance(found, Packet) else frame.REASONS[found[0]]


def one_capture(frames: Sequence[bytes], path: Path, rng: random.Random) -> str:
    """The reader, the decoders and the summaries on a mutated file; how it ended."""
    stream = io.BytesIO()
    writer = Writer(stream, ["a", "b"])
    whole = rng.random() < 0.5  # the frames are changed, or the file around them
    for number in range(rng.randint(0, FRAMES_MAX)):
        data = rng.choice(frames)
        writer.write(rng.randrange(2), number, bytes(mutated(data, rng)) if whole else data)
    path.write_bytes(stream.getvalue() if whole else mutated(stream.getvalue(), rng))
    readers, mrc, roce = Readers(check=rng.random() < 0.5), Summary(), RoceSummary()
    try:
        with read(path) as reader:
            for captured in reader:
                found = readers.read(captured)
                assert found.line()
                if isinstance(found, Unread):
                    mrc.add_damaged(found.reason)
                else:
                    found.add_to(captured, mrc, roce, {})
    except InputError:
        return "refused"
    return "read"


def main() -> int:
    """Run as many of both as asked for; an assertion or an error that is not ours ends it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--captures", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    frames, shown = seeds(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mutated"
        for what, n in (("frames", options.frames), ("captures", options.captures)):
            counts: Counter[str] = Counter()
            for number in range(n):
                rng = random.Random(f"{options.seed} {what} {number}")
                try:
                    word = (
                        one_frame(frames, rng)
                        if what == "frames"
                        else one_capture(frames, file, rng)
                    )
                except Exception:
                    print(f"{what} {number} of seed {options.seed}", file=sys.stderr)
                    raise
                counts[word] += 1
                if time.monotonic() > shown + SHOW_S:
                    shown = time.monotonic()
                    print(f"{number:,} of {n:,} {what}", file=sys.stderr)
            print(f"{n:,} {what}: " + ", ".join(f"{k:,} {w}" for w, k in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
