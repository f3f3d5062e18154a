"""Makes sure that nothing swallows Ctrl-C, and that SIGTERM and SIGHUP do what it does.

Python raises KeyboardInterrupt at any point. In a callback from C, as LLVM makes them while code is
loaded, or in a finaliser it cannot propagate: Python prints a traceback, drops it, and the command
continues to its end. So a dropped one is raised again a moment later, until it is raised where it
can be handled. One that arrives while a module loads waits for the module: libraries take it for
an error of their own, and a class in the making wraps it in another.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from openmrc.ending import alike, last

AGAIN_AFTER_S = 0.01
LOADED_WITHIN_S = 2.0  # what takes longer, such as a policy with an endless loop, is interrupted
LOADER = "<frozen importlib._bootstrap>"
_heard = threading.Event()


def heard() -> None:
    """Record that Ctrl-C has arrived: finalisers of half-made objects may fail silently."""
    _heard.set()


def keep() -> None:
    """From now on, to the end of the process, raise a KeyboardInterrupt again that Python drops,
    and end on SIGTERM and SIGHUP as on Ctrl-C.
    """
    alike()
    usual = sys.unraisablehook
    held_since: list[float] = []

    def hook(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            threading.Thread(target=again, daemon=True).start()
        elif not _heard.is_set():
            usual(dropped)

    def once_loaded(number: int, frame: FrameType | None) -> None:
        if _loads(frame):
            held_since[1:] = [time.monotonic()]  # the first stays
            if held_since[-1] < held_since[0] + LOADED_WITHIN_S:
                threading.Thread(target=again, daemon=True).start()
                return
        held_since.clear()
        raise KeyboardInterrupt

    def again() -> None:
        # Within the hook, which a busy machine may hold up, it would be dropped for good.
        while True:
            time.sleep(AGAIN_AFTER_S)
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
            while frame is not None and frame.f_code is not hook.__code__:
                frame = frame.f_back
            if frame is None:
                break
        # A signal of its own, since `_thread.interrupt_main` ends no system call that waits.
        signal.pthread_kill(threading.main_thread().ident or 0, last())

    sys.unraisablehook = hook
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, once_loaded)


def _loads(frame: FrameType | None) -> bool:
    """Whether what runs there was called by the import of a module."""
    while frame is not None and frame.f_code.co_filename != LOADER:
        frame = frame.f_back
    return frame is not None
