"""The cache must never lie: an edit in a called file is seen, and nothing stale is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openmrc import jit

# The window after one loss of a QP with a window of 100 packets, by the compiled engine of a copy.
PROBE = """
import numpy as np
from openmrc.engine import nscc
from openmrc.engine.state import CONFIG, QP
from openmrc.jit import records
c, q = records(1, CONFIG)[0], records(1, QP)[0]
c.pmtu, c.nominal_overhead, c.base_rtt_ps, c.cc, c.trimming = 4096, 88, 8_000_000, 1, 1
nscc.configure(q, c, 800 * 10**9)
q.cwnd, q.cut_started = 100 * q.pkt, -(10**12)
nscc.on_loss(q, c, np.int64(0))
print(round(q.cwnd / q.pkt, 3))
"""


def copy_of_the_package(tmp_path: Path) -> Path:
    shutil.copytree(jit.PACKAGE, tmp_path / "openmrc", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(copy: Path, code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy), "OPENMRC_CACHE": str(copy / "cache")}
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_an_edit_of_nscc_is_seen_by_compiled_code(tmp_path: Path) -> None:
    copy = copy_of_the_package(tmp_path)
    assert run(copy, PROBE) == run(copy, PROBE) == "99.0"
    file = copy / "openmrc/engine/nscc.py"
    text = file.read_text()
    edited = text.replace("cut_to = max(q.cwnd - q.pkt,", "cut_to = max(q.cwnd - 7 * q.pkt,")
    assert edited != text
    file.write_text(edited)
    assert run(copy, PROBE) == "93.0"


KEY = "from openmrc import jit; print(jit.cache_key(), jit.is_cached())"


@pytest.mark.parametrize("name", ["engine/bits.py", "engine/nscc.py", "sim/link.py", "jit.py"])
def test_an_edit_of_any_compiled_file_changes_the_key(tmp_path: Path, name: str) -> None:
    copy = copy_of_the_package(tmp_path)
    before = run(copy, KEY)
    assert run(copy, KEY) == before
    file = copy / "openmrc" / name
    file.write_text(file.read_text() + "\n# another comment\n")
    assert run(copy, KEY) != before


def test_a_fresh_cache_is_not_taken_for_a_full_one(tmp_path: Path) -> None:
    copy = copy_of_the_package(tmp_path)
    assert run(copy, KEY).endswith("False")
    marked = "from openmrc import jit; jit.mark_cached(); print(jit.is_cached())"
    assert run(copy, marked) == "True"
    assert run(copy, KEY).endswith("True")


def test_old_caches_are_removed_and_the_newest_kept(tmp_path: Path) -> None:
    copy = copy_of_the_package(tmp_path)
    cache = copy / "cache"
    for age in range(6):
        (cache / f"old{age}").mkdir(parents=True)
        (cache / f"old{age}/ready").touch()
        os.utime(cache / f"old{age}/ready", (1_000_000 - age, 1_000_000 - age))
    run(copy, "from openmrc import jit; jit.mark_cached()")
    kept = sorted(path.name for path in cache.iterdir() if path.name.startswith("old"))
    assert kept == ["old0", "old1", "old2"]


def test_records_lie_on_cache_lines_and_read_as_attributes() -> None:
    three = jit.records(3, np.dtype([("window", "i8"), ("state", "i1")], align=True))
    assert three.ctypes.data % jit.CACHE_LINE == 0
    three[1].window = 7
    assert three.window.tolist() == [0, 7, 0]


def test_a_field_that_numpy_would_shadow_is_refused() -> None:
    with pytest.raises(AssertionError, match="size"):
        jit.records(1, np.dtype([("size", "i8")]))
