"""Where the MTU is too small: the places that most paths across them blame.

A sender knows of each of its paths whether it passes small packets and loses larger ones, and not
where. Paths that share a place and are narrow, while others are not, show it. Places are taken
until all narrow paths are explained, the one that explains most first.
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
    narrow_bytes: LongArray  # [n] payload of the smallest packet that each loses; 0: it is sound


def lines(fabric: Fabric, paths: Paths, probe_bytes: int) -> list[str]:
    """Return a line for each place, by name, at which the MTU is too small."""
    by_place: dict[str, BoolArray] = {}
    for where, across in _places(fabric, paths):
        by_place[where] = by_place.get(where, False) | across
    found = []
    for where, across in sorted(by_place.items()):
        lost = paths.narrow_bytes[across]
        found.append(too_narrow(where, lost[lost > 0].tolist(), len(lost), probe_bytes))
    return found


def _places(fabric: Fabric, paths: Paths) -> Iterator[tuple[str, BoolArray]]:
    """The name of each place, and which paths cross it. A link that is narrow in both directions
    comes twice.
    """
    crossed = _crossed(fabric, paths.routes)
    narrow = paths.narrow_bytes > 0
    sound = _counted(fabric, crossed[~narrow])
    is_narrow = _counted(fabric, crossed[narrow]) > sound  # most of the paths across it
    left = narrow.copy()
    while left.any():
        explains = np.where(is_narrow, _counted(fabric, crossed[left]) - sound, 0)
        best = int(explains.argmax())  # a link, if it explains as much as a switch
        if explains[best] <= 0:
            return
        across = (crossed == best).any(axis=1)
        alike = _counted(fabric, crossed[across & left]) == (across & left).sum()
        alike &= explains == explains[best]
        if best < fabric.n_ports:
            alike[fabric.n_ports :] = False
        yield _named(fabric, np.flatnonzero(alike).tolist(), is_narrow), across
        left &= ~across


def _crossed(fabric: Fabric, routes: IntArray) -> IntArray:
    """The places that each path crosses, [n, 2 x hops]: directed ports, and after all ports of the
    fabric its switches; -1 for none.
    """
    switch = np.where(routes >= 0, fabric.port_peer_switch[routes], -1)
    return np.hstack([routes, np.where(switch >= 0, fabric.n_ports + switch, -1)])


def _counted(fabric: Fabric, crossed: IntArray) -> LongArray:
    """How many paths cross each place."""
    return np.bincount(crossed[crossed >= 0], minlength=fabric.n_ports + fabric.n_switches)


def _named(fabric: Fabric, places: Sequence[int], is_narrow: BoolArray) -> str:
    """The place; or the places, if nothing tells which of them it is."""
    names = [_name(fabric, place, is_narrow) for place in places]
    more = f" or {len(names) - OTHERS_MAX} more" if len(names) > OTHERS_MAX else ""
    return " or ".join(names[:OTHERS_MAX]) + more


def _name(fabric: Fabric, place: int, is_narrow: BoolArray) -> str:
    if place >= fabric.n_ports:
        return fabric.switch_name(place - fabric.n_ports)
    both = is_narrow[fabric.port_reverse[place]]
    return fabric.link_name(place) if both else fabric.port_name(place)
