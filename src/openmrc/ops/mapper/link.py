"""An agent's connection to its controller: it reconnects by itself, and never blocks the agent.

One thread connects, proves the secret, joins and receives; messages are in `heard`, and `fileno` is
readable then. Another thread sends. While there is no controller nothing is queued: losses of that
time are not reported later, because they would be old.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.live.closing import Closing
from openmrc.verbs.line import CLIENT, REFUSED, Line, shown

AGAIN_S = 0.5  # between two attempts
WAITING_MAX = 1000  # messages that a slow controller has not read


class Link(Closing):
    """The connection to the controller at `host`, `port`; `join` is the first message. `secret` is
    the job's, or with `is_key` the key of this NIC.
    """

    def __init__(
        self,
        host: str,
        port: int,
        secret: bytes,
        join: dict[str, Any],
        say: Callable[[str], None],
        is_key: bool = False,
    ) -> None:
        self._where, self._secret, self._join, self._say = (host, port), secret, join, say
        self._about = {"nic": join["join"]} if is_key else {}
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING_MAX)
        self._line: Line | None = None
        self._closing = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._heard: deque[dict[str, Any]] = deque()
        for work in (self._listen, self._speak):
            threading.Thread(target=work, daemon=True).start()

    @property
    def connected(self) -> bool:
        """Whether a controller is connected."""
        return self._line is not None

    def fileno(self) -> int:
        """A descriptor that is readable when a message has arrived."""
        return self._wake

    def heard(self) -> list[dict[str, Any]]:
        """Return and clear the messages that arrived."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        found = []
        while self._heard:
            found.append(self._heard.popleft())
        return found

    def send(self, message: dict[str, Any]) -> None:
        """Send this if a controller is connected and keeps up."""
        if self.connected:
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait(message)

    def close(self) -> None:
        """Close the connection."""
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        if self._line is not None:
            self._line.close()

    def _listen(self) -> None:
        told = ""
        while not self._closing.is_set():
            try:
                line = Line(socket.create_connection(self._where, timeout=5))
            except OSError as error:
                told = self._tell(told, f"no controller at {self._where[0]}: {error.strerror}")
                self._closing.wait(AGAIN_S)
                continue
            try:
                line.authenticate(self._secret, CLIENT, self._about)
                line.send(self._join)
                while not self._closing.is_set():
                    message = line.receive_patiently()
                    if REFUSED in message:
                        why = shown(message[REFUSED])
                        told = self._tell(told, f"the controller refuses: {why}")
                        break
                    if "welcome" in message:
                        self._line, told = line, ""
                        continue
                    self._heard.append(message)
                    os.eventfd_write(self._wake, 1)
            except OpenMrcError as error:
                told = self._tell(told, f"the controller is gone ({error}); probing goes on")
            self._line = None
            line.close()
            self._closing.wait(AGAIN_S)

    def _tell(self, before: str, words: str) -> str:
        """Print a message once."""
        if words != before and not self._closing.is_set():
            self._say(f"mapper: {words}")
        return words

    def _speak(self) -> None:
        while (message := self._waiting.get()) is not None:
            line = self._line
            if line is not None:
                with contextlib.suppress(OpenMrcError):
                    line.send(message)
