"""What can break: the components of a fabric, as one table, made once.

A component is a set of directed links with a common fate: one of them, a cable, half of a
transceiver or all of it, a NIC, a switch, its links to a tier, a tier of a plane, a plane. Its
`nats` are its prior: by how many nats what is seen must speak for it. A packet counts once for a
component, so some of its links, `gates`, are those that every packet across it crosses once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric import places
from openmrc.fabric.kinds import LINKS_DEFAULT
from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.fabric.outline import Outline

# One of 10^9 places is named by chance, which is itself known to within a factor of some 10^4, and
# of a dozen rates the best is taken. Larger components fail more rarely, by a factor of two or
# three each, so that of two that explain as much the smaller is said.
DIRECTION, CABLE, HALF, TRANSCEIVER, NIC, SWITCH, LINKS, TIER, PLANE = range(9)
KINDS = ("link", "link", "link", "transceiver", "nic", "switch", "link", "switch", "plane")
NATS = (40.5, 41.0, 43.0, 42.0, 42.5, 42.5, 44.5, 45.5, 46.0)


class Component(NamedTuple):
    """One row of the table."""

    kind: int
    where: str  # as faults name it; several are separated by commas
    ports: tuple[int, ...]
    gates: tuple[int, ...]
    others: tuple[str, ...] = ()  # places that it stands for as well, where switches hash


@dataclass(frozen=True, eq=False)
class Table:
    """The components of a fabric."""

    fabric: Fabric
    rows: list[Component]
    nats: npt.NDArray[np.float64]  # [components]
    is_total: npt.NDArray[np.bool_]  # [components] what dies and does not wear out: tiers, planes
    of_port: IntArray  # [ports + 1, most]: the components of a port, -1 after the last; the last
    # row is that of port -1

    def __len__(self) -> int:
        return len(self.rows)

    def around(self, component: int) -> set[int]:
        """Return the components that contain all links of one, itself among them."""
        owners = [self.of_port[port] for port in self.rows[component].ports]
        return set.intersection(*(set(it[it >= 0].tolist()) for it in owners))

    def shared(self, one: int, other: int) -> bool:
        """Whether two components have a link in common."""
        return one != other and not set(self.rows[one].ports).isdisjoint(self.rows[other].ports)


def table(fabric: Fabric, around: Outline | None = None, whole: Fabric | None = None) -> Table:
    """Return the components of a fabric; where switches hash, those of its outline, with the names
    of all places that each stands for.
    """
    found = _all(fabric) if around is None or whole is None else _outlined(fabric, around, whole)
    rows = list(_unlike(found))
    owners: list[list[int]] = [[] for _ in range(fabric.n_ports + 1)]
    for i, row in enumerate(rows):
        for port in row.ports:
            owners[port].append(i)
    most = max(map(len, owners))
    of_port = np.full((fabric.n_ports + 1, most), -1, np.int32)
    for port, mine in enumerate(owners):
        of_port[port, : len(mine)] = mine
    kinds = np.array([row.kind for row in rows])
    return Table(fabric, rows, np.array(NATS)[kinds], (kinds == TIER) | (kinds == PLANE), of_port)


def planes(fabric: Fabric, row: Component) -> tuple[int, ...]:
    """Return the planes of the switches of a component."""
    own = fabric.port_switch[list(row.ports)]
    return _tuple(fabric.sw_plane[own[own >= 0]])


def ways_back(fabric: Fabric, row: Component) -> float:
    """Return the part of the ways between two T0s that a component is; 0 of what NICs are at."""
    ports = np.array(row.ports)
    own, far = fabric.port_switch[ports], fabric.port_peer_switch[ports]
    if ((own < 0) | (far < 0)).any():
        return 0.0
    ups = ports[fabric.sw_tier[own] < fabric.sw_tier[far]]
    ups = ups if len(ups) else fabric.port_reverse[ports]
    own = fabric.port_switch[ups]
    every = fabric.sw_n_up[own].astype(np.float64)
    first = fabric.sw_tier[own] == 0
    every[~first] *= fabric.sw_n_up[fabric.sw_tier == 0].max()
    groups = len(np.unique(fabric.sw_lo[own]))
    return float(min((1 / every).sum() / groups, 1.0))


def _unlike(rows: Iterator[Component]) -> Iterator[Component]:
    """The first of those that have the same links."""
    seen = set()
    for row in rows:
        key = frozenset(row.ports)
        if key not in seen:
            seen.add(key)
            yield row


def _all(fabric: Fabric) -> Iterator[Component]:
    yield from _links(fabric, fabric.port_name, fabric.link_name)
    yield from _devices(fabric, fabric.switch_name)
    yield from _transceivers(fabric, fabric.port_name)
    yield from _groups(fabric)


def _links(
    fabric: Fabric, name: Callable[[int], str], both: Callable[[int], str]
) -> Iterator[Component]:
    for port in range(fabric.n_ports):
        yield Component(DIRECTION, name(port), (port,), (port,))
    for port in range(fabric.n_ports):
        other = int(fabric.port_reverse[port])
        if port < other:
            yield Component(CABLE, both(port), (port, other), (port, other))


def _devices(fabric: Fabric, name: Callable[[int], str]) -> Iterator[Component]:
    reverse = fabric.port_reverse
    for nic in range(fabric.n_nics):
        own = np.arange(nic * fabric.n_planes, (nic + 1) * fabric.n_planes)
        every = _tuple(own, reverse[own])
        yield Component(NIC, f"nic {nic}", every, every)
        yield Component(HALF, f"nic {nic} plane * > t0", _tuple(own), _tuple(own))
        yield Component(HALF, f"nic {nic} plane * < t0", _tuple(reverse[own]), _tuple(reverse[own]))
    for switch in range(fabric.n_switches):
        own = np.flatnonzero(fabric.port_switch == switch)
        yield Component(SWITCH, name(switch), _tuple(own, reverse[own]), _tuple(reverse[own]))


def _transceivers(fabric: Fabric, name: Callable[[int], str]) -> Iterator[Component]:
    groups = []
    if fabric.n_planes > 1:
        planes = np.arange(fabric.n_planes)
        for nic in range(fabric.n_nics):
            own = nic * fabric.n_planes + planes
            groups += [(f"nic {nic}", i, part) for i, part in enumerate(_fours(own))]
    for switch in range(fabric.n_switches):
        down, up = places.ports_of(fabric, switch)
        parts = enumerate([*_fours(down), *_fours(up)])
        groups += [(fabric.switch_name(switch), i, part) for i, part in parts]
    for owner, number, part in groups:
        if len(part) < 2:
            continue
        back = fabric.port_reverse[part]
        both = _tuple(part, back)
        yield Component(TRANSCEIVER, f"{owner} transceiver {number}", both, both)
        for half in (part, back):
            names = ", ".join(name(int(port)) for port in half)
            yield Component(HALF, names, _tuple(half), _tuple(half))


def _groups(fabric: Fabric) -> Iterator[Component]:
    """All links of a switch to the tier above, tiers of planes, and planes."""
    reverse = fabric.port_reverse
    for switch in range(fabric.n_switches):
        _, up = places.ports_of(fabric, switch)
        if len(up) > 1:
            above = f"t{int(fabric.sw_tier[switch]) + 1} *"
            name = fabric.switch_name(switch)
            both = _tuple(up, reverse[up])
            yield Component(LINKS, f"{name} - {above}", both, both)
            yield Component(LINKS, f"{name} > {above}", _tuple(up), _tuple(up))
            yield Component(LINKS, f"{name} < {above}", _tuple(reverse[up]), _tuple(reverse[up]))
    for plane in range(fabric.n_planes):
        for tier in range(0 if fabric.n_tiers > 2 else 1, fabric.n_tiers):
            there = np.flatnonzero((fabric.sw_plane == plane) & (fabric.sw_tier == tier))
            own = np.flatnonzero(np.isin(fabric.port_switch, there))
            into = reverse[own][fabric.port_switch[reverse[own]] >= 0]
            climbs = into[fabric.sw_tier[fabric.port_switch[into]] < tier]
            if tier == 0:
                climbs = np.arange(fabric.n_nics, dtype=np.int32) * fabric.n_planes + plane
            name = f"plane {plane} t{tier} *"
            yield Component(TIER, name, _tuple(own, reverse[own]), _tuple(climbs))
        nics = np.arange(fabric.n_nics) * fabric.n_planes + plane
        own = np.flatnonzero(
            (fabric.port_switch >= 0) & (fabric.sw_plane[fabric.port_switch] == plane)
        )
        yield Component(PLANE, f"plane {plane}", _tuple(nics, own), _tuple(nics))


def _outlined(known: Fabric, around: Outline, whole: Fabric) -> Iterator[Component]:
    """Those of an outline: a port or a switch of it stands for several."""

    def switch_name(switch: int) -> str:
        return ", ".join(whole.switch_name(int(it)) for it in around.switches(switch))

    def port_name(port: int) -> str:
        return ", ".join(whole.port_name(int(it)) for it in around.ports(port))

    def link_name(port: int) -> str:
        return ", ".join(whole.link_name(int(it)) for it in around.ports(port))

    rows = [*_links(known, port_name, link_name), *_devices(known, switch_name)]
    rows += [it for it in _transceivers(known, port_name) if len(it.ports) > 2]
    rows += [it for it in _groups(known) if it.kind in (TIER, PLANE)]
    for row in rows:
        every = row.where.split(", ")
        if row.kind == HALF:  # its links are those of one of several devices
            each = [around.ports(port).tolist() for port in row.ports]
            ways = list(zip(*each, strict=True))
            every = [", ".join(map(whole.port_name, way)) for way in ways if len(ways) > 1]
            every = every or [row.where]
        yield row._replace(where=every[0], others=tuple(every[1:]))


def _fours(ports: LongArray) -> list[LongArray]:
    return [ports[i : i + LINKS_DEFAULT] for i in range(0, len(ports), LINKS_DEFAULT)]


def _tuple(*parts: npt.ArrayLike) -> tuple[int, ...]:
    return tuple(np.unique(np.concatenate([np.asarray(part) for part in parts])).tolist())
