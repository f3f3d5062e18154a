"""Ctrl-C that nothing swallows.

Python raises KeyboardInterrupt wherever it happens to be. In a callback from C, as LLVM makes them
while code is loaded, or in a finaliser it cannot go further: Python prints a traceback, drops it,
and the command goes on to its end. So what is dropped is raised again a moment later, until it
falls where it can be heard.
"""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any

AGAIN_AFTER_S = 0.01
_heard = threading.Event()


def heard() -> None:
    """Note that Ctrl-C has arrived: finalisers of what it left half made may fail in silence."""
    _heard.set()


def keep() -> None:
    """From now on, to the end of the process, raise again what Python drops of Ctrl-C."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            again = threading.Timer(AGAIN_AFTER_S, _thread.interrupt_main)
            again.daemon = True
            again.start()
        elif not _heard.is_set():
            usual(dropped)

    sys.unraisablehook = hook
