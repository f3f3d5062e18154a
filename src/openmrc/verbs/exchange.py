"""Attributes of queue pairs, exchanged over TCP (MRC 1.2 leaves the means open).

Both ends prove that they know the job's secret before anything is said; neither sends it. Then each
tells the other its QP's attributes, the regions that it offers and whatever the application adds,
connects, measures the round trip, and asks whether the paths carry full packets. The connection
stays open: its closing tells an end that only waits that the peer is gone (row 28), and moves the
QP to ERROR.

    server: with exchange.Listener(port, secret) as listener: peer = listener.accept(qp, [mr])
    client: peer = exchange.connect(qp, host, port, secret, [mr])

Messages are lines of JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.live.closing import Closing
from openmrc.verbs.attributes import QpAttributes, RemoteRegion
from openmrc.verbs.qp import QueuePair
from openmrc.verbs.region import MemoryRegion
from openmrc.verbs.status import QpState

# Of this exchange and of the wire: 1 had zeros in the PSN of SACKs, NACKs and ACKs, the EETH's
# operation elsewhere (rows 30 and 4), no capabilities and no planes of plain UDP.
VERSION = 2
LINE_MAX = 1 << 20
TIMEOUT_S = 30.0
NONCE_BYTES = 32
CLIENT, SERVER = "client", "server"
REFUSED = "refused"
_SEND_TIMEOUT = struct.pack("ll", 5, 0)  # struct timeval, of a socket that waits for ever


class ExchangeError(OpenMrcError):
    """The peer is absent, does not know the secret, or speaks another version."""


class Peer(Closing):
    """The other end, once connected."""

    def __init__(
        self, qp: QueuePair, line: Line, regions: Sequence[RemoteRegion], extra: Any
    ) -> None:
        self.qp = qp
        self.regions = list(regions)
        self.extra = extra
        self._line = line
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """Wait until the connection closes: then move the QP to ERROR, because its peer is gone."""
        with contextlib.suppress(OSError, ValueError, ExchangeError):  # closed here, or by the peer
            self._line.wait_for_end()
        if not self._closing:
            with contextlib.suppress(OpenMrcError):
                self.qp.modify(QpState.ERROR)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the peer leaves. An end that has received all it wanted and leaves at once may
        take the last acknowledgement with it, which the sender still needs.
        """
        self._watcher.join(timeout)
        return not self._watcher.is_alive()

    def close(self) -> None:
        """Leave; the peer's QP goes to ERROR, and its outstanding requests are flushed."""
        self._closing = True
        self._line.close()
        self._watcher.join()


class Listener(Closing):
    """Waits for peers on a TCP port (0: any free one; `port` says which)."""

    def __init__(self, port: int, secret: bytes, host: str = "") -> None:
        self._secret = secret
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port = int(self._socket.getsockname()[1])

    def accept(
        self,
        qp: QueuePair,
        regions: Sequence[MemoryRegion] = (),
        extra: Any = None,
        timeout: float = TIMEOUT_S,
    ) -> Peer:
        """Accept the next peer that knows the secret; others are refused."""
        until = time.monotonic() + timeout
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                line = Line(self._socket.accept()[0])
            except TimeoutError:
                raise ExchangeError(f"nobody came within {timeout:g} s") from None
            try:
                line.authenticate(self._secret, SERVER)
            except (OSError, ExchangeError):
                line.close()
                continue
            with _open_if_it_succeeds(line):
                return _handshake(line, qp, regions, extra, SERVER)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def connect(
    qp: QueuePair,
    host: str,
    port: int,
    secret: bytes,
    regions: Sequence[MemoryRegion] = (),
    extra: Any = None,
    timeout: float = TIMEOUT_S,
) -> Peer:
    """Connect to a listening peer, trying again until it is there or `timeout` seconds passed."""
    line = Line.to(host, port, timeout)
    with _open_if_it_succeeds(line):
        line.authenticate(secret, CLIENT)
        return _handshake(line, qp, regions, extra, CLIENT)


@contextlib.contextmanager
def _open_if_it_succeeds(line: Line) -> Iterator[None]:
    try:
        yield
    except BaseException:
        line.close()
        raise


