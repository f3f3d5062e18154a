"""A listener's door: callers prove that they know the secret side by side, each within a deadline.

Who is slow delays nobody: all strangers are heard in turn, by one thread, which never waits for
one of them. Each has `PROOF_S` from its first moment, however often it sends a byte. Where there is
no room for another, in the door or in the process (descriptors), the one that has proven nothing
for longest is given up first; a true peer needs two round trips.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from openmrc.live.closing import Closing
from openmrc.verbs.line import PROOF_S, STRANGER_MAX, ExchangeError, Greeting, Line, end

STRANGERS_MAX = 256
AT_ONCE = 16  # callers let in between two turns of those who are in
FULL_S = 0.1  # pause where the process has no descriptor left, nor a stranger's to give up
FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class _Stranger(NamedTuple):
    line: Line
    greeting: Greeting
    until: float


class Door(Closing):
    """The strangers at a listening socket, which it takes over; `secret_for` returns the secret for
    a caller's first message, or raises.
    """

    def __init__(
        self,
        server: socket.socket,
        secret_for: Callable[[dict[str, Any]], bytes],
        strangers_max: int = STRANGERS_MAX,
    ) -> None:
        server.setblocking(False)
        self._server, self._secret_for, self._most = server, secret_for, strangers_max
        self._pid = os.getpid()
        self._strangers: dict[int, _Stranger] = {}  # by descriptor, the oldest first
        self._full_until = 0.0
        self.turned_away = 0  # how many came and did not prove the secret

    def next(self, until: float) -> Line | None:
        """Return the connection of the next caller that has proven the secret; None at `until` (of
        `time.monotonic`), or if the door was closed.
        """
        while True:
            ready = self._wait(until)
            if self._server.fileno() < 0:
                return None
            for fd in ready:
                if fd in self._strangers and (line := self._hear(fd)) is not None:
                    return line
            if self._server.fileno() in ready:
                self._accept()
            now = time.monotonic()
            for fd, one in list(self._strangers.items()):
                if one.until <= now:
                    self._give_up(fd)
            if now >= until:
                return None

    def close(self) -> None:
        """Stop listening, and turn everybody away."""
        end(self._server, self._pid)  # which wakes a thread in `next`
        for fd in list(self._strangers):
            self._give_up(fd)

    def _wait(self, until: float) -> set[int]:
        """The descriptors that are readable, as soon as there are any or a deadline has come."""
        now = time.monotonic()
        poll = select.poll()
        for fd, one in self._strangers.items():
            poll.register(fd, select.POLLIN)
            until = min(until, one.until)
        if self._full_until > now:
            until = min(until, self._full_until)
        elif self._server.fileno() >= 0:
            poll.register(self._server, select.POLLIN)
        ms = math.ceil(max(min(until - now, 1e6), 0) * 1000)
        return {fd for fd, _ in poll.poll(ms)}

    def _accept(self) -> None:
        """Let some in; then those who are in have their turn, however many come."""
        accepted = False
        for _ in range(AT_ONCE):
            try:
                connection, _ = self._server.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in FULL:
                    continue  # a caller that has left already; or the door was closed
                if accepted:
                    return  # without a descriptor the system does not say whether anybody waits
                if not self._strangers:
                    self._full_until = time.monotonic() + FULL_S
                    return
                self._give_up(next(iter(self._strangers)))
                continue
            accepted = True
            if len(self._strangers) >= self._most:
                self._give_up(next(iter(self._strangers)))
            self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        line, greeting = Line(connection, 0.0), Greeting(self._secret_for)
        until = time.monotonic() + PROOF_S
        self._strangers[line.fileno()] = _Stranger(line, greeting, until)
        try:
            line.send(greeting.first)
        except ExchangeError:
            self._give_up(line.fileno())

    def _hear(self, fd: int) -> Line | None:
        """Process what a stranger has sent; return its line if it has proven the secret."""
        line, greeting, _ = self._strangers[fd]
        try:
            while not greeting.proven:
                message = line.heard(STRANGER_MAX)
                if message is None:
                    return None
                line.send(*greeting.hear(message))
        except ExchangeError:
            self._give_up(fd, greeting.last_words)
            return None
        del self._strangers[fd]
        line.hello, line.until = greeting.hello, math.inf
        return line

    def _give_up(self, fd: int, last_words: list[dict[str, Any]] | None = None) -> None:
        if (one := self._strangers.pop(fd, None)) is not None:
            self.turned_away += 1
            with contextlib.suppress(ExchangeError):
                one.line.send(*(last_words or []))
            one.line.close()
