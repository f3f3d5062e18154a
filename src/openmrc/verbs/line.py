"""A line between two processes: messages over TCP, each a line of JSON, all by a deadline.

Nothing here waits for a peer that is slow in any way: a message is whole by its deadline, or the
peer is given up, however often it sends a byte. What fails is an `ExchangeError`, whatever the
system says.

**The proof.** Both ends prove that they know a secret, and the client does so first: who only
connects learns a nonce, and nothing to test guesses with.

    C, S  {"openmrc": VERSION, "nonce": ...}
    C     {"proof": HMAC-SHA256 over "client", the server's nonce and the client's}
    S     {"proof": HMAC-SHA256 over "server", the client's nonce and the server's}

The server's half is a table of what it answers (`Greeting`), without a socket, so that a listener
hears any number of strangers at once (`door`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.printable import printable
from openmrc.verbs import secret as secret_of

# Of the exchange and of the wire. 1 had zeros in the PSN of SACKs, NACKs and ACKs, the EETH's
# operation elsewhere (rows 30 and 4), no capabilities and no planes of plain UDP; in 2 a server
# proved itself first.
VERSION = 3
LINE_MAX = 1 << 20  # bytes of a message
STRANGER_MAX = 1 << 12  # of one before the proof
VERSION_END = 1 << 16  # a peer's version is repeated to its user: it is short
TIMEOUT_S = 30.0  # for one message
SEND_S = 5.0  # the same for one to a peer that is waited for patiently: it reads at any time
PROOF_S = 2.0  # for the whole proof of a stranger
TRIES = 5  # of a client that is given up before it could prove itself
AGAIN_S = 0.05  # between two tries
NONCE_BYTES = 32
_NONCE = f"[0-9a-f]{{{2 * NONCE_BYTES}}}"
CLIENT, SERVER = "client", "server"
REFUSED = "refused"
SAID_MAX = 500  # characters of a peer's that are shown
FOREVER = math.inf
WAIT_MAX_S = 1e6  # at once: the kernel counts milliseconds in 31 bits
UNKNOWN = "the peer does not know the secret"
STRANGE = "the peer does not speak this exchange"


class ExchangeError(OpenMrcError):
    """The peer is absent, does not know the secret, or speaks another version."""


class PeerLeft(ExchangeError):
    """The peer closed the connection."""


class Line:
    """The connection. `until` (a time of `time.monotonic`) is the deadline of all that follows;
    each message has `TIMEOUT_S` besides. `hello` is the peer's first message, once it has proven
    the secret. `closed` says whether it is closed at this end.
    """

    def __init__(self, connection: socket.socket, until: float = FOREVER) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._came = connection, bytearray()
        self._pid = os.getpid()
        self._looked = 0  # bytes of `_came` that hold no end of a line
        self._send_s = TIMEOUT_S
        self.until = until
        self.hello: dict[str, Any] = {}
        self.closed = False

    @classmethod
    def to(cls, host: str, port: int, timeout: float) -> Line:
        """Return a connection to a listener, retrying until there is one; up to `timeout`
        seconds.
        """
        until = time.monotonic() + timeout
        while True:
            left_s = max(until - time.monotonic(), 0.01)
            try:
                return cls(socket.create_connection((host, port), timeout=left_s))
            except (OSError, OverflowError, UnicodeError) as error:
                if time.monotonic() > until or not isinstance(error, OSError):
                    why = error.strerror if isinstance(error, OSError) else None
                    raise ExchangeError(f"{host} port {port}: {why or error}") from None
                time.sleep(AGAIN_S)

    @property
    def address(self) -> str:
        """The peer's address."""
        try:
            return str(self._socket.getpeername()[0])
        except OSError:
            return "an unknown address"  # it has left

    @property
    def version(self) -> Any:
        """The version that the peer speaks."""
        return self.hello.get("openmrc")

    def send(self, *messages: Mapping[str, Any]) -> None:
        """Send these messages at once."""
        left = memoryview(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
        until = min(time.monotonic() + self._send_s, self.until)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until, "the peer does not read")
            except OSError as error:
                raise PeerLeft(f"the peer closed the connection ({error.strerror})") from None

    def receive(self, most: int = LINE_MAX) -> dict[str, Any]:
        """Receive one message of up to `most` bytes."""
        return self._receive(min(time.monotonic() + TIMEOUT_S, self.until), most)

    def receive_patiently(self) -> dict[str, Any]:
        """Receive one message, however long that takes; sending has a shorter deadline then."""
        self._send_s = SEND_S
        return self._receive(self.until, LINE_MAX)

    def _receive(self, until: float, most: int) -> dict[str, Any]:
        while (message := self.heard(most)) is None:
            self._wait(select.POLLIN, until, "the peer says nothing more")
        return message

    def heard(self, most: int = LINE_MAX) -> dict[str, Any] | None:
        """The next message, if it has arrived."""
        while (end := self._came.find(b"\n", self._looked)) < 0:
            self._looked = len(self._came)
            if self._looked >= most:
                raise ExchangeError(STRANGE)
            try:
                more = self._socket.recv(1 << 16)
            except BlockingIOError:
                return None
            except OSError as error:
                raise PeerLeft(f"the peer closed the connection ({error.strerror})") from None
            if not more:
                raise PeerLeft("the peer closed the connection")
            self._came += more
        data, self._looked = bytes(self._came[:end]), 0
        del self._came[: end + 1]
        try:
            message = json.loads(data.decode()) if len(data) < most else None
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ExchangeError(STRANGE)
        return message

    def _wait(self, event: int, until: float, why: str) -> None:
        """Wait until the connection is readable, or writable."""
        poll = select.poll()
        with contextlib.suppress(ValueError):  # it was closed meanwhile: its next use says so
            poll.register(self._socket, event)
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise ExchangeError(f"{why}: the connection is given up")
            poll.poll(None if left_s == FOREVER else math.ceil(min(left_s, WAIT_MAX_S) * 1000))

    def authenticate(
        self, secret: bytes, role: str, about: Mapping[str, Any] | None = None
    ) -> None:
        """Prove and be proven that both know the secret; a client's first message also says what
        it is `about`. A server gives up after `PROOF_S`; a client at its deadline, or without one
        after `TIMEOUT_S`: its server may have others to hear first.
        """
        secret_of.check(secret)
        before, now = self.until, time.monotonic()
        if role == SERVER:
            self.until = min(before, now + PROOF_S)
        elif before == FOREVER:
            self.until = now + TIMEOUT_S
        if role == SERVER:
            greeting = Greeting(lambda _: secret)
            self.send(greeting.first)
            while not greeting.proven:
                self.send(*greeting.hear(self.receive(STRANGER_MAX)))
            self.hello = greeting.hello
        else:
            self._prove(secret, dict(about or {}))
        self.until = before

    def _prove(self, secret: bytes, about: dict[str, Any]) -> None:
        mine = _nonce()
        self.send({"openmrc": VERSION, "nonce": mine, **about})
        hello = self._answer()
        theirs = _nonce_of(hello, mine)
        self.send({"proof": _proof(secret, CLIENT, theirs, mine)})
        if not _is_proof(self._answer(), secret, SERVER, mine, theirs):
            raise ExchangeError(UNKNOWN)
        self.hello = hello

    def _answer(self) -> dict[str, Any]:
        message = self._receive(self.until, STRANGER_MAX)
        if REFUSED in message:
            raise ExchangeError(f"the peer refuses: {shown(message[REFUSED])}")
        return message

    def fileno(self) -> int:
        """A descriptor that is readable when the peer has sent a message, if all earlier ones were
        read.
        """
        return self._socket.fileno()

    def wait_for_end(self) -> None:
        """Return when the peer closes."""
        with contextlib.suppress(ExchangeError):
            while True:
                self._receive(FOREVER, LINE_MAX)

    def detach(self) -> socket.socket:
        """Return the connection, which is no line any more; nothing may have arrived yet."""
        return self._socket

    def close(self) -> None:
        """Close both directions; a child of fork closes its descriptor only."""
        self.closed = True  # before the peer sees it, and comes back
        end(self._socket, self._pid)


