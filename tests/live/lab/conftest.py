"""Whether this machine allows a lab at all, asked once, and how tests run one.

Where it does not, each test that needs it is skipped with the line that `mrc doctor` has for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

MRC = [sys.executable, "-m", "openmrc.cli"]
ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300  # the first lab of a version compiles the switches
FABRIC = """
[fabric]
nics = 4
planes = 2
port_rate = "100Mbps"
t0_down = 2
t0_up = 2
link_delay = "1us"
switch_delay = "1us"
"""


@cache
def lacks() -> dict[str, list[str]]:
    done = subprocess.run([*MRC, "doctor", "--json"], capture_output=True, text=True, check=False)
    uses: dict[str, dict[str, Any]] = json.loads(done.stdout)["uses"]
    return {use: found["lacks"] for use, found in uses.items()}


@pytest.fixture(params=["linux", "openmrc"])
def switch(request: pytest.FixtureRequest) -> str:
    """Both kinds of switches, one after the other."""
    return needed(request.param)


@pytest.fixture
def linux() -> str:
    return needed("linux")


def needed(switch: str) -> str:
    """The kind itself; skips the test, loudly, where the machine cannot have it."""
    if lines := lacks()[f"lab {switch}"]:
        pytest.skip(f"NOT TESTED: no lab of {switch} switches here: {lines[0]}")
    return switch


LabFile = Callable[..., Path]


@pytest.fixture
def lab_file(tmp_path: Path) -> LabFile:
    """Write a lab of four hosts and two planes, by a name of its own: labs run side by side."""

    def write(switch: str, more: str = "") -> Path:
        path = tmp_path / f"lab-{os.getpid()}.toml"
        path.write_text(f'{FABRIC}\n[lab]\nswitch = "{switch}"\n{more}')
        return path

    return write


def mrc(*arguments: str | Path, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*under, *MRC, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def said_by(host: int, done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of one host, without its mark."""
    mark = f"h{host}| "
    return [line[len(mark) :] for line in done.stdout.splitlines() if line.startswith(mark)]
