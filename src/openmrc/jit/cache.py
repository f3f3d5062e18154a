"""The on-disk cache of compiled code, and its keys: code is found by what it was made from.

Numba's own cache goes by the path of the file that defines a function, and does not look at the
files that it calls: a second copy would compile everything again, and after an edit of `nscc.py` a
cached `world.py` would silently run the old window. So the directory is named after the contents of
every compiled source, and the versions and settings of what compiles them: copies of one version
share it, wherever they are. Within it a function is known by its own code, and one of a user's file
by that file's path and content too. The processor is in Numba's index. The cache is set for each
function separately: the code of other packages is cached where Numba puts it by default. It may be
deleted at any time.

The cache is optional. If it cannot be written (no home, a read-only home, a full disk), compiled
code serves this process alone, and `trouble` says why; a complete cache may be read-only.

What is in the cache is run: `distrust` is the rule for whose cache is read.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import functools
import hashlib
import marshal
import os
import pickle
import platform
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from numba.core import caching, config

from openmrc.say import say

PACKAGE = Path(__file__).resolve().parents[1]
COMPILED_PARTS = (
    "errors.py",
    "units.py",
    "jit/*.py",
    "engine/*.py",
    "fabric/*.py",
    "traffic/*.py",
    "flow/*.py",
    "wire/**/*.py",
    "sim/**/*.py",
    "live/**/*.py",
    "bench/bare.py",
    "torch/kernels.py",
    "capi/hot.py",
    "capi/layouts.py",
    "capi/control/layouts.py",
    "capi/control/states.py",
    "ops/blame.py",
    "ops/diagnose/met.py",
    "ops/diagnose/runs.py",
    "ops/schedule.py",
    "ops/weigh.py",
    "ops/mapper/loop.py",
    "ops/mapper/probe.py",
    "ops/mapper/tally.py",
)
# Numba's, that change the code which it makes
SETTINGS = (
    "OPT",
    "LOOP_VECTORIZE",
    "SLP_VECTORIZE",
    "BOUNDSCHECK",
    "DEBUGINFO_DEFAULT",
    "USING_SVML",
)
READY = "ready"  # a file that marks a directory as a cache that holds a complete world
ROOM_BYTES = 8 << 20  # of all worlds of a version
FULL = (errno.ENOSPC, errno.EDQUOT)
DAMAGED = (EOFError, ValueError, pickle.UnpicklingError)  # cut short when the power failed
OVERFLOW_UID = 65534  # stands for all users whom a user namespace does not know

# For a user without a home: nothing can be read or written below a file.
NOWHERE = Path(os.devnull) / "openmrc"


def root() -> Path:
    """Directory that holds one cache per state of the sources (`OPENMRC_CACHE`, else the user's
    cache).
    """
    if chosen := os.environ.get("OPENMRC_CACHE"):
        return Path(chosen)
    if above := os.environ.get("XDG_CACHE_HOME"):
        return Path(above) / "openmrc"
    try:
        return Path.home() / ".cache/openmrc"
    except RuntimeError:
        return NOWHERE


def sources() -> list[Path]:
    """Every file that the compiled code depends on, in a fixed order."""
    return sorted(path for pattern in COMPILED_PARTS for path in PACKAGE.glob(pattern))


def key() -> str:
    """Hash of all compiled sources, and of the versions and settings of what compiles them."""
    digest = hashlib.sha256(f"{platform.python_version()} {platform.machine()}".encode())
    for library in ("numpy", "numba", "llvmlite"):
        digest.update(f" {library} {version(library)}".encode())
    digest.update(repr([getattr(config, name, None) for name in SETTINGS]).encode())
    for path in sources():
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(PACKAGE).as_posix()} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:20]


class _Sources:
    """The compiled sources as they were when `DIRECTORY` was named after them. Edits while a
    process runs, a notebook perhaps, do not change what it imported before, only what it imports
    later.
    """

    def __init__(self) -> None:
        self.paths = sources()
        self.changed_ns = self.now()
        self.vouched_for = 0  # modules of this package that were imported before an edit

    def now(self) -> list[int]:
        """When each was changed last; 0 if it is gone."""
        return [path.stat().st_ctime_ns if path.exists() else 0 for path in self.paths]

    def are_imported(self) -> bool:
        """Whether all that was imported of this package was imported before an edit."""
        imported = sum(name.startswith("openmrc.") for name in list(sys.modules))
        if imported > self.vouched_for and self.now() == self.changed_ns:
            self.vouched_for = imported
        return imported <= self.vouched_for


_keyed = _Sources()
DIRECTORY = root() / key()
unsaved: list[str] = []  # functions that were compiled but could not be saved
loud = True  # whether it is still to be said that the cache is full


def distrust(place: Path | None = None) -> str:
    """Return why nothing is read from a directory, by default the cache's, that exists; "" if it
    is.

    Its code is run, so it must belong to this user or to root, and nobody else may write there.
    """
    place = place or DIRECTORY
    try:
        found = os.lstat(place)
    except OSError:
        return ""
    if found.st_uid not in (0, os.geteuid()) and not _is_unknown(found.st_uid, place):
        return f"{place} belongs to another user, number {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {place}: chmod go-w takes it back"
    return ""


def _is_unknown(owner: int, place: Path) -> bool:
    """Whether the owner is one whom a user namespace does not know, such as the real root."""
    return owner == OVERFLOW_UID and not os.access(place, os.W_OK)


def make(place: Path) -> None:
    """Create a directory for this user alone, and those above it."""
    if not place.exists():
        make(place.parent)
        place.mkdir(mode=0o700, exist_ok=True)


def folder(*names: str) -> Path:
    """Return the cache directory, creating it if needed; without a cache, one for this process."""
    place = DIRECTORY.joinpath(*names)
    with suppress(OSError):
        make(place)
    if distrust() or distrust(place) or not os.access(place, os.W_OK):
        place = _own_folder().joinpath(*names)
        place.mkdir(parents=True, exist_ok=True)
    return place


def kept(content: bytes, *names: str) -> Path:
    """Return a file of this content, by this name in a folder; where the disk is full, one of this
    process.
    """
    place = folder(*names[:-1]) / names[-1]
    if not place.exists():
        try:
            _write(place, content)
        except OSError:
            place = _own_folder() / Path(*names)
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(place, content)
    return place


def _write(place: Path, content: bytes) -> None:
    """Write a file that others see only when it is whole."""
    new = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        new.write_bytes(content)
        new.replace(place)
    finally:
        new.unlink(missing_ok=True)


@functools.cache
def _own_folder() -> Path:
    directory = tempfile.mkdtemp(prefix="openmrc-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def trouble() -> str:
    """Return why the cache cannot be written; "" if it can."""
    place = root()
    if doubt := distrust():
        return doubt
    if not _keyed.are_imported():
        return f"{PACKAGE} was edited since this process started"
    try:
        make(DIRECTORY)
        with tempfile.TemporaryFile(dir=DIRECTORY) as room:
            room.write(bytes(ROOM_BYTES))
    except OSError as error:
        if place == NOWHERE:
            return "this user has no home directory"
        if error.errno in FULL:
            return f"{place} has no room for {ROOM_BYTES >> 20} MB ({error.strerror})"
        return f"{place} cannot be written ({error.strerror})"
    return f"{place} had no room" if unsaved else ""


def hold() -> None:
    """Mark a complete cache as used now, and by this process until it ends: `prune` spares it."""
    with suppress(OSError):
        if DIRECTORY not in _held:
            ready = (DIRECTORY / READY).open("rb")
            _held[DIRECTORY] = ready
            atexit.register(ready.close)
            fcntl.flock(ready, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.utime(DIRECTORY / READY)


_held: dict[Path, BinaryIO] = {}


def prune(kept: int) -> None:
    """Mark the cache as complete, and remove all but the `kept` used last of the complete ones; one
    that a process uses stays.
    """
    (DIRECTORY / READY).touch()
    hold()
    others = [d for d in root().iterdir() if d != DIRECTORY and (d / READY).exists()]
    others.sort(key=lambda d: (d / READY).stat().st_mtime, reverse=True)
    for stale in others[kept - 1 :]:
        with suppress(OSError), (stale / READY).open("rb") as ready:
            fcntl.flock(ready, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(stale, ignore_errors=True)


class _Place(caching._CacheLocator):  # type: ignore[misc]  # no types
    """The files of one function: below `DIRECTORY`, and stale when its code is another."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename
        self._lineno = function.__code__.co_firstlineno
        # marshal's version 2: later ones depend on who else refers to a constant
        self._code = marshal.dumps(function.__code__.replace(co_filename=""), 2)
        self._place = _place_of(Path(self._py_file).resolve())

    def get_cache_path(self) -> str:
        return str(DIRECTORY / self._place)

    def ensure_cache_path(self) -> None:
        make(DIRECTORY / self._place)

    def get_source_stamp(self) -> str:
        return hashlib.sha256(self._code).hexdigest()

    def get_disambiguator(self) -> str:
        return str(self._lineno)


