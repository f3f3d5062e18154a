#!/usr/bin/env python3
"""Fuzzing of a live endpoint (README.md beside this says how).

Input becomes a frame of an attacker who knows all that is on the wire about one queue pair, with
some fields and bytes changed and, mostly, a right iCRC (`tests/live/endpoint/stage.py`). Whatever
comes, memory keeps its canaries, another queue pair's transfer completes, and nothing leaks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Numba cannot compile what is instrumented: guidance is only where all stays Python
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
GUIDED = ["openmrc.live", "openmrc.engine", "openmrc.wire.checks", "openmrc.wire.codec"]

if INTERPRETED:
    import numpy as np

    np.seterr(over="ignore")  # as compiled code does
    with atheris.instrument_imports(include=GUIDED):
        from tests.live.endpoint.stage import Script, Stage
else:
    from tests.live.endpoint.stage import Script, Stage


def main() -> None:
    """Hand over to libFuzzer and its options."""
    script = Script(Stage(), every=256 if INTERPRETED else 64)
    script.stage.transfer()  # what is not compiled yet is compiled before the clock starts
    script.play(bytes(4))
    atheris.Setup(sys.argv, script.play)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
