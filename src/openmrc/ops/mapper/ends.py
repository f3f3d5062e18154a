"""Probes of hosts on an ordinary network: plain UDP from each to each other, on every plane.

No switch turns a probe round there, so every probe goes one way and the peer's agent counts it.
That separates the directions, and finds faults of a host's link: what a NIC loses on a plane to all
peers is its own sending direction, what all peers lose towards it the other. To the schedule, the
agents and the controller such a network is a fabric with one T0 per plane, which has all hosts.

    [network]
    rate = "25Gbps"                       # of the slowest link; probes stay below a share of it
    hosts = [
        ["10.0.0.1", "10.1.0.1"],         # host 0: its address on each plane, IPv4 or IPv6
        ["10.0.0.2", "10.1.0.2"],
    ]

Each plane has an interface and an address of its own, so each probe tells the kernel both
(PKTINFO), whatever its routes prefer. All probes leave from one port: if a network hashes flows
over paths they take one path from host to host.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.live.endpoint.planes import find
from openmrc.live.syscalls import Batch, new_batch
from openmrc.ops.mapper import probe
from openmrc.ops.schedule import (
    ONE_WAY,
    PAYLOAD_BYTES,
    PROBE_BYTES,
    Duties,
    Schedule,
    Shares,
    check,
)
from openmrc.reading import read_text, toml
from openmrc.units import PS_BITS, parse_rate

HOSTS_MAX = 1024
CLASS = 46 << 2  # of control packets, as in a fabric
RECEIVE_BYTES = 1 << 20
# What the kernel keeps for a host whose link address it does not know (unres_qlen_bytes) is on the
# socket's account. Without room for all of it a plane whose cable was cut, or a host that is off,
# would keep the probes of every other plane from leaving.
UNRESOLVED_BYTES, SEND_BYTES_MAX = 212_992, 1 << 28
SO_SNDBUFFORCE = 32
IP_PKTINFO, IPV6_PKTINFO = 8, 50
Address = IPv4Address | IPv6Address


@dataclass(frozen=True, eq=False)
class EndSchedule(Schedule):
    """A schedule of one-way probes alone: in each slot every host sends to one other host on every
    plane. Partners change from slot to slot and from period to period.
    """

    def burst(self, port: int, n: int, turn: int = 0) -> IntArray:
        """Return [n, hops] directed ports of `n` probes that all cross `port`, a host's."""
        return self._nic_burst(port, np.arange(n) + turn * n)

    @cached_property
    def crossed(self) -> tuple[LongArray, LongArray, LongArray]:
        """How many probes of one period cross each directed port, each switch, and each NIC."""
        fabric = self.fabric
        own = np.arange(fabric.n_nics * fabric.n_planes)
        by_port = np.zeros(fabric.n_ports, np.int64)
        by_port[own] = by_port[fabric.port_reverse[own]] = self.per_port
        by_switch = np.where(fabric.sw_tier == 0, fabric.n_nics * self.per_port, 0)
        by_nic = np.full(fabric.n_nics, 2 * self.per_port * fabric.n_planes)
        return by_port, by_switch.astype(np.int64), by_nic

    def _duties(self, turn: int, numbers: LongArray) -> Duties:
        fabric = self.fabric
        slot, port = numbers % self.per_port, numbers // self.per_port
        nic, plane = port // fabric.n_planes, port % fabric.n_planes
        none = np.zeros(len(numbers), np.int64)
        step = 1 + (turn * self.per_port + slot) % (fabric.n_nics - 1)
        kind = np.full(len(numbers), ONE_WAY, np.int32)
        return Duties(nic, plane, none, kind, (nic + step) % fabric.n_nics, none, none, none)


