"""The cache of compiled code must never lie: an edit anywhere is an edit everywhere."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from openmrc.jit import cache, interpreted

ROOT = Path(__file__).resolve().parents[2]
COMPILES = re.compile(r"@(compiled|inner|inlined)\b|\bnjit\b")

# `open_qp` stands in setup.py; what it does to the window is written in nscc.py.
CALL_ACROSS_FILES = """
import json
from openmrc.engine import setup
from openmrc.engine.parameters import Parameters
from openmrc.jit import cache

rooms = setup.Rooms(1, 1, 1, 1, 1, 1, 1)
st = setup.new_state(Parameters(), rooms, nics=1, peers=1, regions=1)
config = st.config[0]
config.pmtu = 4096
config.port_rate_bps = 100_000_000_000
config.base_rtt_ps = 10_000_000
config.trimming = 1
st.qp[0].n_planes = 1
st.nic[0].up_mask = st.peer[0].remote_mask = 1
setup.open_qp(st, 0)
print(json.dumps({
    "key": cache.DIRECTORY.name,
    "target": int(st.qp[0].target),
    "from_disk": sum(setup.open_qp.stats.cache_hits.values()),
}))
"""

OURS = """
from openmrc.jit import compiled

@compiled
def ours(n):
    return n + 1
"""

THEIRS = """
from numba import njit

@njit(cache=True)
def theirs(n):
    return n + 2
"""

BESIDE_OTHERS = """
import json
import os
from numba import config

before = dict(os.environ)
from ours import ours
from theirs import theirs

ours(1), theirs(1)
print(json.dumps([dict(os.environ) == before, config.CACHE_DIR == "", ours(1), theirs(1)]))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package, free to be edited."""
    to = tmp_path / "src" / "openmrc"
    shutil.copytree(cache.PACKAGE, to, ignore=shutil.ignore_patterns("__pycache__"))
    return to


@pytest.fixture
def key_of_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`cache.key` looks at the copy."""
    monkeypatch.setattr(cache, "PACKAGE", copy)
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
    seen = {cache.key()}
    files = cache.sources()
    assert len(files) > 20
    for path in files:
        path.write_text(path.read_text() + "\n")
        seen.add(cache.key())
    assert len(seen) == len(files) + 1


def test_the_key_changes_with_a_file_that_comes_or_goes_or_moves(key_of_copy: Path) -> None:
    keys = [cache.key()]
    extra = key_of_copy / "engine" / "another.py"
    extra.write_text("X = 1\n")
    keys.append(cache.key())
    extra.rename(key_of_copy / "engine" / "yet_another.py")
    keys.append(cache.key())
    (key_of_copy / "sim" / "net" / "switch.py").unlink()
    keys.append(cache.key())
    assert len(set(keys)) == 4


def test_the_key_does_not_change_with_anything_else(key_of_copy: Path) -> None:
    before = cache.key()
    (key_of_copy / "cli" / "command.py").write_text("")
    (key_of_copy / "run" / "simulation.py").write_text("")
    assert cache.key() == before
    assert cache.key() == before


