"""Plain Python and compiled code say the same of the switches (NUMBA_DISABLE_JIT=1)."""

from __future__ import annotations

import pytest

from openmrc.jit import interpreted
from tests.engine.plain import plain
from tests.live.endpoint import recorded

pytestmark = pytest.mark.skipif(interpreted(), reason="this run is plain already")


def test_plain_and_compiled_switches_agree_on_every_frame_of_a_story() -> None:
    got = plain("-m", "tests.jit.guarded", "tests.live.endpoint.recorded")
    assert got.returncode == 0, got.stderr
    expected = recorded.run()
    assert got.stdout.splitlines() == expected
    # the story is one in which everything happens
    for word in ("link_down", "loss", "control_full", "queue_full"):
        assert word in expected[-2], expected[-2]
    trims, marked, damaged = expected[-1].split("}")[0], *expected[-1].split("}")[1].split()[:2]
    assert "0" not in (marked, damaged)
    assert ": 0" not in trims


def test_every_story_of_the_switches_holds_in_plain_python() -> None:
    got = plain(
        *("-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"),
        *("tests/live/switch/test_forwarding.py", "tests/live/switch/test_queues.py"),
    )
    assert got.returncode == 0, got.stdout[-4000:]