def _handshake(
    line: Line, qp: QueuePair, regions: Sequence[MemoryRegion], extra: Any, role: str
) -> Peer:
    """Exchange attributes, connect, measure one after the other."""
    _same_version(line)
    offered = [asdict(mr.remote) for mr in regions]
    line.send({"qp": qp.attributes.as_dict(), "regions": offered, "extra": extra})
    told = line.receive()
    if (why := told.get(REFUSED)) is not None:
        raise ExchangeError(f"the peer refuses: {why}")
    try:
        remote = QpAttributes(**told["qp"])
        there = [RemoteRegion(**region) for region in told["regions"]]
    except (KeyError, TypeError) as error:
        raise ExchangeError(f"the peer's attributes are not understood: {error}") from None
    with _heard_by(line):
        for region in there:
            region.check()
        qp.connect(remote)
    line.send({"connected": True})
    if (why := line.receive().get(REFUSED)) is not None:
        raise ExchangeError(f"the peer refuses this end's attributes: {why}")
    for turn in (CLIENT, SERVER):
        if turn == role:
            qp.measure_rtt()
            with _heard_by(line):
                if qp.device.check_mtu:
                    qp.check_path_mtu()
            line.send({"measured": True})
        elif (why := line.receive().get(REFUSED)) is not None:
            raise ExchangeError(f"as seen by the peer: {why}")
    return Peer(qp, line, there, told.get("extra"))


def _same_version(line: Line) -> None:
    if line.version != VERSION:
        why = (
            f"the peer speaks version {line.version} of the wire, this end version {VERSION}:"
            " install the same openmrc at both ends"
        )
        with contextlib.suppress(OSError):
            # Version 1 ignores a refusal here, but names the attribute that it does not know.
            line.send({REFUSED: why, "qp": {why: None}})
        raise ExchangeError(why)


@contextlib.contextmanager
def _heard_by(line: Line) -> Iterator[None]:
    """Send errors of this end to the peer, too."""
    try:
        yield
    except OpenMrcError as error:
        with contextlib.suppress(OSError):
            line.send({REFUSED: str(error)})
        raise


class Line:
    """Lines of JSON over a TCP connection.

    The receiver refuses a message longer than `LINE_MAX`.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._reader = connection.makefile("rb")
        self.version: Any = None  # the peer's, after its first message

    @classmethod
    def to(cls, host: str, port: int, timeout: float) -> Line:
        """Return a connection to a listener, retrying until there is one; up to `timeout`
        seconds.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                return cls(socket.create_connection((host, port), timeout=TIMEOUT_S))
            except OSError as error:
                if time.monotonic() > until:
                    raise ExchangeError(f"{host} port {port}: {error}") from None
                time.sleep(0.05)

    def send(self, *messages: dict[str, Any]) -> None:
        """Send these messages at once."""
        self._socket.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in messages))

    def receive(self) -> dict[str, Any]:
        """Receive one message; `ExchangeError` at the end, or if it is invalid."""
        data = self._reader.readline(LINE_MAX)
        if not data.endswith(b"\n"):
            raise ExchangeError("the peer closed the connection")
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise ExchangeError("the peer does not speak this exchange") from None
        if not isinstance(message, dict):
            raise ExchangeError("the peer does not speak this exchange")
        return message

    def receive_patiently(self) -> dict[str, Any]:
        """Receive one message, however long that takes; sending keeps its timeout."""
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        return self.receive()

    def authenticate(self, secret: bytes, role: str) -> None:
        """Prove and be proven that both know the secret: HMAC-SHA256 over role and both nonces."""
        mine = secrets.token_hex(NONCE_BYTES)
        self.send({"openmrc": VERSION, "nonce": mine})
        hello = self.receive()
        self.version, theirs = hello.get("openmrc"), str(hello.get("nonce"))
        if theirs == mine:  # our own message, reflected
            raise ExchangeError("the peer does not know the secret")
        other = CLIENT if role == SERVER else SERVER
        self.send({"proof": _proof(secret, role, theirs, mine)})
        proof = str(self.receive().get("proof"))
        if not hmac.compare_digest(_bytes(proof), _bytes(_proof(secret, other, mine, theirs))):
            raise ExchangeError("the peer does not know the secret")

    def fileno(self) -> int:
        """A descriptor that is readable when the peer has sent a message, if all earlier ones were
        read.
        """
        return self._socket.fileno()

    def wait_for_end(self) -> None:
        """Return when the peer closes."""
        self._socket.settimeout(None)
        while self._reader.readline(LINE_MAX):
            pass

    def close(self) -> None:
        """Close both directions."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._socket.close()


def _proof(secret: bytes, role: str, theirs: str, mine: str) -> str:
    return hmac.new(secret, _bytes(f"{role} {theirs} {mine}"), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """A text of the peer's as bytes: JSON may hold half a character."""
    return text.encode(errors="surrogatepass")
