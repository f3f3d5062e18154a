"""How compiled code is compiled, and where its cache lives.

Numba's on-disk cache looks at the file a function stands in, not at the files it calls: after an
edit in `nscc.py` a cached `world.py` would silently run the old window. So the cache directory is
named after a hash of every compiled source and of the versions of Python, NumPy and Numba; it is
set before Numba is imported. The cache may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent
COMPILED_PARTS = (
    "jit.py",
    "byref.py",
    "callref.py",
    "prefetch.py",
    "errors.py",
    "units.py",
    "engine/*.py",
    "fabric/*.py",
    "wire/*.py",
    "sim/*.py",
    "sim/roce/*.py",
    "live/*.py",
)
CACHE_LINE = 64
CACHES_KEPT = 4  # older ones are removed: a developer who edits all day fills no disk


def cache_root() -> Path:
    """Directory that holds one cache per state of the sources (`OPENMRC_CACHE`, else the user's
    cache).
    """
    if chosen := os.environ.get("OPENMRC_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openmrc"


def sources() -> list[Path]:
    """Every file whose text decides what the compiled code does, in a fixed order."""
    return sorted(path for pattern in COMPILED_PARTS for path in PACKAGE.glob(pattern))


def cache_key() -> str:
    """Hash of all compiled sources, their place, and the versions that compile them."""
    digest = hashlib.sha256()
    digest.update(f"{PACKAGE} {platform.python_version()} {platform.machine()}".encode())
    for library in ("numpy", "numba", "llvmlite"):
        digest.update(f" {library} {version(library)}".encode())
    for path in sources():
        digest.update(f"{path.name} {path.stat().st_mtime_ns}".encode())  # Numba compares times too
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


CACHE_DIR = cache_root() / cache_key()
_READY_MARK = CACHE_DIR / "ready"


def is_cached(world: str = "sim") -> bool:
    """True when the compiled code of exactly these sources is on disk; worlds as in `warm_up`."""
    return interpreted() or _mark(world).exists()


def _mark(world: str) -> Path:
    return _READY_MARK if world == "sim" else CACHE_DIR / f"ready-{world}"


def interpreted() -> bool:
    """True when NUMBA_DISABLE_JIT asks for plain Python (debugger, coverage, comparison with
    compiled code).
    """
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def mark_cached(world: str = "sim") -> None:
    """Note that everything of a world is compiled, and remove the oldest of the other caches."""
    if interpreted():
        return
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    _mark(world).touch()
    others = [
        d
        for d in cache_root().iterdir()
        if d.is_dir() and d != CACHE_DIR and (d / "ready").exists()
    ]
    others.sort(key=lambda d: (d / "ready").stat().st_mtime, reverse=True)
    for stale in others[CACHES_KEPT - 1 :]:
        shutil.rmtree(stale, ignore_errors=True)


os.environ["NUMBA_CACHE_DIR"] = str(CACHE_DIR)

import numba  # noqa: E402  (the cache directory must be known first)
import numpy as np  # noqa: E402

if "numba" in sys.modules and not interpreted():
    numba.config.CACHE_DIR = str(
        CACHE_DIR
    )  # numba may have been imported by somebody else before us

# error_model "numpy": no division by zero is ever raised, so LLVM sees straight code without
# cleanup paths around every call; measured ten times cheaper calls where a state of a dozen arrays
# is passed. _nrt off: nothing is allocated, and no reference of an array is counted at every call.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}
_NO_ENTRY = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}  # half of the time a small function takes to compile


registered: list[str] = []  # every function that is compiled, for progress


def compiled(function: Callable[..., Any]) -> Any:
    """Compile for calls from Python, and keep the result on disk."""
    registered.append(function.__qualname__)
    return numba.njit(cache=True, **_OPTIONS)(function)


def inner(function: Callable[..., Any]) -> Any:
    """Compile for calls from other compiled code only (plain Python may call it when nothing is
    compiled).
    """
    registered.append(function.__qualname__)
    return numba.njit(**_OPTIONS, **_NO_ENTRY)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """As `inner`, and copy the body into each caller: for the functions on the path of every
    packet.
    """
    registered.append(function.__qualname__)
    return numba.njit(forceinline=True, **_OPTIONS, **_NO_ENTRY)(function)


def records(n: int, dtype: np.dtype[Any]) -> Any:
    """`n` zeroed records with attribute access, the same in compiled and in plain Python."""
    clash = set(dtype.names or ()) & set(dir(np.recarray)) | set(dtype.names or ()) & set(
        dir(np.record)
    )
    assert not clash, f"plain Python would read NumPy's own attribute: {clash}"
    room = np.zeros(n * dtype.itemsize + CACHE_LINE, np.uint8)
    skip = -room.__array_interface__["data"][0] % CACHE_LINE
    return room[skip : skip + n * dtype.itemsize].view(dtype).view(np.recarray)


def warm_up(report: Callable[[str, int, int], None], world: str = "sim") -> float:
    """Compile everything of a world ("sim", "sim.roce" or "live") that is not on disk yet;
    `report(what, step, steps)` before each step. Seconds taken.
    """
    from importlib import import_module

    started = time.perf_counter()
    with _alone(world):
        if not is_cached(world):
            import_module(f"openmrc.{world}.warmup").compile_all(report)
            mark_cached(world)
    return time.perf_counter() - started


@contextmanager
def _alone(world: str) -> Iterator[None]:
    """One process compiles; others that want the same wait for it, and find it done."""
    CACHE_DIR.mkdir(parents=True, exist_ok=True)
    with (CACHE_DIR / f"lock-{world}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
