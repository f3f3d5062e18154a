"""The one place where devices are opened for a job: by which wire a process reaches its peers.

With a host file (`$OPENMRC_HOST`, as `mrc lab` writes), and between hosts of an ordinary network,
one device reaches all peers: there by plain UDP on interfaces of this host, each a plane. If all
ranks are on one host, and do not share memory, every two are joined by cables of their own:
connected UDP sockets on loopback, one per plane.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from openmrc.engine.setup import pow2_at_least
from openmrc.errors import InputError
from openmrc.fabric.clos import multiplane
from openmrc.live.endpoint.limits import Limits, Port
from openmrc.live.endpoint.planes import Plane, find, ordinary
from openmrc.say import counted
from openmrc.torch.pair import RECEIVES
from openmrc.torch.shared import Store
from openmrc.units import S
from openmrc.verbs import hostfile
from openmrc.verbs.cq import CompletionQueue
from openmrc.verbs.device import Device

PLANES, PLANES_MAX = 2, 8
PLANES_VARIABLE = "OPENMRC_PLANES"
INTERFACES_VARIABLE = "OPENMRC_INTERFACES"
BUFFER_BYTES = 4 << 20
RATE_BPS = 10 * 10**9  # more than loopback and a few cores carry: no pacing
# A woken thread on a busy machine runs after milliseconds, and nothing is lost here.
LOOPBACK_RTT_PS = S // 200
# Retries never end: this package has its own timeout for silent peers.
PATIENT: dict[str, Any] = {"linear_cnt": 255, "exp_cnt": 25}


class Wire(Protocol):
    """The devices of this process."""

    @property
    def words(self) -> str:
        """Mode, planes and PMTU, for people."""

    measures: bool  # whether to measure the round trip, and to test the paths' MTU
    n_planes: int
    planes: list[Plane]  # those of plain UDP
    addresses: list[str]  # of this host's interfaces, that of the first plane first

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The device that reaches a peer, and its completion queue."""

    def close(self) -> None:
        """Close all devices; in a forked child, what it has inherited."""


def open_wire(store: Store, rank: int, peers: Sequence[int]) -> Wire:
    """Open what reaches these peers: as the environment says, or else as their hosts require, which
    the store has.
    """
    size = len(peers) + 1
    if os.environ.get(hostfile.VARIABLE):
        device = Device.open(**_limits(size))
        return OneDevice(device, f'mode "{device.mode}", {counted(device.n_planes, "plane")}', [])
    named = os.environ.get(INTERFACES_VARIABLE)
    hosts = {store.get(f"host/{peer}") for peer in (rank, *peers)}
    if len(hosts) == 1 and not named:
        return Cables(store, rank, peers)
    names = [one.strip() for one in named.split(",")] if named else ordinary()
    device = Device.on_network(names, **_limits(size))
    try:
        store.set(f"planes/{rank}", str(device.n_planes))
        for peer in peers:
            if (theirs := int(store.get(f"planes/{peer}"))) != device.n_planes:
                raise InputError(
                    f"rank {peer} has {counted(theirs, 'plane')}, rank {rank} has {device.n_planes}"
                    f" ({', '.join(names)}): name the same number, in the same order,"
                    f" in {INTERFACES_VARIABLE}"
                )
    except BaseException:
        device.close()
        raise
    return OneDevice(device, f'mode "ip", planes {", ".join(device.planes)}', find(names))


def _limits(size: int) -> dict[str, Any]:
    """Limits of a device that reaches all peers."""
    depth = pow2_at_least(3 * RECEIVES * size)
    return {"qps": pow2_at_least(2 * size), "cqs": 2, "cq_depth": depth, "regions": 4096, **PATIENT}


class OneDevice:
    """The device that reaches all peers."""

    measures = True

    def __init__(self, device: Device, words: str, planes: list[Plane]) -> None:
        self._device = device
        self.n_planes, self.planes = device.n_planes, planes
        self._cq = device.create_cq()
        self._words = words
        self.addresses = [str(plane.address) for plane in planes or find(ordinary())]

    @property
    def words(self) -> str:
        """Mode, planes and PMTU; that may become smaller."""
        return f"{self._words}, PMTU {self._device.pmtu} B"

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The same device for all peers."""
        return self._device, self._cq

    def close(self) -> None:
        """Close it."""
        self._device.close()


class Cables:
    """A device for every peer on this host."""

    measures = False  # LOOPBACK_RTT_PS

    def __init__(self, store: Store, rank: int, peers: Sequence[int]) -> None:
        self.n_planes = _planes()
        self.words = f"loopback, {counted(self.n_planes, 'plane')}"
        self.planes: list[Plane] = []
        self.addresses: list[str] = []
        self._sockets: dict[int, list[socket.socket]] = {}
        self._devices: dict[int, tuple[Device, CompletionQueue]] = {}
        try:
            self._join(store, rank, peers)
        except BaseException:
            self.close()
            raise

    def _join(self, store: Store, rank: int, peers: Sequence[int]) -> None:
        for peer in peers:
            self._sockets[peer] = [_loopback() for _ in range(self.n_planes)]
        store.set(f"cables/{rank}", json.dumps(self._told()))
        for peer in peers:
            theirs = json.loads(store.get(f"cables/{peer}"))[str(rank)]
            ports = []
            for one, port in zip(self._sockets[peer], theirs, strict=True):
                one.connect(("127.0.0.1", port))
                ports.append(Port(one.fileno(), bytes(6)))
            self._devices[peer] = self._open(ports, int(rank > peer))

    def _told(self) -> dict[int, list[int]]:
        return {
            peer: [one.getsockname()[1] for one in ends] for peer, ends in self._sockets.items()
        }

    def _open(self, ports: list[Port], nic: int) -> tuple[Device, CompletionQueue]:
        fabric = multiplane(2, self.n_planes, RATE_BPS, 1, 2, 0, 0)
        limits = Limits(
            qps=2, cqs=1, cq_depth=3 * RECEIVES, regions=1024, trimming=False, **PATIENT
        )
        device = Device(fabric, nic, ports, limits, LOOPBACK_RTT_PS)
        return device, device.create_cq()

    def at(self, peer: int) -> tuple[Device, CompletionQueue]:
        """The device at the cable to a peer."""
        return self._devices[peer]

    def close(self) -> None:
        """Close all devices."""
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


def _loopback() -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setblocking(False)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        one.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    one.bind(("127.0.0.1", 0))
    return one
