"""Detects which ranks are alive: an idle TCP connection between every two ranks.

When a process ends, in whatever way, its kernel closes its connections: the others know at once.
Cut paths do not show here, and are no rank's death: silence has a timeout of its own. A rank that
leaves in order says so first, and what it has received. Ranks prove the job's secret as the two
ends of an exchange do, side by side, so that a stranger delays none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
import termios
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.verbs.door import STRANGERS_MAX, Door
from openmrc.verbs.line import ExchangeError, call

LOOPBACK = "127.0.0.1"
QUESTION, ANSWER = b"?", b"!"
LINE_MAX = 1 << 16


def own_address(store: Any, planes: Sequence[str]) -> str:
    """The address at which other hosts reach this one: the one from which torch's store is reached,
    or the job's `MASTER_ADDR`; if those are here, or the store is a file, that of the first plane.
    """
    while hasattr(store, "underlying_store"):  # within prefixes
        store = store.underlying_store
    there = (getattr(store, "host", ""), os.environ.get("MASTER_ADDR", ""))
    for address in (*(source_to(one) for one in there if one), *planes):
        if address and not ip_address(address).is_loopback:
            return address
    return LOOPBACK


def source_to(host: str) -> str:
    """The address of this host towards another; "" if there is no way."""
    try:
        family, _, _, _, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect(there)
            return str(one.getsockname()[0])
    except OSError:
        return ""


class Lines:
    """The connections of this rank."""

    def __init__(self, rank: int, size: int, secret: bytes, address: str = LOOPBACK) -> None:
        self.rank, self.size, self._secret, self.address = rank, size, secret, address
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._listener = socket.create_server((self.address, 0), family=family, backlog=size)
        self.port = int(self._listener.getsockname()[1])
        self.to: dict[int, socket.socket] = {}
        self.left: dict[int, dict[str, Any]] = {}  # ranks that left in order: last message
        self._asked: set[int] = set()
        self.answered: set[int] = set()  # ranks that have answered a question

    def connect(self, where: dict[int, tuple[str, int]], timeout_s: float) -> None:
        """Connect to all lower ranks, and be connected to by all higher ones."""
        until = time.monotonic() + timeout_s
        for peer in range(self.rank):
            address, port = where[peer]
            try:
                line = call(address, port, self._secret, until, {"rank": self.rank})
            except ExchangeError as error:
                raise OpenMrcError(f"rank {peer}: {error}") from None
            self._keep(peer, line.detach())
        with Door(
            self._listener, lambda _: self._secret, max(2 * self.size, STRANGERS_MAX)
        ) as door:
            self._let_in(door, until, timeout_s)

    def _let_in(self, door: Door, until: float, timeout_s: float) -> None:
        while len(self.to) < self.size - 1:
            if (one := door.next(until)) is None:
                missing = sorted(set(range(self.size)) - {self.rank} - set(self.to))
                raise OpenMrcError(
                    f"ranks {missing} have not connected within {timeout_s:g} s to"
                    f" {self.address} port {self.port}"
                ) from None
            rank = one.hello.get("rank")
            if type(rank) is int and self.rank < rank < self.size:
                self._keep(rank, one.detach())
            else:
                one.close()

    def _keep(self, peer: int, one: socket.socket) -> None:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
        self.to[peer] = one

    def say(self, peer: int, what: dict[str, Any]) -> None:
        """Send a message to a peer, if it is still connected."""
        self._write(peer, json.dumps(what).encode())

    def _write(self, peer: int, line: bytes) -> None:
        with contextlib.suppress(OSError):
            self.to[peer].sendall(line + b"\n")

    def ask(self, peer: int) -> None:
        """Ask a peer whether it lives, unless an answer is due already."""
        if peer not in self._asked:
            self._asked.add(peer)
            self.answered.discard(peer)
            self._write(peer, QUESTION)

    def is_heard(self, peer: int) -> bool:
        """Whether the peer's kernel has acknowledged all that was written."""
        try:
            left = fcntl.ioctl(self.to[peer], termios.TIOCOUTQ, bytes(4))
        except OSError:
            return False
        return int.from_bytes(left, sys.byteorder) == 0

    def hear(self, peer: int, on_end: Callable[[int, dict[str, Any] | None], None]) -> None:
        """Data has arrived: `on_end` is called with the rank that left, and its message (None:
        nothing).
        """
        try:
            data = self.to[peer].recv(LINE_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for line in data.splitlines():
            if line == QUESTION:
                self._write(peer, ANSWER)
                continue
            if line == ANSWER:
                self._asked.discard(peer)
                self.answered.add(peer)
                continue
            with contextlib.suppress(ValueError):
                self.left[peer] = json.loads(line)
        if not data or peer in self.left:
            on_end(peer, self.left.get(peer))

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        for one in self.to.values():
            one.close()

    forget = close  # those of the parent stay open
