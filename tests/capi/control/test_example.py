"""The example of a controller in C: it compiles without a warning, and says what it lacks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from openmrc.capi import build

SOURCE = Path(__file__).resolve().parents[3] / "examples/libmrc/controller.c"
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]


def test_it_compiles_and_without_a_device_it_says_so(library: Path, tmp_path: Path) -> None:
    program = tmp_path / "controller"
    subprocess.run(
        [build.compiler(), *STRICT, "-I", library / "include", SOURCE, "-o", program, "-L", library,
         "-lmrc", "-libverbs", f"-Wl,-rpath,{library}"],
        check=True,
    )  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for name in ("OPENMRC_HOST", "OPENMRC_INTERFACES"):
        environment.pop(name, None)
    for words, said in (
        ([], "controller PEER-GID EV:PORT..."),
        (["::1", "0123abcd:1"], "controller: no device: No such device"),
        (["::1", "012:1"], "controller: 012:1: Invalid argument"),
    ):
        done = subprocess.run(
            [program, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode > 0, done.stderr.strip()) == (True, said)
