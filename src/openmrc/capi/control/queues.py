"""Queues of EV events. They never overrun: an event without room is dropped and counted, and the
next one that has room says how many were dropped before it.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from openmrc.capi.control.formats import Ev

DROPPED_MAX = (1 << 32) - 1


class EvEvent(NamedTuple):
    """An EV of a profile is in another state now; `dropped` events came before it and are lost."""

    profile: int
    ev: Ev
    state: int
    dropped: int


@dataclass
class EventQueue:
    """A queue with room for `depth` events."""

    depth: int
    events: deque[EvEvent] = field(default_factory=deque)
    dropped: int = 0
    index: int = -1  # it is no queue of completions
    _fd: int = field(default_factory=lambda: os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def fileno(self) -> int:
        """Readable when an event came since it was last read."""
        return self._fd

    def put(self, profile: int, ev: Ev, state: int) -> None:
        """Add an event, or count it."""
        if len(self.events) >= self.depth:
            self.lose(1)
            return
        self.events.append(EvEvent(profile, ev, state, self.dropped))
        self.dropped = 0
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._fd, 1)

    def lose(self, n: int) -> None:
        """Count events that are lost."""
        self.dropped = min(self.dropped + n, DROPPED_MAX)

    def take(self, most: int) -> list[EvEvent]:
        """Take the oldest events, up to so many."""
        return [self.events.popleft() for _ in range(min(most, len(self.events)))]

    def close(self) -> None:
        """Release its descriptor."""
        os.close(self._fd)
