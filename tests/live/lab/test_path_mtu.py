"""A link between two of Linux's switches that carries less than every port at its ends (row 20)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.lab.conftest import TIMEOUT_S, LabFile, said_by
from tests.live.lab.fabric import FABRIC

NARROW = [sys.executable, str(Path(__file__).with_name("narrow.py"))]


@pytest.mark.parametrize("mode", ["native", "udp"])
def test_a_narrow_link_in_the_middle_is_named(linux: str, mode: str, lab_file: LabFile) -> None:
    """One of the plane's two paths leads over it; both ends are told, each in its own words."""
    words = [*NARROW, str(lab_file(linux, f'mode = "{mode}"'))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    one, other = (json.loads(said_by(host, done)[-1]) for host in (0, 3))
    assert one["pmtu"] == other["pmtu"] == 4096
    assert one["error"].startswith(f"plane 1, EV {FABRIC.ev(1, 1):#010x}: small packets arrive")
    assert "set the MTU to 4228 or more on every link of the path" in one["error"]
    assert other["error"] == f"as seen by the peer: {one['error']}"
