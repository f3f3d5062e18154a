"""Makes sure that nothing swallows Ctrl-C.

Python raises KeyboardInterrupt at any point. In a callback from C, as LLVM makes them while code is
loaded, or in a finaliser it cannot propagate: Python prints a traceback, drops it, and the command
continues to its end. So a dropped one is raised again a moment later, until it is raised where it
can be handled.
"""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Any

AGAIN_AFTER_S = 0.01
_heard = threading.Event()


def heard() -> None:
    """Record that Ctrl-C has arrived: finalisers of half-made objects may fail silently."""
    _heard.set()


def keep() -> None:
    """From now on, to the end of the process, raise a KeyboardInterrupt again that Python drops."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            again = threading.Timer(AGAIN_AFTER_S, _thread.interrupt_main)
            again.daemon = True
            again.start()
        elif not _heard.is_set():
            usual(dropped)

    sys.unraisablehook = hook
