"""Network interfaces, as the kernel reports them: whether they are up and when that changes, their
MTU, rate and addresses.

Most of these questions wait until nobody configures a network on this machine (the kernel has one
lock for that, its `rtnl`), often for as long as it takes to bring a link down: milliseconds, or a
second on a busy machine. So a loop that carries packets does not ask: a `Lookout` does, on a thread
of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address

GROUP_LINK = 1  # RTMGRP_LINK
GET_FLAGS, GET_MTU = 0x8913, 0x8921  # SIOCGIFFLAGS, SIOCGIFMTU
ETHTOOL, GET_LINK = 0x8946, 0xA  # SIOCETHTOOL, ETHTOOL_GLINK
GET_SETTINGS, SETTINGS_BYTES, SPEED_AT, SPEED_HIGH_AT = 0x1, 44, 12, 28  # ETHTOOL_GSET
SPEED_UNKNOWN = 0xFFFF
UP, RUNNING = 0x1, 0x40
GET_ADDRESSES, NEW_ADDRESS, DUMP, DONE = 22, 20, 0x301, 3  # RTM_*, NLM_F_*, NLMSG_DONE
ADDRESS, LOCAL = 1, 2  # IFA_*
HEADER, OF_ADDRESS, ATTRIBUTE = (
    struct.Struct("=IHHII"),
    struct.Struct("=BBBBI"),
    struct.Struct("=HH"),
)
NAME_BYTES = 16
ROOM = 65_536
CLOSE_S = 1.0  # for a lookout's thread that waits for the kernel

States = list[tuple[int, bool]]  # of ports: whether each is up


class Watch:
    """Watches for changes of links; `fd` is readable when there are some. Without interfaces
    (`None`) there are none.
    """

    def __init__(self, interfaces: Sequence[str | None]) -> None:
        self._interfaces = list(interfaces)
        self._query = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._netlink: socket.socket | None = None
        self.fd = -1  # poll ignores it
        if any(interfaces):
            self._netlink = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._netlink.bind((0, GROUP_LINK))
            self.fd = self._netlink.fileno()

    def changed(self) -> bool:
        """Consume the notifications; True if there was one. `states` has the current state."""
        heard = False
        if self._netlink is not None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    try:
                        self._netlink.recv(ROOM)
                    except OSError as error:
                        if isinstance(error, BlockingIOError):
                            raise
                    heard = True
        return heard

    def states(self) -> Iterator[tuple[int, bool]]:
        """Yield each port with an interface, and whether it is up and has a carrier."""
        for port, name in enumerate(self._interfaces):
            if name is not None:
                yield port, self._is_up(name)

    def _is_up(self, name: str) -> bool:
        """Up, and with a carrier: the driver knows at once, the flag RUNNING a second later."""
        try:
            flags = _ask(self._query, GET_FLAGS, name)
        except OSError:  # the interface is gone
            return False
        if not flags & UP:
            return False
        value = ctypes.create_string_buffer(struct.pack("=II", GET_LINK, 0))
        try:
            fcntl.ioctl(
                self._query, ETHTOOL, struct.pack("16sP", name.encode(), ctypes.addressof(value))
            )
        except OSError:  # a driver that does not report it
            return bool(flags & RUNNING)
        return bool(struct.unpack_from("=II", value.raw)[1])

    def close(self) -> None:
        """Close the sockets."""
        self._query.close()
        if self._netlink is not None:
            self._netlink.close()


class Lookout:
    """A thread that reports the states of all ports with an interface after each change of a link,
    and when asked.
    """

    def __init__(self, interfaces: Sequence[str | None], tell: Callable[[States], None]) -> None:
        self._watch = Watch(interfaces)
        self._tell = tell
        self._asked = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, if there are interfaces."""
        if self._watch.fd >= 0:
            self._thread = threading.Thread(target=self._run, name="mrc links", daemon=True)
            self._thread.start()

    def ask(self) -> None:
        """Have the states reported soon; from any thread, and without waiting."""
        os.eventfd_write(self._asked, 1)

    def _run(self) -> None:
        try:
            while True:
                select.select([self._watch.fd, self._asked], [], [])
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._asked)
                if self._closing:
                    return
                self._watch.changed()
                self._tell(list(self._watch.states()))
        finally:
            self._close()

    def _close(self) -> None:
        self._watch.close()
        os.close(self._asked)

    def close(self) -> None:
        """Stop reporting; the thread releases the sockets, at once unless it waits for the
        kernel.
        """
        if self._thread is None:
            self._close()
        elif self._thread.is_alive():
            self._closing = True
            self.ask()
            self._thread.join(CLOSE_S)


def mtu(name: str) -> int:
    """Return the MTU of an interface; `OSError` if there is none of this name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        return _ask(query, GET_MTU, name)


def rate_bps(name: str) -> int | None:
    """Return the rate of an interface, bit/s; None if its driver does not report it."""
    room = ctypes.create_string_buffer(struct.pack("=I", GET_SETTINGS), SETTINGS_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        try:
            fcntl.ioctl(
                query, ETHTOOL, struct.pack("16sP", os.fsencode(name), ctypes.addressof(room))
            )
        except OSError:
            return None
    (low,) = struct.unpack_from("=H", room.raw, SPEED_AT)
    (high,) = struct.unpack_from("=H", room.raw, SPEED_HIGH_AT)
    if low in (0, SPEED_UNKNOWN) and high in (0, SPEED_UNKNOWN):
        return None
    return int(high << 16 | low) * 10**6


def addresses() -> list[tuple[str, IPv4Address | IPv6Address]]:
    """Return all (interface, address) of this network namespace, in the kernel's order."""
    found: list[tuple[str, IPv4Address | IPv6Address]] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        body = OF_ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        length = HEADER.size + len(body)
        route.send(HEADER.pack(length, GET_ADDRESSES, DUMP, 1, 0) + body)
        while True:
            data = route.recv(ROOM)
            while data:
                length, kind, *_ = HEADER.unpack_from(data)
                if kind != NEW_ADDRESS:  # the end, or a refusal
                    return found
                family, _, _, _, index = OF_ADDRESS.unpack_from(data, HEADER.size)
                said = _attributes(data[HEADER.size + OF_ADDRESS.size : length])
                own = said.get(LOCAL) or said.get(ADDRESS)
                if own and family in (socket.AF_INET, socket.AF_INET6):
                    found.append((socket.if_indextoname(index), ipaddress.ip_address(own)))
                data = data[length + 3 & ~3 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        if length < ATTRIBUTE.size:
            break
        found[kind] = data[ATTRIBUTE.size : length]
        data = data[length + 3 & ~3 :]
    return found


def _ask(query: socket.socket, what: int, name: str) -> int:
    if len(os.fsencode(name)) >= NAME_BYTES:
        raise OSError(f"{name}: no interface has so long a name")
    answer = fcntl.ioctl(query, what, struct.pack("16s16x", os.fsencode(name)))
    kind = "<h" if what == GET_FLAGS else "<i"
    return int(struct.unpack_from(kind, answer, NAME_BYTES)[0])
