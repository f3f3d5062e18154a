"""The cache of compiled code must never lie: an edit anywhere is an edit everywhere."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from openmrc import jit

COMPILES = re.compile(r"@(compiled|inner|inlined)\b|\bnjit\b")

# `open_qp` stands in ports.py; what it does to the window is written in nscc.py.
CALL_ACROSS_FILES = """
import json
from openmrc import jit
from openmrc.engine import ports, state

st = state.new_state(
    qps=1, slots=1, planes=1, evs=1, order=1, messages=1, rx_messages=1, words=1, regions=1,
    nics=1, peers=1,
)
config = st.config[0]
config.pmtu = 4096
config.port_rate_bps = 100_000_000_000
config.base_rtt_ps = 10_000_000
config.trimming = 1
st.qp[0].n_planes = 1
st.nic[0].up_mask = st.peer[0].remote_mask = 1
ports.open_qp(st, 0)
print(json.dumps({
    "key": jit.CACHE_DIR.name,
    "target": int(st.qp[0].target),
    "from_disk": sum(ports.open_qp.stats.cache_hits.values()),
}))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, free to be edited."""
    to = tmp_path / "src" / "openmrc"
    shutil.copytree(jit.PACKAGE, to, ignore=shutil.ignore_patterns("__pycache__"))
    return to


@pytest.fixture
def key_of_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`jit.cache_key` looks at the copy."""
    monkeypatch.setattr(jit, "PACKAGE", copy)
    return copy


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edit_in_a_called_file_is_seen(copy: Path, tmp_path: Path) -> None:
    """Numba alone would take `open_qp` from the disk and run the old window: its own file is as it
    was.
    """
    environment = os.environ | {
        "PYTHONPATH": str(copy.parent),
        "OPENMRC_CACHE": str(tmp_path / "cache"),
        "NUMBA_DISABLE_JIT": "0",
    }

    def run() -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", CALL_ACROSS_FILES],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    first, again = run(), run()
    assert (first["target"], first["from_disk"]) == (7_500_000, 0)
    assert (again["target"], again["from_disk"]) == (7_500_000, 1)  # the cache does work
    edit(copy / "engine" / "nscc.py", "0.75 * t if", "0.5 * t if")
    edited = run()
    assert (edited["target"], edited["from_disk"]) == (5_000_000, 0)
    assert first["key"] == again["key"] != edited["key"]


def test_the_key_changes_with_every_compiled_file(key_of_copy: Path) -> None:
    seen = {jit.cache_key()}
    files = jit.sources()
    assert len(files) > 20
    for path in files:
        path.write_text(path.read_text() + "\n")
        seen.add(jit.cache_key())
    assert len(seen) == len(files) + 1


def test_the_key_changes_with_a_file_that_comes_or_goes_or_moves(key_of_copy: Path) -> None:
    keys = [jit.cache_key()]
    extra = key_of_copy / "engine" / "another.py"
    extra.write_text("X = 1\n")
    keys.append(jit.cache_key())
    extra.rename(key_of_copy / "engine" / "yet_another.py")
    keys.append(jit.cache_key())
    (key_of_copy / "sim" / "switch.py").unlink()
    keys.append(jit.cache_key())
    assert len(set(keys)) == 4


def test_the_key_does_not_change_with_anything_else(key_of_copy: Path) -> None:
    before = jit.cache_key()
    (key_of_copy / "cli.py").write_text("")
    (key_of_copy / "traffic.py").write_text("")
    assert jit.cache_key() == before
    assert jit.cache_key() == before


