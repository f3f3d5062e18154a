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
    """Defer SIGINT, and what calls its handler (`openmrc.ending`), until the function that this
    yields is called, or the block is left.

    Then the usual handler runs, which normally raises KeyboardInterrupt; an ignored SIGINT stays
    ignored. Only the main thread receives signals; in others nothing changes.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is None:
        yield lambda: None
        return
    handler: Handler = usual if callable(usual) else signal.default_int_handler
    waiting: list[tuple[int, FrameType | None]] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or usual is not signal.SIG_IGN:
            waiting.append((number, frame))

    def let_through() -> None:
        if waiting:
            arrived = waiting.pop()
            waiting.clear()
            handler(*arrived)

    signal.signal(signal.SIGINT, defer)
    try:
        yield let_through
    finally:
        signal.signal(signal.SIGINT, usual)
    let_through()
