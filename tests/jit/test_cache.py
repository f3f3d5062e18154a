"""The cache of compiled code must never lie: an edit anywhere is an edit everywhere."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba import config

from openmrc.jit import cache, interpreted

ROOT = Path(__file__).resolve().parents[2]
COMPILES = re.compile(r"@(compiled|inner|inlined)\b|\bnjit\b")

# `open_qp` stands in setup.py; what it does to the window is written in nscc.py.
CALL_ACROSS_FILES = """
import json
import sys
from pathlib import Path
from numba.core import event
from openmrc.jit import cache

if len(sys.argv) > 1:  # an edit between two imports
    nscc = cache.PACKAGE / "engine/nscc.py"
    nscc.write_text(nscc.read_text().replace("0.75 * t if", "0.5 * t if"))

from openmrc.engine import setup
from openmrc.engine.parameters import Parameters

rooms = setup.Rooms(1, 1, 1, 1, 1, 1, 1)
st = setup.new_state(Parameters(), rooms, nics=1, peers=1, regions=1)
config = st.config[0]
config.pmtu = 4096
config.port_rate_bps = 100_000_000_000
config.base_rtt_ps = 10_000_000
config.trimming = 1
st.qp[0].n_planes = 1
st.nic[0].up_mask = st.peer[0].remote_mask = 1
with event.install_recorder("numba:run_pass") as passes:
    setup.open_qp(st, 0)