def _place_of(file: Path) -> Path:
    """Where below `DIRECTORY` the code of a file is: for a file of this package, or a policy that
    was copied there, independent of where they are. Another file may import others beside it, so
    its path distinguishes it too.
    """
    if file.is_relative_to(PACKAGE):
        return file.relative_to(PACKAGE).parent
    if file.is_relative_to(DIRECTORY):
        return file.relative_to(DIRECTORY).parent
    digest = hashlib.sha256(f"{file}\0".encode() + file.read_bytes()).hexdigest()
    return Path(f"{file.stem}_{digest[:20]}")


class _Entry(caching.CompileResultCacheImpl):  # type: ignore[misc]  # no types
    """As Numba's own, but without consulting the process-wide settings for a directory."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._locator = _Place(function)
        self._lineno = function.__code__.co_firstlineno
        name = f"{Path(self._locator._py_file).stem}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, sys.abiflags)


class Cache(caching.FunctionCache):  # type: ignore[misc]  # no types
    """Cache of one function, as a dispatcher of Numba holds it."""

    _impl_class = _Entry

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        """As Numba's, of a cache that can be trusted; what is damaged is compiled again."""
        if distrust() or distrust(Path(self._cache_path)) or not _keyed.are_imported():
            return None
        try:
            return super()._load_overload(sig, target_context)
        except DAMAGED:
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        """As Numba's, one process at a time: two that save one function for different types at once
        would give both results the same name.
        """
        make(DIRECTORY)
        if distrust() or distrust(Path(self._cache_path)) or not _keyed.are_imported():
            raise PermissionError
        with (DIRECTORY / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                super()._save_overload(sig, data)
            except DAMAGED:
                self.flush()
                super()._save_overload(sig, data)

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        """Numba's hook for I/O errors: a cache that fails is ignored, a full disk is said once."""
        try:
            yield
        except OSError as error:
            if error.errno in FULL and not unsaved and loud:
                say(
                    f"The cache {root()} is full ({error.strerror}): what it lacks is compiled"
                    " again in each run; make room, or OPENMRC_CACHE names another directory."
                )
            unsaved.append(self._name)
