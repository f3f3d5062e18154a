"""Some of PyTorch's own tests while planes are cut; `make torch-suite-cuts` runs all."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")
pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest")

from tests.live.lab.conftest import needed
from tests.torch import cut_suite

ROOT = Path(__file__).parents[2]
SEVERAL = "tests/torch/dist_several.py::Several::test_several"


def test_pytorchs_own_tests_pass_while_planes_are_cut() -> None:
    needed("linux")
    done = subprocess.run(
        [sys.executable, "-m", "tests.torch.cut_suite", "--", "-q", "--tb=short", SEVERAL],
        cwd=ROOT,
        env={**os.environ, "BACKEND": "mrc", "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout, done.stdout
    cuts = int(done.stdout.splitlines()[-1].removeprefix("seed 1: ").removesuffix(" cuts"))
    assert cuts > 0, done.stdout


def test_a_plane_of_each_pair_always_lives() -> None:
    draw = random.Random(1)
    drawn = [cut_suite.places(draw) for _ in range(200)]
    assert {len(one) for one in drawn} == {1, 2, 3}
    assert {kind for one in drawn for _, kind in one} == {"link-down", "switch-silent"}
    for one in drawn:
        cut = {place.partition("plane ")[2].split()[0] for place, _ in one}
        assert len(cut) == len(one) < cut_suite.PLANES
