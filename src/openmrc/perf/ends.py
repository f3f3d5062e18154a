"""The two ends of a measurement: devices, queue pairs and memory, ready to write."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.perf.channel import Channel
from openmrc.perf.plan import DEPTH_MAX, LAT, QPS_MAX, Plan
from openmrc.printable import printable
from openmrc.say import say
from openmrc.verbs import Device, QpAttributes, QpState, RemoteRegion, exchange
from openmrc.verbs.line import ExchangeError

PORT = 18_515  # perftest's
FOREVER_S = 1e6  # a server waits for its client
RECEIVES = 16  # posted in advance for pings
WORD_S, SERVER_S = 1.0, 30.0  # of waiting for a server: in silence, and in all
# Limits of a device: room for every plan, because a server receives its plan later.
LIMITS: dict[str, Any] = {"qps": QPS_MAX + 1, "send_depth": DEPTH_MAX, "cqs": 2, "cq_depth": 16_384}


class End:
    """One end, connected. QP `i` writes from part `i` of `source` to part `i` of `remote`."""

    def __init__(self, device: Device, plan: Plan, channel: Channel) -> None:
        self.device, self.plan, self.channel = device, plan, channel
        depth = plan.qps * (plan.tx_depth + RECEIVES)
        self.cq = device.create_cq(depth=max(depth, 64))
        self.qps = [
            device.create_qp(self.cq, max_send_wr=plan.tx_depth, max_recv_wr=RECEIVES)
            for _ in range(plan.qps)
        ]
        self.number = {qp.qp_num: i for i, qp in enumerate(self.qps)}
        size = plan.buffer_bytes
        self.sink = device.reg_mr(np.zeros(size, np.uint8))
        self.source = device.reg_mr(np.full(size, 0xA5, np.uint8))
        self.remote = RemoteRegion(0, 0, 0)
        self.peers: list[QpAttributes] = []

    def about(self) -> dict[str, Any]:
        """Return what the peer must know."""
        return {
            "qps": [qp.attributes.as_dict() for qp in self.qps],
            "sink": asdict(self.sink.remote),
        }

    def connect(self, told: dict[str, Any]) -> None:
        """Bring every queue pair to RTS; receives are posted before any packet can arrive."""
        self.peers = [QpAttributes(**one) for one in told["qps"]]
        self.remote = RemoteRegion(**told["sink"])
        for qp, peer in zip(self.qps, self.peers, strict=True):
            qp.modify(QpState.INIT)
            if self.plan.test == LAT:
                for number in range(RECEIVES):
                    qp.post_recv(number)
            qp.modify(QpState.RTR, peer)
            qp.modify(QpState.RTS)

    def at(self, i: int) -> int:
        """The offset of the part of QP `i`."""
        return i * max(self.plan.sizes)


@contextmanager
def client(device: Device, plan: Plan, host: str, port: int, secret: bytes) -> Iterator[End]:
    """The end that decides what is measured."""
    channel = Channel(device)
    with _met(channel, plan, host, port, secret) as peer:
        channel.start(peer.regions[0], f"the server at {host}", server=False)
        end = End(device, plan, channel)
        channel.send(end.about())
        end.connect(channel.receive())
        yield end


def _met(channel: Channel, plan: Plan, host: str, port: int, secret: bytes) -> exchange.Peer:
    """The server, connected; after `WORD_S` the user is told what takes so long."""
    where = printable(f"{host} port {port}")
    word = f"Waiting for a server at {where}, up to {SERVER_S:g} s."
    waiting = threading.Timer(WORD_S, say, [word])
    waiting.daemon = True
    waiting.start()
    regions, about = [channel.region], plan.as_dict()
    try:
        return exchange.connect(channel.qp, host, port, secret, regions, about, SERVER_S)
    except ExchangeError as error:
        why = str(error).removeprefix(f"{where}: ")
        raise ExchangeError(
            f"{where}: {why}; a server serves one client: start mrc perf {plan.test} there, with"
            f" --port {port} and the same secret"
        ) from None
    finally:
        waiting.cancel()


def _listener(port: int, secret: bytes) -> exchange.Listener:
    try:
        return exchange.Listener(port, secret)
    except OSError as error:
        remedy = "name another port at both ends"
        if error.errno == errno.EADDRINUSE:
            remedy = f"end what listens there (ss -tlnp sport = {port}), or {remedy}"
        why = os.strerror(error.errno or errno.EIO)  # Python adds the address to its own
        raise InputError(f"--port {port}: {why}; {remedy}") from None


@contextmanager
def server(
    device: Device, port: int, secret: bytes, listening: Callable[[int], None]
) -> Iterator[End]:
    """The end that waits for a client and follows its plan; `listening(port)` is called once it can
    connect.
    """
    channel = Channel(device)
    with _listener(port, secret) as listener:
        listening(listener.port)
        peer = listener.accept(channel.qp, [channel.region], timeout=FOREVER_S)
    with peer:
        plan = Plan.of(peer.extra)
        channel.start(peer.regions[0], f"the client at {peer.address}", server=True)
        end = End(device, plan, channel)
        end.connect(channel.receive())
        channel.send(end.about())
        yield end
        channel.until_gone()  # the client leaves first: its last message is acknowledged by then