def call(
    host: str, port: int, secret: bytes, until: float, about: Mapping[str, Any] | None = None
) -> Line:
    """Return a line to a listener, over which both have proven the secret, by `until`; that stays
    its deadline. A listener with many callers may give one up before it could prove itself.
    """
    secret_of.check(secret)
    tries = 0
    while True:
        line = Line.to(host, port, until - time.monotonic())
        line.until = until
        try:
            line.authenticate(secret, CLIENT, about)
            return line
        except BaseException as error:
            line.close()
            if not isinstance(error, PeerLeft):
                raise
            tries += 1
            if tries == TRIES or time.monotonic() + AGAIN_S > until:
                raise ExchangeError(f"{host} port {port}: {error}") from None
        time.sleep(AGAIN_S)


class Greeting:
    """The server's half of a proof, message by message; `secret_for` returns the secret for a
    client's first message. An error ends it; `last_words` are for the client then.
    """

    def __init__(self, secret_for: Callable[[dict[str, Any]], bytes]) -> None:
        self._mine, self._secret_for = _nonce(), secret_for
        self.first: dict[str, Any] = {"openmrc": VERSION, "nonce": self._mine}
        self.hello: dict[str, Any] = {}
        self.last_words: list[dict[str, Any]] = []
        self.proven = False

    def hear(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Process the client's next message, and return the answer."""
        if not self.hello:
            _nonce_of(message, self._mine)
            self.hello = message
            return []
        theirs = _nonce_of(self.hello, self._mine)
        secret = self._secret_for(self.hello)
        if not _is_proof(message, secret, CLIENT, self._mine, theirs):
            self.last_words = [{REFUSED: "the secrets of both ends differ"}]
            raise ExchangeError(UNKNOWN)
        self.proven = True
        return [{"proof": _proof(secret, SERVER, theirs, self._mine)}]


def end(own: socket.socket, pid: int) -> None:
    """Close a socket of process `pid`, for all who wait on it too: unless this is a child of fork,
    whose parent goes on.
    """
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)
    own.close()


