"""An agent on a host: the sockets and the clock around `agent.Agent`.

One socket serves all planes: with packet sockets (mode "native") one that is bound to no interface,
with a kernel filter that passes only probes; in mode "udp" an ordinary one, and the first uSID of a
carrier chooses the interface. Frames of the schedule are built once, for each of its turns; a
period writes its number into them, and a batch is one system call.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import socket
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError, OpenMrcError
from openmrc.fabric.model import Fabric, IntArray
from openmrc.fabric.usid import UsidPlan
from openmrc.jit.bound import Bound
from openmrc.live.closing import Closing
from openmrc.live.endpoint.links import Watch
from openmrc.live.syscalls import Batch, new_batch
from openmrc.ops.mapper import loop, probe
from openmrc.ops.mapper.agent import Agent, Send
from openmrc.ops.mapper.link import Link
from openmrc.ops.mapper.probe import BURST, CHECK, SCHEDULED
from openmrc.ops.schedule import HOPS_MAX, LOCAL_LOOP, PAYLOAD_BYTES, Carriers

RECEIVE_BYTES = 1 << 20
ETHERTYPE_IPV6, SOL_PACKET, PACKET_IGNORE_OUTGOING, PACKET_QDISC_BYPASS = 0x86DD, 263, 23, 20
SO_ATTACH_FILTER, NO_CHECK6_TX, NO_CHECK6_RX = 26, 101, 102
UDP_CARRIER_AT = 8  # in a sockaddr_in6
_libc = ctypes.CDLL(None, use_errno=True)

# The filter passes IPv6 (12), next header UDP (20), to the probes' port (56). Classic BPF: load,
# jump.
_FILTER = (
    (0x28, 0, 0, 12),
    (0x15, 0, 5, ETHERTYPE_IPV6),
    (0x30, 0, 0, 20),
    (0x15, 0, 3, 17),
    (0x28, 0, 0, 56),
    (0x15, 0, 1, probe.PORT),
    (0x06, 0, 0, 0x40000),
    (0x06, 0, 0, 0),
)


class Wire(Protocol):
    """How an agent's probes reach the network: a socket for all planes, and what it sends."""

    interfaces: Sequence[str]  # by plane
    socket: socket.socket
    at: int  # where a probe's payload begins in what the socket sends

    def batch(self, planes: Sequence[int], routes: IntArray, payloads: probe.ByteArray) -> Batch:
        """Return what to send, for the plane, the directed ports, [n, hops], and the payload of
        each probe.
        """


class SegmentRouting:
    """The wire of a host file: carriers lead probes through switches, and back."""

    def __init__(self, fabric: Fabric, host: dict[str, Any]) -> None:
        ports = host["ports"]
        self.interfaces: Sequence[str] = [str(port["interface"]) for port in ports]
        self._carriers = Carriers(UsidPlan(fabric))
        self._native = host["mode"] == "native"
        if self._native:
            gateways = [bytes.fromhex(port["gateway_mac"].replace(":", "")) for port in ports]
            self._heads = probe.heads(int(host["nic"]), gateways)
        self.socket = _packet_socket() if self._native else _udp_socket()
        self.at = probe.PAYLOAD_AT if self._native else 0
        self._names = _ways_out(self.interfaces) if self._native else _to_carriers(len(ports))

    def batch(self, planes: Sequence[int], routes: IntArray, payloads: probe.ByteArray) -> Batch:
        """Return frames, or datagrams, with their carriers."""
        carriers = self._carriers.of(routes)
        batch = new_batch(len(carriers), self.at + PAYLOAD_BYTES, self._names.shape[1])
        batch.name[:] = self._names[np.asarray(planes, np.int64)]
        if self._native:
            batch.data[:] = probe.frames(self._heads, planes, carriers, payloads)
        else:
            batch.data[:] = payloads
            batch.name[:, UDP_CARRIER_AT : UDP_CARRIER_AT + probe.CARRIER_BYTES] = carriers
        return batch


