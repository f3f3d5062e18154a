"""Which addresses are planes of one host, as their packets show.

A sender deals the PSNs of a queue pair to the planes, each once. So two rows of one QP number are
one queue pair if the PSNs of each lie in the gaps of the other. Were they of two hosts, PSNs would
be at both by chance: of `m` that are expected there, none is with a probability of e^-m.
A queue pair has one peer, so the addresses from which it gets data are one host, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from openmrc.wire.seen import Seen

SURE = 10.0  # e^-10, among the rows of a capture
LEAST = 64  # packets of data before it is looked at for the first time, then at each doubling


def is_due(packets: int) -> bool:
    """Whether a row with so many packets of data is looked at: seldom, since all its like are."""
    return packets >= LEAST and packets & packets - 1 == 0


def are_dealt(a: Seen, b: Seen, ahead: int, again: int) -> bool:
    """Whether one sender dealt these PSNs to two addresses, those of `b` `ahead` higher. `again`
    were sent again, perhaps to the other one.
    """
    first, end = max(a.lowest, b.lowest + ahead), min(a.end, b.end + ahead)
    if first >= end:
        return False
    of_b = b.within(first - ahead, end - ahead)
    expected = a.within(first, end) * of_b / (end - first)
    both = a.common(b, ahead)
    # the chance of so few if `expected` are (Chernoff)
    return both <= again and both < expected and (expected - both) ** 2 > 2 * SURE * expected


class Hosts:
    """Addresses by host: `name` is the lowest address of those that are known to be one."""

    def __init__(self) -> None:
        self._name: dict[str, str] = {}
        self._all: dict[str, list[str]] = {}

    def name(self, address: str) -> str:
        """Return the name of the host that has this address."""
        return self._name.get(address, address)

    def join(self, addresses: Iterable[str]) -> bool:
        """Say that these are of one host; whether that is new."""
        names = {self.name(address) for address in addresses}
        if len(names) < 2:
            return False
        every = sorted({one for name in names for one in self._all.pop(name, [name])}, key=_number)
        self._all[every[0]] = every
        self._name |= dict.fromkeys(every, every[0])
        return True

    def all(self) -> list[list[str]]:
        """Return the addresses of each host that has several."""
        return [self._all[name] for name in sorted(self._all, key=_number)]


def _number(address: str) -> tuple[int, int]:
    ip = ip_address(address)
    return ip.version, int(ip)
