"""Plain Python and compiled code say the same (NUMBA_DISABLE_JIT=1 makes all of it plain)."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.jit import interpreted
from tests.engine import recorded
from tests.engine.plain import plain

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(interpreted(), reason="this run is plain already")


def test_plain_and_compiled_engine_agree_on_every_state_of_recorded_sequences() -> None:
    got = plain("-m", "tests.jit.guarded", "tests.engine.recorded")
    assert got.returncode == 0, got.stderr
    assert got.stdout.splitlines() == recorded.run()


def test_every_story_holds_in_plain_python() -> None:
    got = plain(
        "-m", "pytest", "tests/engine", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"
    )
    assert got.returncode == 0, got.stdout[-4000:]
