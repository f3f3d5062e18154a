"""Compiles everything that a world needs ahead of time, once for all processes."""

from __future__ import annotations

import fcntl
import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from openmrc.jit import cache
from openmrc.jit.beside import Piece, cores, side_by_side
from openmrc.jit.decorators import interpreted
from openmrc.jit.progress import Report, reported

CACHES_KEPT = 4  # older ones are removed, so that many edits do not fill the disk
_compiled_here: set[Path] = set()  # marks of worlds that this process has compiled

Entries = tuple[Any, ...]


class WarmUp:
    """Compiles a world that is not on disk yet; returns how many seconds it took."""

    def __init__(self, world: str, use: Piece, pieces: tuple[Piece, ...], entries: Entries) -> None:
        self.world, self.use, self.pieces, self.entries = world, use, pieces, entries
        functools.update_wrapper(self, use)

    def __call__(self, report: Report | None = None) -> float:
        """Call `report(what, step, steps)` as it proceeds."""
        return warm_up(self, report=report)


def is_cached(world: str) -> bool:
    """True if the compiled code of a world, of exactly these sources, is on disk; without a cache,
    if it is in this process.
    """
    if interpreted() or _mark(world) in _compiled_here:
        return True
    if cache.distrust():
        return False
    cache.hold()  # before looking, so that nobody removes what is found
    return os.path.exists(_mark(world))


def once(world: str, *pieces: Piece, entries: Entries = ()) -> Callable[[Piece], WarmUp]:
    """Decorate a module-level function that compiles a world by using it.

    Each of `pieces` compiles a part of it, the longest first; several cores do so in parallel. Of
    the compiled functions that Python calls, `entries` are those that most of the time goes to.
    """

    def decorate(use: Piece) -> WarmUp:
        return WarmUp(world, use, pieces or (use,), entries)

    return decorate


def warm_up(*worlds: WarmUp, report: Report | None = None) -> float:
    """Compile those of these worlds that are not on disk yet; return how many seconds it took."""
    started = time.perf_counter()
    with ExitStack() as held:
        missing = _missing(worlds)
        for each in sorted(missing, key=lambda each: each.world):  # one order for all: no deadlock
            held.enter_context(_alone(each.world))
        if missing := _missing(missing):  # unless another process compiled them meanwhile
            entries = [entry for each in missing for entry in each.entries]
            tell = held.enter_context(reported(report, entries))
            pieces = [piece for each in missing for piece in each.pieces]
            if _is_divisible(pieces):
                side_by_side(pieces, tell, cores())
            for each in missing:
                each.use()
                mark_cached(each.world)
    return time.perf_counter() - started


def _missing(worlds: Iterable[WarmUp]) -> list[WarmUp]:
    return [each for each in worlds if not is_cached(each.world)]


def _is_divisible(pieces: Sequence[Piece]) -> bool:
    """Whether several processes can compile them, and sooner than one."""
    several = min(len(pieces), cores()) > 1
    return several and bool(sys.executable) and not interpreted() and not cache.trouble()


def announcement(what: str, takes: str) -> str:
    """Return the message printed before `what` is compiled; `takes` says how long that takes."""
    trouble = cache.trouble()
    if not trouble:
        return f"Compiling {what}, once for this version: {takes}."
    cache.loud = False  # it is said here
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
        return  # the cache is incomplete, and later processes must know it
    with suppress(OSError):
        cache.make(cache.DIRECTORY)
        _mark(world).touch()
        cache.prune(CACHES_KEPT)


def _mark(world: str) -> Path:
    return cache.DIRECTORY / f"{cache.READY}-{world}"


@contextmanager
def _alone(world: str) -> Iterator[None]:
    """One process compiles; others that need the same world wait for it, then find it in the cache.

    Without a cache each process compiles for itself, and none waits.
    """
    with ExitStack() as held:
        with suppress(OSError):
            cache.make(cache.DIRECTORY)
            lock = held.enter_context((cache.DIRECTORY / f"lock-{world}").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
