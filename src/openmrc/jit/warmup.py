"""Compiling all that a world needs before it is needed, once for all processes."""

from __future__ import annotations

import fcntl
import functools
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from openmrc.jit import cache
from openmrc.jit.decorators import interpreted
from openmrc.jit.progress import Report, reported

CACHES_KEPT = 4  # older ones are removed: a developer who edits all day fills no disk
READY = "ready"  # a file that says: this is a cache, and some world of it is complete


class WarmUp(Protocol):
    """Compiles a world that is not on disk yet; returns how many seconds it took."""

    def __call__(self, report: Report | None = None) -> float:
        """Tell `report(what, step, steps)` how far it is."""


def is_cached(world: str) -> bool:
    """True when the compiled code of a world, of exactly these sources, is on disk."""
    return interpreted() or _mark(world).exists()


def once(world: str) -> Callable[[Callable[[], None]], WarmUp]:
    """Decorate a function that compiles a world by using it."""

    def decorate(use: Callable[[], None]) -> WarmUp:
        @functools.wraps(use)
        def warm_up(report: Report | None = None) -> float:
            started = time.perf_counter()
            if not is_cached(world):
                with _alone(world), reported(report):
                    if not is_cached(world):  # nobody else did it meanwhile
                        use()
                        mark_cached(world)
            return time.perf_counter() - started

        return warm_up

    return decorate


def mark_cached(world: str) -> None:
    """Note that everything of a world is compiled, and remove the oldest of the other caches."""
    if interpreted():
        return
    cache.DIRECTORY.mkdir(parents=True, exist_ok=True)
    _mark(world).touch()
    (cache.DIRECTORY / READY).touch()
    others = [d for d in cache.root().iterdir() if d != cache.DIRECTORY and (d / READY).exists()]
    others.sort(key=lambda d: (d / READY).stat().st_mtime, reverse=True)
    for stale in others[CACHES_KEPT - 1 :]:
        shutil.rmtree(stale, ignore_errors=True)


def _mark(world: str) -> Path:
    return cache.DIRECTORY / f"{READY}-{world}"


@contextmanager
def _alone(world: str) -> Iterator[None]:
    """One process compiles; others that want the same wait for it, and find it done."""
    cache.DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (cache.DIRECTORY / f"lock-{world}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