@pytest.mark.parametrize("library", ["numpy", "numba", "llvmlite"])
def test_the_key_changes_with_the_compiler(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jit.cache_key()
    monkeypatch.setattr(jit, "version", lambda name: "0.0" if name == library else version(name))
    assert jit.cache_key() != before


def test_whatever_is_compiled_is_in_the_key() -> None:
    keyed = set(jit.sources())
    for path in jit.PACKAGE.rglob("*.py"):
        if COMPILES.search(path.read_text()):
            assert path in keyed, path


def test_constants_of_compiled_code_are_in_the_key() -> None:
    """Numba freezes the globals that a function names, wherever they were imported from."""
    keyed = set(jit.sources())
    for path in keyed:
        if path.name == "jit.py" or not COMPILES.search(path.read_text()):
            continue
        for file in imports_of(path):
            assert file in keyed, f"{path.name} takes constants from {file.name}"


def imports_of(path: Path) -> list[Path]:
    """Files of this project that a file imports from."""
    files = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("openmrc"):
            module = jit.PACKAGE.parent / node.module.replace(".", "/")
            if module.is_dir():
                files += [module / f"{alias.name}.py" for alias in node.names]
            else:
                files.append(module.with_suffix(".py"))
    return files


def test_numba_writes_where_the_key_says() -> None:
    import numba

    assert Path(numba.config.CACHE_DIR) == jit.CACHE_DIR
    assert jit.CACHE_DIR.parent == jit.cache_root()


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"OPENMRC_CACHE": "/a/b"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/openmrc"),
        ({"HOME": "/home/somebody"}, "/home/somebody/.cache/openmrc"),
    ],
)
def test_where_the_cache_is(
    environment: dict[str, str], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENMRC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert jit.cache_root() == Path(root)


def test_the_oldest_caches_are_removed_and_strangers_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    monkeypatch.setattr(jit, "CACHE_DIR", tmp_path / "mine")
    monkeypatch.setattr(jit, "_READY_MARK", tmp_path / "mine" / "ready")
    monkeypatch.setattr(jit, "interpreted", lambda: False)
    (tmp_path / "a stranger").mkdir()
    for age in range(6):
        old = tmp_path / f"old{age}"
        old.mkdir()
        (old / "ready").touch()
        os.utime(old / "ready", (1_000_000 - age, 1_000_000 - age))
    assert not jit.is_cached()
    jit.mark_cached()
    assert jit.is_cached()
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"mine", "a stranger", "old0", "old1", "old2"}  # four caches in all


def test_one_compiles_and_the_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight hosts of a lab that start at once do not all compile the same."""
    monkeypatch.setattr(jit, "CACHE_DIR", tmp_path)
    monkeypatch.setattr(jit, "interpreted", lambda: False)
    compiled_by: list[int] = []

    def compile_all(report: Callable[[str, int, int], None]) -> None:
        compiled_by.append(threading.get_ident())
        both_are_there.wait()

    module = ModuleType("openmrc.live.warmup")
    module.compile_all = compile_all  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openmrc.live.warmup", module)
    both_are_there = threading.Event()
    threads = [
        threading.Thread(target=jit.warm_up, args=(lambda what, step, steps: None, "live"))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    both_are_there.set()
    for thread in threads:
        thread.join()
    assert len(compiled_by) == 1
    assert jit.is_cached("live")
    assert not jit.is_cached("other")


def test_plain_python_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_READY_MARK", tmp_path / "none")
    monkeypatch.setattr(jit, "CACHE_DIR", tmp_path / "none")
    for value, plain in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("NUMBA_DISABLE_JIT", value)
        assert jit.interpreted() == plain
        assert jit.is_cached() == plain
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    jit.mark_cached()
    assert not (tmp_path / "none").exists()


def test_records_are_zero_and_have_attributes() -> None:
    found = jit.records(3, np.dtype([("cwnd", "f8"), ("psn", "i4")]))
    assert found.psn.tolist() == [0, 0, 0]
    found[1].psn = 7
    assert found[1].psn == 7


@pytest.mark.parametrize("name", ["size", "flags", "item", "data"])
def test_a_field_that_plain_python_could_not_read_is_refused(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        jit.records(1, np.dtype([(name, "i8")]))


def test_what_is_compiled_is_registered_for_the_progress() -> None:
    import openmrc.sim.world  # noqa: F401

    assert len(jit.registered) > 100
    assert {"advance", "next_packet", "on_sack", "on_data"} <= set(jit.registered)
