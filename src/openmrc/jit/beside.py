"""Compiles the pieces of a world in parallel, one process each; results meet in the on-disk cache.

Numba holds a lock while it compiles, so a process compiles one function at a time. A process that
needs all of the pieces loads from disk in a second what the others have compiled.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module

from openmrc.jit import cache, lean
from openmrc.jit.progress import Tell, told

Piece = Callable[[], None]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(pieces: Sequence[Piece], tell: Tell, at_once: int) -> None:
    """Call each of these module-level functions in a process of its own, `at_once` at a time; call
    `tell` with what each of them tells of its progress.

    A piece whose process fails, which prints why, is left to the caller. No process outlives this
    call.
    """
    waiting = list(pieces)
    with ExitStack() as running, selectors.DefaultSelector() as talking:
        while waiting or talking.get_map():
            while waiting and len(talking.get_map()) < at_once:
                child = running.enter_context(_process(waiting.pop(0)))
                running.callback(child.terminate)
                talking.register(child.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
            for key, _ in talking.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]  # a pipe
                if line:
                    ended, _, now = line.decode().strip().rpartition(" ")
                    tell(ended, now)
                else:
                    talking.unregister(key.fileobj)


def _process(piece: Piece) -> subprocess.Popen[bytes]:
    """Start a process that calls a piece, and prints a line for each function that it compiles."""
    call = f"from {__name__} import call; call({piece.__module__!r}, {piece.__qualname__!r})"
    here = [place or os.getcwd() for place in sys.path]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", call],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,  # `select` does not see lines in a buffer
        env=os.environ | {"PYTHONPATH": os.pathsep.join(here)},
    )


def call(module: str, name: str) -> None:
    """Run a piece in such a process. It ignores Ctrl-C: its parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lean.only_compile()
    cache.loud = False  # its parent compiles and says what could not be kept
    piece = getattr(import_module(module), name)
    with told(_say):
        getattr(piece, "__wrapped__", piece)()  # of a WarmUp, what `once` decorates


def _say(ended: str, now: str) -> None:
    try:
        print(ended, now, flush=True)
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
