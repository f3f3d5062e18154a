"""Live endpoints in virtual time: their own loop, in plain Python, over sockets and a clock of this
process.

All that an endpoint asks the kernel for is in `live.syscalls`, so that a `Kernel` in its place is
enough. Nothing is late, and a run repeats exactly.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import socket
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from importlib import import_module
from ipaddress import ip_address
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from openmrc.conform import tester
from openmrc.jit import interpreted
from openmrc.live import syscalls
from openmrc.live.endpoint import host, ip, loop, planes, udp
from openmrc.live.endpoint.planes import Plane, Sockets
from openmrc.live.endpoint.state import SOURCE_BASE
from openmrc.units import MS
from openmrc.verbs import Device

RTT_PS = 40 * MS
RATE_BPS = 400 * 10**9  # so that planes take turns though a port takes its data in bursts
PORT, MTU = 4791, 1500
CHECKS = import_module("openmrc.wire.icrc")
CMSG = struct.Struct("=QiiI4x")  # length, level, kind, a number, padded
CALLS = ("send", "receive", "time_ps", "wait", "epoll_ready")  # of `live.syscalls`
AGAIN = -errno.EAGAIN


class Datagram(NamedTuple):
    """What follows the UDP header, and the addresses before it."""

    data: bytes
    src: tuple[str, int]
    dst: tuple[str, int]
    traffic_class: int


class Socket:
    """A socket of the endpoint: a descriptor, and what waits at it."""

    def __init__(self, address: str, port: int) -> None:
        self.name = address, port
        self.fd = os.eventfd(0)
        self.waiting: deque[Datagram] = deque()

    def fileno(self) -> int:
        """Its descriptor."""
        return self.fd

    def detach(self) -> int:
        """Its descriptor, for a new owner."""
        return self.fd


class Dice(random.Random):
    """In place of `secrets`, so that a run repeats."""

    token_bytes, randbelow = random.Random.randbytes, random.Random.randrange


class Kernel:
    """Sockets and a clock in place of `live.syscalls`."""

    def __init__(self) -> None:
        self.now_ps = 0
        self.sent: list[Datagram] = []
        self._sockets: dict[int, Socket] = {}
        self._dice = Dice(1)

    def opened(self, found: Sequence[Plane], sources: int, _: int | None = None) -> Any:
        """In place of `planes.opened`."""
        made = []
        for plane in found:
            hears = self._new(str(plane.address), PORT)
            ports = range(SOURCE_BASE, SOURCE_BASE + sources)
            sends = [(port, self._new(str(plane.address), port)) for port in ports]
            made.append(Sockets(plane, PORT, hears, sends))  # type: ignore[arg-type]
        return contextlib.nullcontext(made)

    def _new(self, address: str, port: int) -> Socket:
        one = Socket(address, port)
        self._sockets[one.fd] = one
        return one

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """In the block the endpoint meets this kernel, on the thread that runs it."""
        assert interpreted(), "set NUMBA_DISABLE_JIT=1: compiled code calls the C library"
        swapped = [
            *((syscalls, name, getattr(self, name)) for name in CALLS),
            (host, "secrets", self._dice),
            (host, "random", self._dice),
            (tester, "LOOK_S", 0.0),
            (CHECKS, "_most", _checked_fast),
        ]
        with contextlib.ExitStack() as stack:
            for where, name, by in swapped:
                stack.enter_context(patch.object(where, name, by))
            yield

    def arrives(self, one: Datagram) -> None:
        """A datagram waits at the endpoint's socket with this name, if there is one."""
        for each in self._sockets.values():
            if each.name == one.dst:
                each.waiting.append(one)

    @property
    def waits(self) -> bool:
        """Whether anything waits to be read."""
        return any(one.waiting for one in self._sockets.values())

    # --- of `live.syscalls`

    def send(self, fd: int, batch: syscalls.Batch, first: int, n: int) -> int:
        """Datagrams leave; one of several parts is cut into packets."""
        for m in batch.message[first : first + n]:
            parts = np.frombuffer(
                ctypes.string_at(int(m.iov), int(m.iov_length) * syscalls.IOVEC.itemsize),
                syscalls.IOVEC,
            )
            name = ctypes.string_at(int(m.name), int(m.name_length))
            dst = socket.inet_ntoa(name[4:8]), int.from_bytes(name[2:4], "big")
            told = ctypes.string_at(int(m.control), int(m.control_length))
            _, level, kind, traffic = CMSG.unpack_from(told)
            assert (level, kind) == (ip.LEVEL_IP, ip.IP_TOS)
            for part in parts:
                data = ctypes.string_at(int(part["address"]), int(part["length"]))
                self.sent.append(Datagram(data, self._sockets[int(fd)].name, dst, traffic))
        return n

    def receive(self, fd: int, batch: syscalls.Batch, n: int) -> int:
        """Up to `n` datagrams that wait."""
        waiting = self._sockets[int(fd)].waiting
        taken = [waiting.popleft() for _ in range(min(n, len(waiting)))]
        for i, one in enumerate(taken):
            m, data = batch.message[i], np.frombuffer(one.data, np.uint8)
            batch.data[i, udp.AT : udp.AT + len(data)] = data
            address, port = one.src
            name = struct.pack("=H", socket.AF_INET) + port.to_bytes(2, "big")
            name += socket.inet_aton(address)
            batch.name[i, : len(name)] = np.frombuffer(name, np.uint8)
            told = CMSG.pack(20, ip.LEVEL_IP, ip.IP_TOS, one.traffic_class)
            batch.control[i, : len(told)] = np.frombuffer(told, np.uint8)
            m.length, m.name_length, m.control_length = len(data), len(name), len(told)
        return len(taken) or AGAIN

    def epoll_ready(self, _: int, ready: Any) -> int:
        """The sockets at which something waits."""
        found = [fd for fd, one in self._sockets.items() if one.waiting]
        ready.which[: len(found)] = found
        return len(found)

    def time_ps(self, *_: Any) -> int:
        """The time."""
        return self.now_ps

    def wait(self, *_: Any) -> int:
        """Nobody sleeps: a signal ends the wait."""
        return -errno.EINTR


