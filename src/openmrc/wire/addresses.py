"""The address plan: which addresses the ports of NICs have, and the MACs of NICs and switches.

Every NIC has one port, and so one address, on each plane (MRC 3.1):

    IPv6         fd6d:7263:<plane>::<nic + 1>           "mrc" in a unique local prefix (RFC 4193)
    IPv4         10.<plane>.<nic + 1 in two bytes>      without SRv6; 65,534 NICs at most
    MAC          02:<plane>:<nic + 1 in four bytes>     locally administered
    switch MAC   02:ff:<switch in four bytes>           one for all of its ports

So each plane has its own prefix, the three addresses of a port end alike, and none of them lies in
the block of a carrier (`fabric.usid.BLOCK`). The prefix is readable instead of random as RFC 4193
demands: two fabrics with this plan must not be joined.

The compiled functions write and read bytes in network order and return -1 if there is no such port;
the plain ones raise `InputError`.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.clos import PLANES_BUILT_MAX
from openmrc.jit import compiled, inlined

IPV6_PREFIX = (0xFD, 0x6D, 0x72, 0x63, 0x00)  # the plane is the sixth byte
IPV4_PREFIX = 0x0A
MAC_PREFIX = 0x02  # unicast, locally administered (IEEE 802 8.4)
MAC_OF_SWITCH = 0xFF  # in place of a NIC's plane
IPV6_BYTES, IPV4_BYTES, MAC_BYTES = 16, 4, 6

NICS_MAX = 2**31 - 1  # an endpoint's number is an int32
IPV4_NICS_MAX = 2**16 - 2  # all but the network's own address and its broadcast
NIC_BITS = 32  # of the results of the `read_` functions; the plane is above them


class Port(NamedTuple):
    """A NIC's port: the NIC, and the plane that the port leads to."""

    nic: int
    plane: int


@compiled
def write_ipv6(data, at, nic, plane):
    """Write the IPv6 address of a port to data[at:at+16]; return its length, or -1."""
    if not _fits(data, at, IPV6_BYTES, nic, plane, NICS_MAX):
        return -1
    for i in range(IPV6_BYTES):
        data[at + i] = 0
    for i in range(len(IPV6_PREFIX)):
        data[at + i] = IPV6_PREFIX[i]
    data[at + len(IPV6_PREFIX)] = plane
    _write_number(data, at + IPV6_BYTES - 4, 4, nic + 1)
    return IPV6_BYTES


@compiled
def write_ipv4(data, at, nic, plane):
    """Write the IPv4 address of a port to data[at:at+4]; return its length, or -1."""
    return _write_port(data, at, IPV4_BYTES, IPV4_PREFIX, nic, plane, IPV4_NICS_MAX)


@compiled
def write_nic_mac(data, at, nic, plane):
    """Write the MAC of a NIC's port to data[at:at+6]; return its length, or -1."""
    return _write_port(data, at, MAC_BYTES, MAC_PREFIX, nic, plane, NICS_MAX)


@compiled
def write_switch_mac(data, at, switch):
    """Write the MAC of a switch to data[at:at+6]; return its length, or -1."""
    if not _fits(data, at, MAC_BYTES, switch, 0, NICS_MAX):
        return -1
    data[at] = MAC_PREFIX
    data[at + 1] = MAC_OF_SWITCH
    _write_number(data, at + 2, 4, switch)
    return MAC_BYTES


@compiled
def read_ipv6(data, at):
    """Port with the IPv6 address data[at:at+16], as plane << 32 | nic, or -1."""
    if at < 0 or at + IPV6_BYTES > len(data):
        return -1
    for i in range(len(IPV6_PREFIX)):
        if data[at + i] != IPV6_PREFIX[i]:
            return -1
    for i in range(at + len(IPV6_PREFIX) + 1, at + IPV6_BYTES - 4):
        if data[i] != 0:
            return -1
    number = _read_number(data, at + IPV6_BYTES - 4, 4)
    return _port(number, int(data[at + len(IPV6_PREFIX)]), NICS_MAX)


@compiled
def read_ipv4(data, at):
    """Port with the IPv4 address data[at:at+4], as plane << 32 | nic, or -1."""
    return _read_port(data, at, IPV4_BYTES, IPV4_PREFIX, IPV4_NICS_MAX)


