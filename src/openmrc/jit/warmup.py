"""Compiles everything that a world needs before it is needed, once for all processes."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from openmrc.jit import cache
from openmrc.jit.decorators import interpreted
from openmrc.jit.progress import Report, reported

CACHES_KEPT = 4  # older ones are removed: a developer who edits all day fills no disk
READY = "ready"  # a file that says: this is a cache, and some world of it is complete
_compiled_here: set[Path] = set()  # marks of worlds that this process has compiled


class WarmUp(Protocol):
    """Compiles a world that is not on disk yet; returns how many seconds it took."""

    def __call__(self, report: Report | None = None) -> float:
        """Call `report(what, step, steps)` as it proceeds."""


def is_cached(world: str) -> bool:
    """True if the compiled code of a world, of exactly these sources, is on disk; without a cache,
    if it is in this process.
    """
    return interpreted() or _mark(world) in _compiled_here or os.path.exists(_mark(world))


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


def announcement(what: str, takes: str) -> str:
    """Return the message printed before `what` is compiled; `takes` says how long that takes."""
    trouble = cache.trouble()
    if not trouble:
        return f"Compiling {what}, once for this version: {takes}."
    return (
        f"Compiling {what}, for this run alone: {takes}. There is no cache: {trouble};"
        " OPENMRC_CACHE names another directory."
    )


def mark_cached(world: str) -> None:
    """Record that a world is compiled completely, and remove the oldest of the other caches."""
    if interpreted():
        return
    _compiled_here.add(_mark(world))
    if cache.unsaved:
        return  # a later process is not to take for complete what has gaps
    try:
        _mark_on_disk(world)
    except OSError:
        return


def _mark_on_disk(world: str) -> None:
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
    """One process compiles; others that need the same wait for it, then find it done.

    Without a cache each compiles for itself, and none waits.
    """
    with ExitStack() as held:
        with suppress(OSError):
            cache.DIRECTORY.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((cache.DIRECTORY / f"lock-{world}").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
