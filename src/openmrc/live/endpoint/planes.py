"""The planes of plain UDP (`ip.py`): which interface and address each is, and its sockets.

One socket of a plane receives, on a port that all planes of a device share, 4791 or the next free
one: the port that a firewall must let in. The others, one for each EV, only send: from ports of
RoCEv2's own range, 49152 to 65535, drawn at random. The kernel drops whatever arrives at those. No
socket needs a privilege.

Each EV needs a socket because the source port is the one field that every switch hashes, and no
control message of Linux sets it. A raw socket could, as root.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import random
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from openmrc.errors import InputError
from openmrc.live.endpoint import ip, links, udp
from openmrc.live.endpoint.state import NAME_BYTES, SOURCE_BASE, SOURCE_PORTS
from openmrc.wire.layout import UDP_PORT

Address = IPv4Address | IPv6Address
PORTS_TRIED = 64  # enough for as many processes of a host with one each
SOURCES_TRIED = 256
RATE_BPS = 10 * 10**9  # if a driver does not report it
IP_RECEIVE_TOS, IP_MTU_DISCOVER = 13, 10  # of SOL_IP
ATTACH_FILTER = 26  # of SOL_SOCKET
_DROP = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # classic BPF: return 0
_DROP_PROGRAM = struct.pack("HxxxxxxP", 1, ctypes.addressof(_DROP))  # struct sock_fprog


@dataclass(frozen=True)
class Plane:
    """An address of this host, and the interface that has it."""

    interface: str
    address: Address
    mtu: int
    rate_bps: int | None

    @property
    def ipv4(self) -> bool:
        """Whether its packets are IPv4."""
        return self.address.version == 4


@dataclass(frozen=True)
class Sockets:
    """The sockets of an open plane; the owner closes them."""

    plane: Plane
    port: int  # on which it receives
    hears: socket.socket
    sends: list[tuple[int, socket.socket]]  # (source port, socket)


def ordinary() -> list[str]:
    """Return the default interfaces of planes: those of hardware that have an address, in the order
    of their names; if there are none, all but loopback.
    """
    usable = sorted(
        {name for name, address in links.addresses() if name != "lo" and not address.is_link_local}
    )
    return [name for name in usable if os.path.exists(f"/sys/class/net/{name}/device")] or usable


def find(names: Sequence[str]) -> list[Plane]:
    """Return the planes that interfaces or addresses name, in this order."""
    if not names:
        raise InputError("planes: name an interface or an address for each, as eth0,eth1")
    known = links.addresses()
    planes = [_find(name, known) for name in names]
    for number, plane in enumerate(planes):
        if plane.address in [other.address for other in planes[:number]]:
            raise InputError(f"planes: {plane.address} is named twice; a plane is an address")
    return planes


def _find(name: str, known: Sequence[tuple[str, Address]]) -> Plane:
    try:
        address: Address | None = ipaddress.ip_address(name)
    except ValueError:
        address = None
    if address is None:
        interface = name
        address = _of_interface(name, known)
    else:
        interface = _that_has(address, known)
    return Plane(interface, address, links.mtu(interface), links.rate_bps(interface))


def _of_interface(name: str, known: Sequence[tuple[str, Address]]) -> Address:
    """The first IPv4 address of an interface, else the first IPv6 address that is not
    link-local.
    """
    own = [address for interface, address in known if interface == name]
    usable = [address for address in own if address.version == 4 or not address.is_link_local]
    if not usable:
        there = sorted({interface for interface, _ in known})
        raise InputError(
            f"plane {name}: no interface with an address; those with one are {', '.join(there)}"
            f" (ip address add ADDRESS dev {name})"
        )
    return min(usable, key=lambda address: address.version)


def _that_has(address: Address, known: Sequence[tuple[str, Address]]) -> str:
    for interface, own in known:
        if own == address:
            return interface
    if address.is_loopback and address.version == 4:
        return "lo"  # the whole of 127.0.0.0/8
    raise InputError(f"plane {address}: no interface of this host has it (ip address)")


@contextlib.contextmanager
def opened(
    planes: Sequence[Plane], sources: int, port: int | None = None
) -> Iterator[list[Sockets]]:
    """Open the sockets of planes, `sources` to send from on each. They are closed if the block
    fails.

    `port` None: UDP 4791, or the next one that is free on all planes.
    """
    kept: list[Sockets] = []
    try:
        at, hearing = _hearing(planes, port)
        for plane, hears in zip(planes, hearing, strict=True):
            kept.append(Sockets(plane, at, hears, []))
        taken: set[int] = set()  # answers name a path by its source port alone (MRC 2.6)
        for one in kept:
            for _ in range(sources):
                one.sends.append(_sending(one.plane, taken))
                taken.add(one.sends[-1][0])
        yield kept
    except BaseException as error:
        for one in kept:
            for each in (one.hears, *(own for _, own in one.sends)):
                each.close()
        if isinstance(error, OSError):
            raise _refusal(error) from None
        raise


def _refusal(error: OSError) -> InputError:
    if error.errno == errno.EMFILE:
        return InputError("planes: too many open files; raise the limit (ulimit -n 4096)")
    if error.errno in (errno.EPERM, errno.EACCES):
        return InputError(
            f"planes: a socket is refused ({error.strerror}): ports below 1024 need a privilege,"
            " and so do all before Linux 5.7; name another port, or run as root"
        )
    return InputError(f"planes: a socket is refused: {error.strerror}")


def _hearing(planes: Sequence[Plane], port: int | None) -> tuple[int, list[socket.socket]]:
    """One port on all planes, and a receiving socket on each."""
    ports = range(UDP_PORT, UDP_PORT + PORTS_TRIED) if port is None else [port]
    for at in ports:
        made: list[socket.socket] = []
        try:
            for plane in planes:
                made.append(bound(plane, at))
                _listen(made[-1], plane)
        except OSError as error:
            for one in made:
                one.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise
        return at, made
    raise InputError(
        f"UDP port {ports[0]} of {planes[0].address} is in use"
        + (f", and so are those up to {ports[-1]}" if len(ports) > 1 else "")
        + "; end what holds it, or name another port"
    )


def _listen(one: socket.socket, plane: Plane) -> None:
    level, option = (
        (ip.LEVEL_IP, IP_RECEIVE_TOS) if plane.ipv4 else (udp.LEVEL_IPV6, udp.RECEIVE_TRAFFIC_CLASS)
    )
    one.setsockopt(level, option, 1)
    with contextlib.suppress(OSError):  # kernels before 5.0
        one.setsockopt(ip.LEVEL_UDP, ip.UDP_GRO, 1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, udp.BUFFER_BYTES)


def _sending(plane: Plane, taken: Collection[int]) -> tuple[int, socket.socket]:
    """A free source port of RoCEv2's range that is not `taken`, and its socket, which receives
    nothing.
    """
    for _ in range(SOURCES_TRIED):
        port = SOURCE_BASE + random.randrange(SOURCE_PORTS)
        if port in taken:
            continue
        try:
            one = bound(plane, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise
        one.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, _DROP_PROGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, udp.BUFFER_BYTES)
        return port, one
    raise InputError(f"{plane.address}: no UDP port of {SOURCE_BASE} to 65535 is free to send from")


def bound(plane: Plane, port: int) -> socket.socket:
    """A UDP socket bound to a port (0: any) of a plane's address and to its interface, which does
    not fragment, and never waits.
    """
    family = socket.AF_INET if plane.ipv4 else socket.AF_INET6
    one = socket.socket(family, socket.SOCK_DGRAM)
    try:
        one.setblocking(False)
        one.setsockopt(
            socket.SOL_SOCKET, socket.SO_BINDTODEVICE, os.fsencode(plane.interface) + b"\0"
        )
        if plane.ipv4:
            one.setsockopt(ip.LEVEL_IP, IP_MTU_DISCOVER, udp.PROBE)
        else:
            one.setsockopt(udp.LEVEL_IPV6, socket.IPV6_V6ONLY, 1)
            one.setsockopt(udp.LEVEL_IPV6, udp.MTU_DISCOVER, udp.PROBE)
        one.bind((str(plane.address), port))
    except OSError:
        one.close()
        raise
    return one


def name_of(address: str, port: int) -> bytes:
    """The socket address of a peer's port, as the kernel takes it."""
    there = ipaddress.ip_address(address)
    family = socket.AF_INET if there.version == 4 else socket.AF_INET6
    begin = struct.pack("=H", family) + port.to_bytes(2, "big")
    middle = b"" if there.version == 4 else bytes(4)  # for IPv6, the flow label
    return (begin + middle + there.packed).ljust(NAME_BYTES, b"\0")
