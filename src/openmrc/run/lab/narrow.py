"""Where the MTU is too small: the places that narrow paths share and sound ones do not cross.

A sender knows of each of its paths whether it passes small packets and loses larger ones, and not
where. A path that is not narrow is known to be sound if it has carried more packets than any narrow
one; else it may only have rested since. Places are taken until all narrow paths are explained, the
one that explains most first; what no place explains is told of its plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.verbs.tally import too_narrow

OTHERS_MAX = 3  # that explain as much: more are only counted


class Paths(NamedTuple):
    """Paths that carried data."""

    routes: IntArray  # [n, hops] directed ports, -1 after the last
    narrow_bytes: (
        LongArray  # [n] payload of the smallest packet that each loses; 0: it is not narrow
    )
    packets: LongArray  # [n] sent on each


def lines(fabric: Fabric, paths: Paths, probe_bytes: int) -> list[str]:
    """Return a line for each place, by name, at which the MTU is too small."""
    found = []
    for where, across in sorted(_places(fabric, paths), key=lambda place: place[0]):
        lost = paths.narrow_bytes[across]
        found.append(too_narrow(where, lost[lost > 0].tolist(), len(lost), probe_bytes))
    return found


def _places(fabric: Fabric, paths: Paths) -> Iterator[tuple[str, BoolArray]]:
    """The name of each place, and which paths cross it."""
    narrow = paths.narrow_bytes > 0
    if not narrow.any():
        return
    crossed = _crossed(fabric, paths.routes)
    sound = ~narrow & (paths.packets > paths.packets[narrow].max())
    is_clear = _counted(fabric, crossed[sound]) == 0
    left = narrow.copy()
    while left.any():
        explains = np.where(is_clear, _counted(fabric, crossed[left]), 0)
        best = int(explains.argmax())  # of places that explain as much the smallest kind
        if not explains[best]:
            break
        kind = np.arange(len(explains)) // fabric.n_ports == best // fabric.n_ports
        across = (crossed == best).any(axis=1)
        same = _counted(fabric, crossed[across & left]) == explains[best]
        alike = kind & same & (explains == explains[best])
        yield _named(fabric, np.flatnonzero(alike).tolist()), across
        left &= ~across
    plane = fabric.sw_plane[fabric.port_peer_switch[paths.routes[:, 0]]]
    for k in np.unique(plane[left]).tolist():
        yield f"plane {k}", plane == k


def _crossed(fabric: Fabric, routes: IntArray) -> IntArray:
    """The places that each path crosses, [n, 3 x hops], -1 for none: directed ports, then links, by
    the smaller of their two ports, and switches, each kind numbered after all ports before it.
    """
    there, n = routes >= 0, fabric.n_ports
    link = np.where(there, n + np.minimum(routes, fabric.port_reverse[routes]), -1)
    switch = np.where(there, fabric.port_peer_switch[routes], -1)
    return np.hstack([routes, link, np.where(switch >= 0, 2 * n + switch, -1)])


def _counted(fabric: Fabric, crossed: IntArray) -> LongArray:
    """How many paths cross each place."""
    return np.bincount(crossed[crossed >= 0], minlength=2 * fabric.n_ports + fabric.n_switches)


def _named(fabric: Fabric, places: Sequence[int]) -> str:
    """The place; or the places, if nothing tells which of them it is."""
    names = [_name(fabric, place) for place in places]
    more = f" or {len(names) - OTHERS_MAX} more" if len(names) > OTHERS_MAX else ""
    return " or ".join(names[:OTHERS_MAX]) + more


def _name(fabric: Fabric, place: int) -> str:
    kind, number = divmod(place, fabric.n_ports)
    if kind >= 2:
        return fabric.switch_name(place - 2 * fabric.n_ports)
    return fabric.link_name(number) if kind else fabric.port_name(number)