class Ports(Closing):
    """The sockets of one host: sends probes and receives those that arrive."""

    def __init__(self, agent: Agent, wire: Wire, started_ns: int) -> None:
        """`started_ns` of the monotonic clock is the agent's time 0; the wire's socket is closed
        with this.
        """
        self._agent, self._wire = agent, wire
        self._watch = Watch(wire.interfaces)
        orders = agent.orders
        period = self._batch(
            SCHEDULED,
            [plane for one in orders for plane in one.planes],
            [route for one in orders for route in one.routes],
            0,
            [place for one in orders for place in range(len(one.routes))],
        )
        fd = wire.socket.fileno()
        self._wires = loop.new_wires(period, self._check(), fd, wire.at, started_ns)
        self._put = Bound(loop.put, (self._wires,), 2)
        self._go = Bound(loop.go, (agent.tally, self._wires), 1)

    def heed(self, link: Link | None) -> None:
        """End waits also when the controller sends a message, or a port of this host changes."""
        self._wires.poll.fd = self._watch.fd, loop.NOBODY if link is None else link.fileno()

    def changed(self) -> bool:
        """Consume the kernel's notifications about ports; True if there were any."""
        return self._watch.changed()

    def probe_until(self, until_ps: int) -> int:
        """Run all rounds until this time, or until a probe is lost, a message arrives, or a burst's
        probe does; return how many probes of bursts the tally holds, or `loop.ASKED`.
        """
        return self._go.call(until_ps)

    def send(self, bursts: Sequence[Send]) -> None:
        """Send these bursts together."""
        n_planes = self._agent.schedule.fabric.n_planes
        routes = np.concatenate([one.routes for one in bursts if one.routes is not None])
        batch = self._batch(
            BURST,
            (routes[:, 0] % n_planes).tolist(),
            routes,
            np.repeat([one.period for one in bursts], [len(one.numbers) for one in bursts]),
            [row for one in bursts for row in one.numbers],
        )
        self._put.call(batch.message.ctypes.data, len(batch.message))

    def down(self) -> list[int]:
        """Return the planes whose port is down here."""
        return [plane for plane, is_up in self._watch.states() if not is_up]

    def close(self) -> None:
        """Close the sockets."""
        self._wire.socket.close()
        self._watch.close()

    def _batch(
        self,
        kind: int,
        planes: Sequence[int],
        routes: npt.ArrayLike,
        period: npt.ArrayLike,
        numbers: Sequence[int],
    ) -> Batch:
        payloads = probe.payloads(kind, self._agent.nic, planes, period, numbers)
        found = np.asarray(routes, np.int32).reshape(-1, HOPS_MAX)
        return self._wire.batch(planes, found, payloads)

    def _check(self) -> Batch:
        """The probes of a check: a local loop on each plane, where there are any."""
        schedule, order = self._agent.schedule, self._agent.orders[0]
        kinds = schedule.kinds(0, order.numbers).tolist()
        places = [place for place, kind in enumerate(kinds) if kind == LOCAL_LOOP]
        places = places[: schedule.fabric.n_planes]
        planes = [order.planes[place] for place in places]
        routes = [order.routes[place] for place in places]
        return self._batch(CHECK, planes, routes, 0, [0] * len(places))


def _packet_socket() -> socket.socket:
    try:
        one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError:
        raise OpenMrcError(
            "mapper: packet sockets need CAP_NET_RAW: run in `mrc lab`, or as root;"
            " `mrc doctor` says more"
        ) from None
    rules = b"".join(struct.pack("HBBI", *rule) for rule in _FILTER)
    room = ctypes.create_string_buffer(rules)
    one.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER,
        struct.pack("HxxxxxxP", len(_FILTER), ctypes.addressof(room)),
    )  # fmt: skip
    one.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    with contextlib.suppress(OSError):
        one.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, RECEIVE_BYTES)
    # To all interfaces: protocol, interface 0. Python's bind takes names of interfaces only.
    address = struct.pack("=H", socket.AF_PACKET) + struct.pack("!H", ETHERTYPE_IPV6) + bytes(16)
    if _libc.bind(one.fileno(), address, len(address)) != 0:
        number = ctypes.get_errno()
        one.close()
        raise InputError(f"mapper: the packet socket cannot be bound ({errno.errorcode[number]})")
    return one


def _udp_socket() -> socket.socket:
    one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    one.setsockopt(socket.IPPROTO_UDP, NO_CHECK6_TX, 1)
    one.setsockopt(socket.IPPROTO_UDP, NO_CHECK6_RX, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    with contextlib.suppress(OSError):
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 46 << 2)
    one.bind(("::", probe.PORT))
    return one


def _to_carriers(n: int) -> npt.NDArray[np.uint8]:
    """[n, 28] socket addresses (sockaddr_in6) to be filled with carriers."""
    name = struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", probe.PORT, 0) + bytes(20)
    return np.tile(np.frombuffer(name, np.uint8), (n, 1))


def _ways_out(interfaces: Sequence[str]) -> npt.NDArray[np.uint8]:
    """[interfaces, 20] the socket addresses (sockaddr_ll) for sending on each interface."""
    found = []
    for interface in interfaces:
        try:
            index = socket.if_nametoindex(interface)
        except OSError as error:
            raise InputError(f"interface {interface}: {error.strerror}") from None
        name = struct.pack("=H", socket.AF_PACKET) + struct.pack("!H", ETHERTYPE_IPV6)
        found.append(np.frombuffer(name + struct.pack("=i", index) + bytes(12), np.uint8))
    return np.stack(found)