@dataclass(frozen=True)
class Network:
    """The hosts of an ordinary network, by their addresses on each plane."""

    hosts: tuple[tuple[Address, ...], ...]
    rate_bps: int

    @property
    def fabric_table(self) -> dict[str, Any]:
        """The [fabric] table of the fabric that represents it."""
        n = len(self.hosts)
        planes, rate = len(self.hosts[0]), f"{self.rate_bps}bps"
        return {"nics": n, "planes": planes, "t0_down": n, "t0_up": 1, "port_rate": rate}

    def schedule(self, fabric: Fabric, k: int, period_ps: int, load_max: float) -> EndSchedule:
        """Return the schedule: each direction of a host's link is probed `k` times a period, which
        grows as for `schedule.make`.
        """
        check(k, period_ps, load_max)
        least_ps = int(-(-k * PROBE_BYTES * PS_BITS // (load_max * self.rate_bps)))
        return EndSchedule(fabric, k, Shares(0, 0), k, max(period_ps, least_ps))

    def own(self, addresses: Sequence[Address]) -> int:
        """Return which host this is, by its addresses."""
        here = set(addresses)
        for number, planes in enumerate(self.hosts):
            if set(planes) <= here:
                return number
        raise InputError(
            "no host in it has only addresses of this one; `ip address` prints this one's"
        )


def is_one(path: Path) -> bool:
    """Whether a file describes a network, not a scenario."""
    try:
        return "network" in _table(path)
    except InputError:
        return False


def read(path: Path) -> Network:
    """Return the network of a file; `InputError` if it is missing or wrong."""
    table = _table(path)
    if set(table) != {"network"} or not isinstance(table["network"], dict):
        raise InputError(f"{path}: [network] is accepted, with rate and hosts")
    section = table["network"]
    if set(section) != {"rate", "hosts"}:
        raise InputError(f"{path}: network: the keys are rate and hosts")
    try:
        rate_bps = parse_rate(section["rate"])
    except (InputError, TypeError, AttributeError):
        raise InputError(f'{path}: network.rate: a rate such as "25Gbps" is accepted') from None
    try:
        hosts = tuple(tuple(map(ipaddress.ip_address, one)) for one in section["hosts"])
    except (ValueError, TypeError):
        raise InputError(f"{path}: network.hosts: a list of addresses a host is accepted") from None
    every = [address for one in hosts for address in one]
    if not 2 <= len(hosts) <= HOSTS_MAX or len({len(one) for one in hosts}) != 1 or not hosts[0]:
        raise InputError(
            f"{path}: network.hosts: 2 to {HOSTS_MAX} hosts are accepted, with as many planes each"
        )
    if len(set(every)) < len(every) or len({one.version for one in every}) != 1:
        raise InputError(f"{path}: network.hosts: all addresses differ, and are of one version")
    return Network(hosts, rate_bps)


def _table(path: Path) -> dict[str, Any]:
    try:
        return toml(read_text(path, "a scenario, or a file of a network"))
    except ValueError as error:
        raise InputError(f"{path}: no TOML: {error}") from None


class Datagrams:
    """The wire of a host on such a network: one socket, with which the kernel reaches any host."""

    def __init__(self, network: Network, fabric: Fabric, nic: int) -> None:
        self._fabric = fabric
        planes = find([str(address) for address in network.hosts[nic]])
        self.interfaces: Sequence[str] = [plane.interface for plane in planes]
        self.at = 0
        ipv4 = planes[0].ipv4
        self._names = np.stack(
            [np.stack([_name(address) for address in one]) for one in network.hosts]
        )
        self._origins = np.stack(
            [_origin(plane.address, socket.if_nametoindex(plane.interface)) for plane in planes]
        )
        self.socket = socket.socket(socket.AF_INET if ipv4 else socket.AF_INET6, socket.SOCK_DGRAM)
        level, option = (
            (socket.IPPROTO_IP, socket.IP_TOS)
            if ipv4
            else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
        )
        self.socket.setsockopt(level, option, CLASS)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        room = min(self._names.shape[0] * self._names.shape[1] * UNRESOLVED_BYTES, SEND_BYTES_MAX)
        for buffer in (socket.SO_SNDBUF, SO_SNDBUFFORCE):  # what root may have, where it is
            with contextlib.suppress(PermissionError):
                self.socket.setsockopt(socket.SOL_SOCKET, buffer, room)
        try:
            self.socket.bind(("", probe.PORT))
        except OSError as error:
            self.socket.close()
            raise InputError(f"mapper: UDP port {probe.PORT}: {error.strerror}") from None

    def batch(self, planes: Sequence[int], routes: IntArray, payloads: probe.ByteArray) -> Batch:
        """Return datagrams to the hosts at whose links these routes end."""
        which, to = np.asarray(planes, np.int64), self._fabric.port_peer_nic[routes[:, 1]]
        widths = self._names.shape[2], self._origins.shape[1]
        batch = new_batch(len(which), PAYLOAD_BYTES, *widths)
        batch.data[:], batch.control[:] = payloads, self._origins[which]
        batch.name[:] = self._names[to, which]
        return batch


def _name(address: Address) -> np.ndarray:
    """A socket address: sockaddr_in or sockaddr_in6."""
    if address.version == 4:
        name = struct.pack("=H", socket.AF_INET) + struct.pack("!H", probe.PORT)
        name += address.packed + bytes(8)
    else:
        name = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", probe.PORT, 0)
        name += address.packed + bytes(4)
    return np.frombuffer(name, np.uint8)


def _origin(address: Address, index: int) -> np.ndarray:
    """The control message (PKTINFO) with the interface and address from which a probe leaves."""
    if address.version == 4:
        level, kind = socket.IPPROTO_IP, IP_PKTINFO
        body = struct.pack("=i", index) + address.packed + bytes(4)
    else:
        level, kind = socket.IPPROTO_IPV6, IPV6_PKTINFO
        body = address.packed + struct.pack("=i", index)
    message = struct.pack("=Qii", 16 + len(body), level, kind) + body
    return np.frombuffer(message + bytes(-len(message) % 8), np.uint8)
