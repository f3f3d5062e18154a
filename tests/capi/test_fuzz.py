"""A short run of the fuzzer: random calls, the stub under AddressSanitizer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.capi import build
from openmrc.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
CALLS = 1500


def test_random_calls_harm_nobody(library: Path) -> None:
    try:
        for name in ("asan", "ubsan"):
            build.sanitizer(name)
    except InputError as error:
        pytest.skip(str(error))
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [
            sys.executable,
            ROOT / "fuzz/libmrc.py",
            "--calls",
            str(CALLS),
            "--seed",
            "7",
            "--threads",
            "1",
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = {name: int(n) for n, name in re.findall(r"(\d+) (done|E[A-Z0-9]+)", done.stdout)}
    assert sum(told.values()) == CALLS
    assert told["done"] > CALLS // 5  # it goes further than first checks
    assert told["EINVAL"] > 0
    assert "EIO" not in told  # what nobody thought of
