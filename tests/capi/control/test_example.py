"""The example of a controller in C: it compiles without a warning, says what it lacks, and follows
paths that come and go.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.capi import build, devices
from openmrc.capi.control import configuring
from openmrc.fabric.clos import multiplane
from openmrc.verbs.inside import Inside
from openmrc.wire import addresses

SOURCE = Path(__file__).resolve().parents[3] / "examples/libmrc/controller.c"
TO = 3
RENAMED = {"main": "main", "nanosleep": "pause", "exit": "exit"}  # as rounds.c has them
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


def test_it_denies_what_does_not_answer_and_allows_it_again(
    library: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "controller.so"
    inside = [f"-D{name}=example_{to}" for name, to in RENAMED.items()]
    subprocess.run(
        [build.compiler(), *STRICT, "-shared", "-fPIC", *inside, "-I", library / "include", SOURCE,
         Path(__file__).with_name("rounds.c"), "-o", program, "-L", library, "-lmrc", "-libverbs",
         f"-Wl,-rpath,{library}"],
        check=True,
    )  # fmt: skip
    monkeypatch.setenv("OPENMRC_HOST", "within this process")
    monkeypatch.setattr(configuring, "is_privileged", lambda: True)
    with Inside(multiplane(4, 2, 10**9, 2, 2, 0, 0)) as fabric:
        monkeypatch.setattr(devices, "opened", lambda _: fabric.device(0))
        fabric.device(TO)
        f, rounds = fabric.fabric, list[int]()
        paths = [(plane, up) for plane in range(2) for up in range(2)]
        words = [f"{f.ev(plane, up):08x}:{plane + 1}" for plane, up in paths]
        dead = words[paths.index((0, 1))]

        def between_rounds() -> None:
            rounds.append(len(rounds))
            if len(rounds) == 1:
                fabric.lose("plane 0 t1 1", 1.0)
            elif len(rounds) == 5:
                fabric.heal("plane 0 t1 1")

        given = [b"controller", str(addresses.ipv6(TO, 0)).encode(), *map(str.encode, words)]
        passed = ctypes.CFUNCTYPE(None)(between_rounds)
        run = ctypes.CDLL(str(program)).example_run
        assert run(len(given), (ctypes.c_char_p * len(given))(*given), passed) == 0
    said = capfd.readouterr().out.splitlines()
    assert len([line for line in said if "probes answered" in line]) == len(rounds) == 10
    assert said.index(f"{dead} DENIED") < said.index(f"{dead} GOOD again")
