"""A controller in C: its day, with and without the right to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.capi import build
from openmrc.capi.control import configuring

SOURCE = Path(__file__).with_name("day.c")
PLANE = "127.0.14.1"
MAY = configuring.is_privileged()


@pytest.fixture(scope="module")
def program(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("day") / "day"
    words = [build.compiler(), "-Wall", "-Wextra", "-Werror", "-I", str(library / "include")]
    words += [str(SOURCE), "-o", str(out), "-L", str(library), "-lmrc", "-libverbs", "-lpthread"]
    subprocess.run([*words, f"-Wl,-rpath,{library}"], check=True)
    return out


def day(program: Path, may: bool) -> str:
    done = subprocess.run(
        [program, str(int(may))],
        env={
            **os.environ,
            "OPENMRC_INTERFACES": PLANE,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return done.stdout + done.stderr


def test_a_controller_is_told_what_the_header_says(program: Path) -> None:
    """With the right to it, or, where tests run without, that it has none."""
    assert day(program, MAY) == "0 wrong\n"
