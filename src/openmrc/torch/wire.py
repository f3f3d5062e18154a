"""The one place where devices are opened for a job: which wire a process speaks on, and to whom.

With a host file (`$OPENMRC_HOST`, as `mrc lab` writes) there is one device for all peers. Without
one all ranks must be on one host, and every two are joined by cables of their own: connected UDP
sockets on loopback, one a plane.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Protocol

from openmrc.engine.setup import pow2_at_least
from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.live.endpoint.host import Limits, Port
from openmrc.torch.pair import RECEIVES
from openmrc.units import S
from openmrc.verbs import hostfile
from openmrc.verbs.cq import CompletionQueue
from openmrc.verbs.device import Device

PLANES, PLANES_MAX = 2, 8
PLANES_VARIABLE = "OPENMRC_PLANES"
BUFFER_BYTES = 4 << 20
RATE_BPS = 10 * 10**9  # more than loopback and a few cores carry: nothing paces
# A thread that is woken on a busy machine comes after milliseconds, and nothing is lost here.
LOOPBACK_RTT_PS = S // 200
# Retries go on for ever: how long a peer may be silent is this package's own time.
PATIENT: dict[str, Any] = {"linear_cnt": 255, "exp_cnt": 25}


class Store(Protocol):
    """What is used of torch's store."""

    def set(self, key: str, value: str) -> None:
        """Write."""

    def get(self, key: str) -> bytes:
        """Read, once it is there."""


class Wire(Protocol):
    """Devices of this process."""

    words: str  # mode, planes and PMTU, for people

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The device that reaches a peer, and the queue of what comes of it."""

    def close(self) -> None:
        """Close all."""


def open_wire(store: Store, rank: int, size: int) -> Wire:
    """Open what the environment says."""
    if os.environ.get(hostfile.VARIABLE):
        return Fabric(size)
    return Cables(store, rank, size)


class Fabric:
    """The device of the host file."""

    def __init__(self, size: int) -> None:
        qps = pow2_at_least(2 * size)
        self._device = Device.open(
            qps=qps, cqs=2, cq_depth=pow2_at_least(3 * RECEIVES * size), regions=4096, **PATIENT
        )
        self._cq = self._device.create_cq()
        mode = hostfile.read()["mode"]
        planes = self._device.n_planes
        self.words = f'mode "{mode}", {planes} planes, PMTU {self._device.pmtu} B'

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The same for all."""
        return self._device, self._cq

    def close(self) -> None:
        """Close it."""
        self._device.close()


class Cables:
    """A device for every peer on this host."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._planes = _planes()
        self._sockets: dict[int, list[socket.socket]] = {}
        self._devices: dict[int, tuple[Device, CompletionQueue]] = {}
        peers = [peer for peer in range(size) if peer != rank]
        for peer in peers:
            self._sockets[peer] = [_loopback() for _ in range(self._planes)]
        store.set(f"cables/{rank}", json.dumps(self._told()))
        for peer in peers:
            told = json.loads(store.get(f"cables/{peer}"))
            if told["host"] != _host():
                self.close()
                raise InputError(
                    f"rank {peer} is on another host: without {hostfile.VARIABLE} all ranks must be"
                    " on one"
                )
            ports = []
            for one, port in zip(self._sockets[peer], told["ports"][str(rank)], strict=True):
                one.connect(("127.0.0.1", port))
                ports.append(Port(one.fileno(), bytes(6)))
            self._devices[peer] = self._open(ports, int(rank > peer))
        self.words = f"loopback, {self._planes} planes"

    def _told(self) -> dict[str, Any]:
        ports = {
            peer: [one.getsockname()[1] for one in ends] for peer, ends in self._sockets.items()
        }
        return {"host": _host(), "ports": ports}

    def _open(self, ports: list[Port], nic: int) -> tuple[Device, CompletionQueue]:
        fabric = multiplane(2, self._planes, RATE_BPS, 1, 2, 0, 0)
        limits = Limits(
            qps=2, cqs=1, cq_depth=3 * RECEIVES, regions=1024, trimming=False, **PATIENT
        )
        device = Device(fabric, nic, ports, limits, LOOPBACK_RTT_PS)
        return device, device.create_cq()

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The one at the cable to a peer."""
        return self._devices[peer]

    def close(self) -> None:
        """Close all."""
        for device, _ in self._devices.values():
            device.close()
        for ends in self._sockets.values():
            for one in ends:
                one.close()


def _planes() -> int:
    given = os.environ.get(PLANES_VARIABLE, str(PLANES))
    if not given.isdigit() or not 1 <= int(given) <= PLANES_MAX:
        raise InputError(f"{PLANES_VARIABLE} = {given!r}: 1 to {PLANES_MAX} are accepted")
    return int(given)


def _host() -> str:
    """This machine's name, and which of its networks this process is in."""
    return f"{socket.gethostname()} {os.stat('/proc/self/ns/net').st_ino}"


def _loopback() -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        one.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    one.bind(("127.0.0.1", 0))
    return one
