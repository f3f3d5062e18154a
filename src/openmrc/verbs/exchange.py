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
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.live.closing import Closing
from openmrc.verbs import secret as secrets
from openmrc.verbs.attributes import QpAttributes, RemoteRegion
from openmrc.verbs.door import Door
from openmrc.verbs.line import (
    CLIENT,
    FOREVER,
    REFUSED,
    SERVER,
    TIMEOUT_S,
    VERSION,
    ExchangeError,
    Line,
    call,
    shown,
)
from openmrc.verbs.qp import QueuePair
from openmrc.verbs.region import MemoryRegion
from openmrc.verbs.status import QpState


class Peer(Closing):
    """The other end, once connected."""

    def __init__(
        self, qp: QueuePair, line: Line, regions: Sequence[RemoteRegion], extra: Any
    ) -> None:
        self.qp = qp
        self.regions = list(regions)
        self.extra = extra
        self.address = line.address  # of the host at the other end
        self._line = line
        self._closing = False
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """Wait until the connection closes: then move the QP to ERROR, because its peer is gone."""
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
    """Waits for peers on a TCP port (0: any free one; `port` says which). Callers prove the secret
    side by side, each within two seconds (`door`).
    """

    def __init__(self, port: int, secret: bytes, host: str = "") -> None:
        secrets.check(secret)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.create_server((host, port), family=family)
        self.port = int(server.getsockname()[1])
        self._door = Door(server, lambda _: secret)

    def accept(
        self,
        qp: QueuePair,
        regions: Sequence[MemoryRegion] = (),
        extra: Any = None,
        timeout: float = TIMEOUT_S,
    ) -> Peer:
        """Accept the next peer that knows the secret, and connect to it; others are refused.
        `ExchangeError` after `timeout` seconds, whatever a peer does.
        """
        until, before = time.monotonic() + timeout, self._door.turned_away
        line = self._door.next(until)
        if line is None:
            others = self._door.turned_away - before
            turned = f"; {others} that did not know the secret were turned away" if others else ""
            raise ExchangeError(f"nobody came within {timeout:g} s{turned}")
        line.until = until
        with _open_if_it_succeeds(line):
            return _handshake(line, qp, regions, extra, SERVER)

    def close(self) -> None:
        """Stop listening."""
        self._door.close()


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
    line = call(host, port, secret, time.monotonic() + timeout)
    with _open_if_it_succeeds(line):
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
        raise ExchangeError(f"the peer refuses: {shown(why)}")
    try:
        remote = QpAttributes(**told["qp"])
        there = [RemoteRegion(**region) for region in told["regions"]]
    except (KeyError, TypeError) as error:
        why = shown(error)
        raise ExchangeError(f"the peer's attributes are not understood: {why}") from None
    with _heard_by(line):
        for region in there:
            region.check()
        qp.connect(remote)
    line.send({"connected": True})
    if (why := line.receive().get(REFUSED)) is not None:
        raise ExchangeError(f"the peer refuses this end's attributes: {shown(why)}")
    for turn in (CLIENT, SERVER):
        (_measure if turn == role else _await_measured)(line, qp, turn)
    line.until = FOREVER
    return Peer(qp, line, there, told.get("extra"))


def _measure(line: Line, qp: QueuePair, turn: str) -> None:
    """It is this end's turn."""
    agreed = qp.device.pmtu
    qp.measure_rtt()
    with _heard_by(line):
        if qp.device.check_mtu:
            qp.check_path_mtu()
    line.send({"measured": True, "pmtu": qp.device.pmtu})
    if turn == SERVER and qp.device.pmtu < agreed:  # nothing is sent before the client knows
        _accepted(line.receive())


def _await_measured(line: Line, qp: QueuePair, turn: str) -> None:
    """It is the peer's turn; if its paths have less room, this end sends smaller packets, too."""
    told = _accepted(line.receive())
    with _heard_by(line):
        size = told.get("pmtu", qp.device.pmtu)
        if size not in (qp.device.pmtu, qp.attributes.pmtu):
            raise ExchangeError(f"peer's pmtu {shown(size)}: {qp.attributes.pmtu} is accepted")
        if size < qp.device.pmtu:
            qp.lower_pmtu(size)
            if turn == SERVER:
                line.send({"lowered": True})


def _accepted(told: dict[str, Any]) -> dict[str, Any]:
    if (why := told.get(REFUSED)) is not None:
        raise ExchangeError(f"as seen by the peer: {shown(why)}")
    return told


def _same_version(line: Line) -> None:
    if line.version != VERSION:
        why = (
            f"the peer speaks version {line.version} of the wire, this end version {VERSION}:"
            " install the same openmrc at both ends"
        )
        with contextlib.suppress(ExchangeError):
            # Version 1 ignores a refusal here, but names the attribute that it does not know.
            line.send({REFUSED: why, "qp": {why: None}})
        raise ExchangeError(why)


@contextlib.contextmanager
def _heard_by(line: Line) -> Iterator[None]:
    """Send errors of this end to the peer, too."""
    try:
        yield
    except OpenMrcError as error:
        with contextlib.suppress(ExchangeError):
            line.send({REFUSED: str(error)})
        raise