print(json.dumps({
    "passes": len(passes.buffer),
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


def copied(to: Path) -> Path:
    """The package, free to be edited."""
    shutil.copytree(cache.PACKAGE, to, ignore=shutil.ignore_patterns("__pycache__"))
    return to


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copied(tmp_path / "src" / "openmrc")


@pytest.fixture
def key_of_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`cache.key` looks at the copy."""
    monkeypatch.setattr(cache, "PACKAGE", copy)
    return copy


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def used(copy: Path, kept_in: Path, *edited: str) -> dict[str, Any]:
    """What a process finds that imports a copy of the package."""
    done = subprocess.run(
        [sys.executable, "-c", CALL_ACROSS_FILES, *edited],
        env=os.environ
        | {
            "PYTHONPATH": str(copy.parent),
            "OPENMRC_CACHE": str(kept_in),
            "NUMBA_DISABLE_JIT": "0",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_an_edit_in_a_called_file_is_seen(copy: Path, tmp_path: Path) -> None:
    """Numba alone would take `open_qp` from the disk and run the old window: its own file is as it
    was. A second copy elsewhere compiles nothing, whatever the time of its files; an edit in it is
    seen too, and the first copy is still as it was.
    """
    second, kept_in = copied(tmp_path / "elsewhere" / "openmrc"), tmp_path / "cache"
    for path in second.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    first = used(copy, kept_in)
    assert (first["target"], first["from_disk"]) == (7_500_000, 0)
    assert first["passes"] > 100
    assert used(copy, kept_in) == used(second, kept_in) == first | {"from_disk": 1, "passes": 0}
    edit(second / "engine" / "nscc.py", "0.75 * t if", "0.5 * t if")
    edited = used(second, kept_in)
    assert (edited["target"], edited["from_disk"]) == (5_000_000, 0)
    assert first["key"] != edited["key"]
    assert used(copy, kept_in) == first | {"from_disk": 1, "passes": 0}


def test_an_edit_between_two_imports_is_seen_and_not_kept(copy: Path, tmp_path: Path) -> None:
    """The process named the cache after the old sources, then imported the new ones."""
    kept_in = tmp_path / "cache"
    first = used(copy, kept_in)
    assert (first["target"], first["from_disk"]) == (7_500_000, 0)
    torn = used(copy, kept_in, "edited")
    assert (torn["target"], torn["from_disk"]) == (5_000_000, 0)
    assert torn["key"] == first["key"]
    edit(copy / "engine" / "nscc.py", "0.5 * t if", "0.75 * t if")
    assert used(copy, kept_in) == first | {"from_disk": 1, "passes": 0}


def test_names_of_the_cache_tell_nothing_of_places(tmp_path: Path) -> None:
    """Of this package, and of policies, which are copied into the cache."""
    policy = cache.DIRECTORY / "policies" / "0123" / "mine.py"
    assert cache._place_of(cache.PACKAGE / "engine" / "nscc.py") == Path("engine")
    assert cache._place_of(policy) == Path("policies/0123")
    places = set()
    for name in ("a", "b"):
        for content in ("X = 1", "X = 2"):  # of one name, elsewhere or edited
            path = tmp_path / name / "mine.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
            places.add(cache._place_of(path))
    assert len(places) == 4


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


def test_the_key_changes_with_the_compiler_s_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are checked, or not; code that needs a library that another Python lacks."""
    seen = {cache.key()}
    for name in cache.SETTINGS:
        monkeypatch.setattr(config, name, "another")
        seen.add(cache.key())
    assert len(seen) == len(cache.SETTINGS) + 1


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
    kept = {path.parents[2]: path.name for path in tmp_path.rglob("ours.*.nbc")}
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


READ = """
from ours import ours

print(ours(1), sum(ours.stats.cache_hits.values()))
"""


def read(folder: Path, value: int = 1) -> str:
    """What a process finds that uses `ours.py` in this folder: a result, and hits of the cache."""
    (folder / "ours.py").write_text(OURS.replace("+ 1", f"+ {value}"))
    environment = {"OPENMRC_CACHE": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0"}
    python = [sys.executable, "-c", READ]
    done = subprocess.run(
        python, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_file_of_the_user_is_known_by_its_content(tmp_path: Path) -> None:
    assert [read(tmp_path, value) for value in (1, 1, 2, 2, 1)] == [
        "2 0",
        "2 1",
        "3 0",
        "3 1",
        "2 1",
    ]


def test_what_is_damaged_is_compiled_again(tmp_path: Path) -> None:
    """The power failed before all of a file was on the disk."""
    read(tmp_path)
    for kind, left in (("nbi", 0), ("nbc", 100)):
        (file,) = tmp_path.rglob(f"ours.*.{kind}")
        file.write_bytes(file.read_bytes()[:left])
        assert read(tmp_path) == "2 0"
    assert read(tmp_path) == "2 1"


# --- whose cache is read


def test_what_others_may_write_to_is_not_run(tmp_path: Path) -> None:
    """Their code would run as this user's; its folders are created for this user alone."""
    before = os.umask(0)
    try:
        read(tmp_path)
    finally:
        os.umask(before)
    (directory,) = (tmp_path / "cache").iterdir()
    folders = [path for path in (tmp_path / "cache").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "cache", *folders)} == {0o700}
    (inside,) = (path for path in directory.iterdir() if path.is_dir())
    for folder, mode in ((directory, 0o702), (inside, 0o720)):
        folder.chmod(mode)
        assert read(tmp_path) == "2 0"
        folder.chmod(0o755)  # an administrator's
    assert read(tmp_path) == "2 1"


@pytest.mark.parametrize(
    ("owner", "mode", "words"),
    [
        (1000, 0o40700, ""),
        (0, 0o40755, ""),  # of an image, or an administrator's
        (1001, 0o40755, "belongs to another user, number 1001"),
        (1000, 0o40775, "others may write to"),
        (1000, 0o41777, "others may write to"),
        (1001, 0o120777, "belongs to another user, number 1001"),  # a link
        (cache.OVERFLOW_UID, 0o40755, ""),  # the real root, seen from a namespace
    ],
)
def test_whose_cache_is_read(
    owner: int, mode: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda place, way: False)
    assert cache.distrust(tmp_path / "none") == ""
    found = SimpleNamespace(st_uid=owner, st_mode=mode)
    monkeypatch.setattr(os, "lstat", lambda place: found)
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path)
    assert words in cache.distrust()
    assert bool(words) == bool(cache.distrust())
    assert cache.trouble() == cache.distrust()


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
    assert cache.trouble() == f"{tmp_path} had no room"


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


FULL = """
import sys
from openmrc.jit.warmup import announcement
from ours import ours

if len(sys.argv) > 1:
    print(announcement("ours", "a second"), file=sys.stderr)
print(ours(1), ours(1.5))
"""


@pytest.mark.parametrize("announced", [True, False])
def test_a_full_disk_is_said_once(announced: bool, tmp_path: Path) -> None:
    """A file system of 300 kB of which all is taken: with the remedy, in one line."""
    (tmp_path / "ours.py").write_text(OURS)
    small, python = tmp_path / "small", shlex.join([sys.executable, "-c", FULL])
    small.mkdir()
    mount = f"mount -t tmpfs -o size=300k,mode=700 none {small}"
    fill = f"cat /dev/zero > {small}/zeros 2> /dev/null"
    argument = "announced" if announced else ""
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount} && echo mounted && {fill}; {python} {argument}"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OPENMRC_CACHE": str(small), "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
    )
    if not done.stdout.startswith("mounted"):
        pytest.skip("a file system cannot be mounted here")
    assert done.stdout.split("\n", 1)[1] == "2 2.5\n"
    (line,) = done.stderr.splitlines()
    assert "No space left on device" in line
    assert str(small) in line
    assert "OPENMRC_CACHE names another directory" in line
    assert line.startswith("Compiling ours, for this run alone" if announced else "The cache")


def test_what_the_disk_has_no_room_for_is_kept_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy; beside it nothing is left behind."""
    monkeypatch.setattr(cache, "DIRECTORY", tmp_path / "key")
    kept = cache.kept(b"X = 1", "policies", "a", "mine.py")
    assert (kept, kept.read_bytes()) == (tmp_path / "key/policies/a/mine.py", b"X = 1")
    assert cache.kept(b"X = 1", "policies", "a", "mine.py") == kept
    replace = Path.replace

    def full(path: Path, to: Path) -> Path:
        if to.is_relative_to(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, to)

    monkeypatch.setattr(Path, "replace", full)
    kept = cache.kept(b"X = 2", "policies", "b", "mine.py")
    assert kept.parts[-3:] == ("policies", "b", "mine.py")
    assert kept.read_bytes() == b"X = 2"
    assert not kept.is_relative_to(tmp_path)
    assert list((tmp_path / "key/policies/b").iterdir()) == []


def test_the_mark_of_a_used_cache_is_closed_at_the_end(tmp_path: Path) -> None:
    use = (
        "from openmrc.jit import cache; cache.make(cache.DIRECTORY);"
        " (cache.DIRECTORY / cache.READY).touch(); cache.hold(); assert cache._held"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", use],
        env=os.environ | {"OPENMRC_CACHE": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stderr == ""
