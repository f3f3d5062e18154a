"""Peers of plain UDP: each has a number that is this device's own, and an address on each plane.

In a fabric the number of a NIC says where it is. Between hosts of any network only the engine uses
the numbers: this device is 0, peers are 1, 2, ... in the order in which they are met.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.errors import InputError, OpenMrcError
from openmrc.live.endpoint.planes import name_of
from openmrc.live.endpoint.state import SOURCE_BASE, SOURCES_MAX

SELF = 0


@dataclass(frozen=True)
class Reach:
    """The address at which one plane of a device is reached, and the ports from which it sends."""

    address: str
    port: int
    sources: tuple[int, ...]

    @classmethod
    def of(cls, told: Any) -> Reach:
        """Parse what a peer sent; `InputError` that names the field if it is invalid."""
        if isinstance(told, Reach):
            return told
        if not isinstance(told, dict) or told.keys() != {"address", "port", "sources"}:
            raise InputError("peer's plane: an address, a port and sources are accepted")
        address, port, sources = told["address"], told["port"], told["sources"]
        try:
            ipaddress.ip_address(address if type(address) is str else "")
        except ValueError:
            raise InputError(f"peer's address {address!r:.80}: an IP address is accepted") from None
        if type(port) is not int or not 1 <= port <= 65_535:
            raise InputError(f"peer's port {port!r:.80}: 1 to 65535 is accepted")
        if (
            not isinstance(sources, list | tuple)
            or not 1 <= len(sources) <= SOURCES_MAX
            or not all(type(one) is int and SOURCE_BASE <= one <= 65_535 for one in sources)
        ):
            raise InputError(
                f"peer's sources: 1 to {SOURCES_MAX} ports of {SOURCE_BASE} to 65535 are accepted"
            )
        return cls(address, port, tuple(sources))


class Peers:
    """The records of an endpoint in which the loop finds its peers. On the loop's thread."""

    def __init__(self, ep: Any, own: Sequence[Reach]) -> None:
        self._ep, self._own = ep, tuple(own)
        room = len(ep.reach) // max(len(own), 1)
        self._known: list[tuple[Reach, ...] | None] = [self._own, *[None] * (room - 1)]

    def number(self, planes: Sequence[Reach], in_use: set[int]) -> int:
        """The number of the device that is reached at these planes, a new one if it was never met;
        numbers not `in_use` may be reused.
        """
        there = tuple(planes)
        if there in self._known:
            return self._known.index(there)
        free = [
            number
            for number in range(1, len(self._known))
            if self._known[number] is None or number not in in_use
        ]
        if not free:
            raise OpenMrcError(f"no room for another peer: the device has {len(self._known) - 1}")
        number = min(free, key=lambda one: (self._known[one] is not None, one))
        self._write(number, there)
        self._known[number] = there
        return number

    def _write(self, number: int, there: Sequence[Reach]) -> None:
        for plane, one in enumerate(there):
            name = name_of(one.address, one.port)
            at = number * len(there) + plane
            self._ep.reach[at] = np.frombuffer(name, np.uint8)
            row = self._ep.peer_source[at]
            row[:] = 0
            row[: len(one.sources)] = one.sources

    def check(self, there: Sequence[Reach]) -> None:
        """Raise `InputError` unless the planes of a peer can be reached from this device's."""
        if len(there) != len(self._own):
            raise InputError(
                f"peer's planes: {len(there)}, this device has {len(self._own)}; name as many"
                " planes at both ends, in the same order"
            )
        for plane, (mine, other) in enumerate(zip(self._own, there, strict=True)):
            versions = [ipaddress.ip_address(one.address).version for one in (mine, other)]
            if versions[0] != versions[1]:
                raise InputError(
                    f"plane {plane}: {mine.address} here, {other.address} there: name addresses of"
                    " one version of IP"
                )
        if tuple(there) == self._own:
            raise InputError("the peer is this device itself")