def _checked_fast(crc: int, data: Any, at: int, end: int) -> tuple[int, int]:
    """Most of an iCRC, by C code: half of the time goes to it otherwise."""
    ones = 0xFFFF_FFFF
    return zlib.crc32(data[at:end].tobytes(), int(crc) ^ ones) ^ ones, end


class End:
    """An open device on planes with these addresses; no thread runs it."""

    def __init__(self, addresses: Sequence[str], limits: dict[str, Any]) -> None:
        self.kernel = Kernel()
        found = [Plane("", ip_address(one), MTU, None) for one in addresses]
        here = threading.current_thread()
        with (
            patch.object(planes, "find", lambda _: found),
            patch.object(planes, "opened", self.kernel.opened),
            patch.object(host.Host, "start", lambda one: setattr(one, "_thread", here)),
            self.kernel.running(),
        ):
            self.device = Device.on_network(
                addresses, base_rtt_ps=RTT_PS, rate_bps=RATE_BPS, **limits
            )
        self.host = self.device._host

    @property
    def due_ps(self) -> int:
        """When its loop must run again."""
        return int(self.host.ep.ctl[0].due)

    def runs(self) -> None:
        """Its loop goes round until nothing is left to do now."""
        ctl = self.host.ep.ctl[0]
        while True:
            ctl.attention = 1
            self.host._go(loop.TURN)
            self.host._leave.call()
            if not self.kernel.waits and ctl.posted == ctl.taken and ctl.due > self.kernel.now_ps:
                return

    def close(self) -> None:
        """Release what it holds."""
        self.host._release()
        self.host._lookout.close()
        for fd in (*self.device._cq_fds, *self.device._owned_fds):
            os.close(fd)
