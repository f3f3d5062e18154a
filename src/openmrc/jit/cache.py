"""The on-disk cache of compiled code, and its keys.

Numba's on-disk cache checks the file that defines a function, not the files that it calls: after an
edit of `nscc.py` a cached `world.py` would silently run the old window. So the directory is named
after a hash of every compiled source and of the versions of Python, NumPy and Numba. It is set for
each function separately: the code of other packages is cached where Numba puts it by default. The
cache may be deleted at any time.

The cache is optional. If it cannot be written (no home, a read-only home, a full disk), compiled
code serves this process alone, and `trouble` says why; a complete cache may be read-only.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numba.core import caching

PACKAGE = Path(__file__).resolve().parents[1]
COMPILED_PARTS = (
    "errors.py",
    "units.py",
    "jit/*.py",
    "engine/*.py",
    "fabric/*.py",
    "traffic/*.py",
    "wire/**/*.py",
    "sim/**/*.py",
    "live/**/*.py",
    "bench/bare.py",
    "torch/kernels.py",
    "capi/hot.py",
    "capi/layouts.py",
    "ops/blame.py",
    "ops/schedule.py",
    "ops/weigh.py",
    "ops/mapper/loop.py",
    "ops/mapper/probe.py",
    "ops/mapper/tally.py",
)


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
    """Hash of all compiled sources, their path, and the versions of what compiles them."""
    digest = hashlib.sha256()
    digest.update(f"{PACKAGE} {platform.python_version()} {platform.machine()}".encode())
    for library in ("numpy", "numba", "llvmlite"):
        digest.update(f" {library} {version(library)}".encode())
    for path in sources():
        digest.update(f"{path.name} {path.stat().st_mtime_ns}".encode())  # Numba compares times too
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


DIRECTORY = root() / key()
unsaved: list[str] = []  # functions that were compiled but could not be saved


def folder(*names: str) -> Path:
    """Return the cache directory, creating it if needed; without a cache, one for this process."""
    place = DIRECTORY.joinpath(*names)
    with suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    if not os.access(place, os.W_OK):
        place = _own_folder().joinpath(*names)
        place.mkdir(parents=True, exist_ok=True)
    return place


@functools.cache
def _own_folder() -> Path:
    directory = tempfile.mkdtemp(prefix="openmrc-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def trouble() -> str:
    """Return why the cache cannot be written; "" if it can."""
    place = root()
    try:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=DIRECTORY).close()
    except OSError as error:
        if place == NOWHERE:
            return "this user has no home directory"
        return f"{place} cannot be written ({error.strerror})"
    return f"{place} has no room" if unsaved else ""


class _Place(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]  # no types
    """The files of one function: below `DIRECTORY`, and stale when its own source changes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename
        self._lineno = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(DIRECTORY / self.get_suitable_cache_subpath(self._py_file))


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

    def _save_overload(self, sig: Any, data: Any) -> None:
        """As Numba's, one process at a time: two that save one function for different types at once
        would give both results the same name.
        """
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        with (DIRECTORY / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            super()._save_overload(sig, data)

    @contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:
        """Numba's hook for I/O errors: a cache that fails is ignored."""
        try:
            yield
        except OSError:
            unsaved.append(self._name)
