"""Ctrl-C between two steps of a run, never in the middle of one.

Python raises KeyboardInterrupt at any point, for instance between two assignments that belong
together. State that is interrupted there is inconsistent, but the results of an interrupted run
must be kept.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Defer SIGINT until the function that this yields is called, or the block is left.

    Then the usual handler runs, which normally raises KeyboardInterrupt. Only the main thread
    receives signals; in others nothing changes.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield lambda: None
        return
    handler: Handler = usual
    waiting: list[tuple[int, FrameType | None]] = []

    def let_through() -> None:
        if waiting:
            arrived = waiting.pop()
            waiting.clear()
            handler(*arrived)

    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield let_through
    finally:
        signal.signal(signal.SIGINT, usual)
    let_through()
