"""Who finds the backend, and what it costs those who do not want it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra openmrc[torch] is not installed")

from tests.torch.ranks import free_port

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, torch
import torch.distributed as dist
assert dist.Backend._plugins.keys() >= {"MRC"}
assert "numba" not in sys.modules  # nobody pays for what is not used
dist.init_process_group("mrc", init_method="tcp://127.0.0.1:%d", rank=0, world_size=1)
x = torch.ones(3)
dist.all_reduce(x)
assert x.tolist() == [1, 1, 1]
dist.destroy_process_group()
"""


def _installed(place: Path, entry_point: str) -> None:
    """As if pip had installed the package's entry points."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(points) >= {"torch.backends", "torch.distributed.backends"}
    assert points["torch.backends"] == {"mrc": "openmrc.torch.register:autoload"}
    info = place / "mrc_points-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mrc-points\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[torch.backends]\nmrc_points = {entry_point}\n")


def _python(place: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{place}:{ROOT / 'src'}"
    import os

    return subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_an_unmodified_script_names_mrc(tmp_path: Path) -> None:
    _installed(tmp_path, "openmrc.torch.register:autoload")
    done = _python(tmp_path, SCRIPT % free_port())
    assert done.returncode == 0, done.stderr


def test_a_failure_of_the_entry_point_never_breaks_import_torch(tmp_path: Path) -> None:
    """What cannot be replaced is named in a warning, and torch is there."""
    _installed(tmp_path, "openmrc.torch.register:autoload")
    script = "import warnings; warnings.simplefilter('default'); import torch; print('there')"
    done = _python(tmp_path, script, OPENMRC_AS="nccl")
    assert done.stdout == "there\n"
    assert "OPENMRC_AS = 'nccl': only gloo can be replaced" in done.stderr