@compiled
def read_nic_mac(data, at):
    """Port with the MAC data[at:at+6], as plane << 32 | nic, or -1."""
    return _read_port(data, at, MAC_BYTES, MAC_PREFIX, NICS_MAX)


def ipv6(nic: int, plane: int) -> IPv6Address:
    """Return the IPv6 address of a port."""
    return IPv6Address(_of_port(write_ipv6, IPV6_BYTES, nic, plane, NICS_MAX))


def ipv4(nic: int, plane: int) -> IPv4Address:
    """Return the IPv4 address of a port."""
    return IPv4Address(_of_port(write_ipv4, IPV4_BYTES, nic, plane, IPV4_NICS_MAX))


def nic_mac(nic: int, plane: int) -> str:
    """Return the MAC of a NIC's port, "02:03:00:00:00:08" for NIC 7 on plane 3."""
    return _of_port(write_nic_mac, MAC_BYTES, nic, plane, NICS_MAX).hex(":")


def switch_mac(switch: int) -> str:
    """Return the MAC of a switch."""
    data = np.zeros(MAC_BYTES, np.uint8)
    if write_switch_mac(data, 0, _numbers(switch, 0)[0]) < 0:
        raise InputError(f"switch {switch} has no MAC; 0 to {NICS_MAX - 1} have")
    return data.tobytes().hex(":")


def whose(address: bytes) -> Port | None:
    """Return the port with this IPv6 address, IPv4 address or MAC: 16, 4 or 6 bytes."""
    readers = {IPV6_BYTES: read_ipv6, IPV4_BYTES: read_ipv4, MAC_BYTES: read_nic_mac}
    reader = readers.get(len(address))
    port = -1 if reader is None else reader(np.frombuffer(bytearray(address), np.uint8), 0)
    return None if port < 0 else Port(port & (1 << NIC_BITS) - 1, port >> NIC_BITS)


@inlined
def _fits(data, at, n_bytes, number, plane, most):
    room = 0 <= at <= len(data) - n_bytes
    return room and 0 <= number < most and 0 <= plane < PLANES_BUILT_MAX


@inlined
def _write_port(data, at, n_bytes, prefix, nic, plane, nics_max):
    """An IPv4 address or a MAC: the prefix, the plane, the NIC's number in all other bytes."""
    if not _fits(data, at, n_bytes, nic, plane, nics_max):
        return -1
    data[at] = prefix
    data[at + 1] = plane
    _write_number(data, at + 2, n_bytes - 2, nic + 1)
    return n_bytes


@inlined
def _read_port(data, at, n_bytes, prefix, nics_max):
    """The port of what `_write_port` wrote, or -1."""
    if at < 0 or at + n_bytes > len(data) or data[at] != prefix:
        return -1
    return _port(_read_number(data, at + 2, n_bytes - 2), int(data[at + 1]), nics_max)


@inlined
def _write_number(data, at, n_bytes, number):
    for i in range(n_bytes):
        data[at + i] = (number >> (8 * (n_bytes - 1 - i))) & 0xFF


@inlined
def _read_number(data, at, n_bytes):
    number = 0
    for i in range(n_bytes):
        number = number * 256 + int(data[at + i])
    return number


@inlined
def _port(number, plane, nics_max):
    if number < 1 or number > nics_max or plane >= PLANES_BUILT_MAX:
        return -1
    return (plane * (1 << NIC_BITS)) | (number - 1)


def _numbers(*numbers: int) -> list[int]:
    """Return the numbers clamped to what compiled code can take; invalid ones stay invalid."""
    return [min(max(number, -1), NICS_MAX) for number in numbers]


def _of_port(write: Callable[..., int], n_bytes: int, nic: int, plane: int, nics_max: int) -> bytes:
    """Return the `n_bytes` bytes that `write` writes for a port."""
    data = np.zeros(n_bytes, np.uint8)
    if write(data, 0, *_numbers(nic, plane)) < 0:
        raise InputError(
            f"nic {nic} plane {plane} has no address; nics 0 to {nics_max - 1} and planes 0 to"
            f" {PLANES_BUILT_MAX - 1} have"
        )
    return data.tobytes()
