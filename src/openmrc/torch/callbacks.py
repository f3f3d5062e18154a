"""What an application has attached to futures, called on threads of its own.

Such a callback may post and wait, and what it waits for may have callbacks itself. So none waits
for another to return: a thread that is idle takes it, or else a new one. The threads that advance
operations, and count their timeouts, call nothing of an application's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable

IDLE_S = 1.0  # a thread without work ends after it
LAST_S = 5.0  # for callbacks that still run at the end; their operations have failed by then


class Callbacks:
    """The threads of one process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def call(self, function: Callable[[], None]) -> None:
        """Call this on another thread; never waits."""
        with self._changed:
            if not self._closed:
                self._due.append(function)
                if self._idle >= len(self._due):
                    self._changed.notify()
                    return
                one = threading.Thread(target=self._run, name="mrc callbacks", daemon=True)
                self._threads.add(one)
                one.start()
                return
        function()

    def _run(self) -> None:
        while (function := self._next()) is not None:
            with contextlib.suppress(Exception):  # torch keeps errors of callbacks in their futures
                function()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._idle += 1
            until = time.monotonic() + IDLE_S
            while not self._due and not self._closed and time.monotonic() < until:
                self._changed.wait(max(until - time.monotonic(), 0))
            self._idle -= 1
            if self._due:
                return self._due.popleft()
            self._threads.discard(threading.current_thread())
            return None

    def close(self) -> None:
        """Wait until all have returned."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        until = time.monotonic() + LAST_S
        for one in threads:
            one.join(max(until - time.monotonic(), 0))