def shown(said: Any) -> str:
    """What a peer said, as one short line that a terminal can show."""
    return printable(" ".join(str(said)[:SAID_MAX].split()))


def _nonce() -> str:
    return secrets.token_hex(NONCE_BYTES)


def _nonce_of(hello: Mapping[str, Any], mine: str) -> str:
    """The peer's nonce; an error if it is none, or this end's own, reflected."""
    theirs, version = str(hello.get("nonce")), hello.get("openmrc")
    if re.fullmatch(_NONCE, theirs) is None or type(version) is not int:
        raise ExchangeError(STRANGE)
    if not 0 <= version < VERSION_END:
        raise ExchangeError(STRANGE)
    if theirs == mine:
        raise ExchangeError(UNKNOWN)
    return theirs


def _proof(secret: bytes, role: str, theirs: str, mine: str) -> str:
    return hmac.new(secret, _bytes(f"{role} {theirs} {mine}"), hashlib.sha256).hexdigest()


def _is_proof(message: Mapping[str, Any], secret: bytes, role: str, theirs: str, mine: str) -> bool:
    """Whether the peer, of this role, has proven the secret; the nonces are as in its proof."""
    told = _bytes(str(message.get("proof")))
    return hmac.compare_digest(told, _bytes(_proof(secret, role, theirs, mine)))


def _bytes(text: str) -> bytes:
    """A text of the peer's as bytes: JSON may hold half a character."""
    return text.encode(errors="surrogatepass")
