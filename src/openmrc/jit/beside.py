"""Pieces of a world compiled side by side, each in a process of its own, by way of the disk.

A process compiles one function at a time: Numba holds a lock meanwhile. What several processes
have kept, the one that needs all of it loads in a second.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module

from openmrc.jit.progress import told

Piece = Callable[[], None]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(pieces: Sequence[Piece], tell: Callable[[str], None], at_once: int) -> None:
    """Call each of these functions of modules in a process, `at_once` at a time; `tell` the name of
    each function that one begins to compile.

    A piece whose process fails, which says why, is left to the caller. None outlives this call.
    """
    waiting = list(pieces)
    with ExitStack() as running, selectors.DefaultSelector() as talking:
        while waiting or talking.get_map():
            while waiting and len(talking.get_map()) < at_once:
                child = running.enter_context(_process(waiting.pop(0)))
                running.callback(child.terminate)
                talking.register(child.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            for key, _ in talking.select():
                line = key.fileobj.readline()  # type: ignore[union-attr]
                if line:
                    tell(line.decode().strip())
                else:
                    talking.unregister(key.fileobj)


def _process(piece: Piece) -> subprocess.Popen[bytes]:
    """A process that calls a piece, and writes a line for each function that it compiles."""
    call = f"from {__name__} import call; call({piece.__module__!r}, {piece.__qualname__!r})"
    here = [place or os.getcwd() for place in sys.path]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", call],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        bufsize=0,  # a line read leaves none behind that nobody waits for
        env=os.environ | {"PYTHONPATH": os.pathsep.join(here)},
    )


def call(module: str, name: str) -> None:
    """What such a process does. Ctrl-C is for the one that waits: it ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()  # a compiler's garbage is little: looking for it rarely saves a tenth of the time
    gc.set_threshold(50_000, 20, 1000)
    piece = getattr(import_module(module), name)
    with told(_say):
        getattr(piece, "__wrapped__", piece)()  # of a whole world, what `once` decorates


def _say(function: str) -> None:
    try:
        print(function, flush=True)
    except BrokenPipeError:  # nobody waits any more
        os._exit(1)
