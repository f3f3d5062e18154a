"""Some of PyTorch's own tests, of each kind one; `make torch-suite` runs all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")
pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest")

ROOT = Path(__file__).parents[2]
CHOSEN = (
    "test_DistributedDataParallel_requires_grad",
    "test_all_gather_coalesced_with_empty",
    "test_all_reduce_full_group_product",
    "test_irecv",
    "test_scatter_complex",
    "test_send_recv_any_source",
)


def test_pytorchs_own_tests_pass() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-W", "ignore"),
            "--tb=short",
            *(f"tests/torch/dist_suite.py::Suite::{name}" for name in CHOSEN),
        ],
        cwd=ROOT,
        env={**os.environ, "BACKEND": "mrc", "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout
    assert passed, done.stdout
    assert int(passed[1]) == len(CHOSEN), done.stdout