@pytest.mark.parametrize("library", ["numpy", "numba", "llvmlite"])
def test_the_key_changes_with_the_compiler(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.key()
    monkeypatch.setattr(cache, "version", lambda name: "0.0" if name == library else version(name))
    assert cache.key() != before


def test_whatever_is_compiled_is_in_the_key() -> None:
    keyed = set(cache.sources())
    for path in cache.PACKAGE.rglob("*.py"):
        if COMPILES.search(path.read_text()):
            assert path in keyed, path


def test_constants_of_compiled_code_are_in_the_key() -> None:
    """Numba freezes the globals that a function names, wherever they were imported from."""
    keyed = set(cache.sources())
    for path in keyed:
        if path.parent.name == "jit" or not COMPILES.search(path.read_text()):
            continue
        for file in imports_of(path):
            assert file in keyed, f"{path.name} takes constants from {file.name}"


def imports_of(path: Path) -> list[Path]:
    """Files of this project that a file imports from."""
    files = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("openmrc"):
            place = cache.PACKAGE.parent / node.module.replace(".", "/")
            files += [file_of(place, alias.name) for alias in node.names]
    return files


def file_of(place: Path, name: str) -> Path:
    """Where `from place import name` finds the name: in a module, in a package as a module of its
    own, or in what the package itself says.
    """
    if not place.is_dir():
        return place.with_suffix(".py")
    inside = place / name
    if inside.is_dir():
        return inside / "__init__.py"
    module = inside.with_suffix(".py")
    return module if module.exists() else place / "__init__.py"


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("from openmrc.units import US", "units.py"),
        ("from openmrc.engine import nscc", "engine/nscc.py"),
        ("from openmrc.engine.nscc import pace", "engine/nscc.py"),
        ("from openmrc.jit import compiled", "jit/__init__.py"),
        ("from openmrc.sim import net", "sim/net/__init__.py"),
    ],
)
def test_where_an_imported_name_stands(line: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(line)
    assert imports_of(tmp_path / "one.py") == [cache.PACKAGE / file]


@pytest.mark.skipif(interpreted(), reason="nothing is compiled, nothing is kept")
def test_only_what_is_ours_is_kept_in_our_cache(tmp_path: Path) -> None:
    """Whoever uses Numba beside this package finds it as it was."""
    (tmp_path / "ours.py").write_text(OURS)
    (tmp_path / "theirs.py").write_text(THEIRS)
    environment = os.environ | {
        "PYTHONPATH": str(cache.PACKAGE.parent),
        "OPENMRC_CACHE": str(tmp_path / "cache"),
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_OTHERS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [True, True, 2, 3]
    kept = {path.parent.parent.parent: path.name for path in tmp_path.rglob("ours.*.nbc")}
    assert list(kept) == [tmp_path / "cache"]
    (theirs,) = tmp_path.rglob("theirs.*.nbc")
    assert theirs.parent == tmp_path / "__pycache__"


ON_A_PROCESSOR = """
import sys
from llvmlite import binding

# what Numba asks of the machine that it stands on
binding.get_host_cpu_name = lambda: sys.argv[1]
binding.get_host_cpu_features = lambda: binding.FeatureMap()
from ours import ours

ours(1)
print(sum(ours.stats.cache_hits.values()))
"""


def test_the_container_reads_its_code_on_another_processor(tmp_path: Path) -> None:
    """Code that one processor compiled under the container's settings is read on another one, and
    without them it is not.
    """
    (tmp_path / "ours.py").write_text(OURS)
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("ENV NUMBA_CPU_NAME"))
    given = dict(word.split("=", 1) for word in line.split()[1:])
    assert (given.pop("NUMBA_CPU_NAME"), given["NUMBA_CPU_FEATURES"]) == ("x86-64-v3", "")
    assert given.pop("OPENMRC_CACHE")
    baseline = {"NUMBA_CPU_NAME": "x86-64-v3", **given}

    def hits(processor: str, settings: dict[str, str]) -> int:
        done = subprocess.run(
            [sys.executable, "-c", ON_A_PROCESSOR, processor],
            env=os.environ
            | {"OPENMRC_CACHE": str(tmp_path / "cache"), "NUMBA_DISABLE_JIT": "0"}
            | settings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    assert hits("sapphirerapids", baseline) == 0
    assert hits("znver2", baseline) == 1
    assert hits("znver2", {}) == 0


def test_what_stands_in_no_file_is_compiled_all_the_same() -> None:
    """Typed into a prompt, or into a notebook."""
    found: dict[str, Any] = {}
    exec(OURS, found)
    assert found["ours"](1) == 2


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
    assert cache.root() == Path(root)


# --- no cache


def test_a_user_without_a_home_has_no_cache_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("OPENMRC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache.root() == cache.NOWHERE
    monkeypatch.setattr(cache, "DIRECTORY", cache.root() / "key")
    assert cache.trouble() == "this user has no home directory"


def test_what_cannot_be_kept_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "unsaved", [])
    for place, words in (
        (tmp_path / "new", ""),
        (tmp_path / "file", f"{tmp_path / 'file'} cannot be written (Not a directory)"),
        (Path("/proc/none"), "/proc/none cannot be written (No such file or directory)"),
    ):
        monkeypatch.setenv("OPENMRC_CACHE", str(place))
        monkeypatch.setattr(cache, "DIRECTORY", place / "key")
        assert cache.trouble() == words
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "new")
    monkeypatch.setenv("OPENMRC_CACHE", str(tmp_path))
    cache.unsaved.append("advance")
    assert cache.trouble() == f"{tmp_path} has no room"


def test_a_function_is_compiled_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a file nothing is read and nothing is written."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "file" / "key")
    monkeypatch.setattr(cache, "unsaved", [])
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    source = tmp_path / "kept.py"
    source.write_text(
        "from openmrc.jit import compiled\n\n\n@compiled\ndef one(n):\n    return n + 1\n"
    )
    found = runpy.run_path(str(source))
    assert found["one"](1) == 2
    # reading it and keeping it have both failed
    assert len(cache.unsaved) == 2


def test_without_a_cache_a_folder_is_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "key")
    assert cache.folder("policies", "a") == tmp_path / "key/policies/a"
    monkeypatch.setattr(cache, "DIRECTORY", cache.NOWHERE)
    folder = cache.folder("policies", "a")
    assert folder.is_dir()
    assert folder.parts[-2:] == ("policies", "a")
    assert folder == cache.folder("policies", "a")
