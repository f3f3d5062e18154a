"""Where the MTU is too small: the places that narrow paths share and sound ones do not cross.

A sender knows of each of its paths how often in a row it passed a small packet and then lost a
larger one, and not where. Of a path that loses packets of any size, that happens with a probability
of a quarter at most. So each time speaks for the places that the path crosses, and paths that
carry large packets speak against theirs. Places are taken until no evidence is left, the one that
most speaks for first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from openmrc.engine import ev
from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.verbs.tally import too_narrow

OTHERS_MAX = 3  # that explain as much: more are only counted


class Paths(NamedTuple):
    """Paths that carried data."""

    routes: IntArray  # [n, hops] directed ports, -1 after the last
    times: LongArray  # [n] in a row it passed a small packet and then lost a larger one
    lost_bytes: (
        LongArray  # [n] payload of the smallest packet that each lost, and none passed since
    )
    packets: LongArray  # [n] sent on each
    usable: BoolArray  # [n] whether it is in use


def lines(fabric: Fabric, paths: Paths, probe_bytes: int) -> list[str]:
    """Return a line for each place, by name, at which the MTU is too small."""
    found = []
    for where, across in sorted(_places(fabric, paths), key=lambda place: place[0]):
        lost = paths.lost_bytes[across & (paths.times > 0)]
        found.append(too_narrow(where, lost.tolist(), int(across.sum()), probe_bytes))
    return found


def _places(fabric: Fabric, paths: Paths) -> Iterator[tuple[str, BoolArray]]:
    """The name of each place, and which paths cross it."""
    crossed, kind = _crossed(fabric, paths.routes), _kinds(fabric)
    against = _against(paths)
    left = paths.times > 0
    while left.any():
        speaks = _summed(crossed, np.where(left, paths.times, -against), len(kind))
        best = int(speaks.argmax())  # of places for which as much speaks the smallest kind
        if speaks[best] < ev.NARROW_SURE:
            break
        across = (crossed == best).any(axis=1)
        shared = _summed(crossed, across & left, len(kind))
        alike = (kind == kind[best]) & (speaks == speaks[best]) & (shared == shared[best])
        yield _named(fabric, np.flatnonzero(alike).tolist()), across
        left &= ~across


def _against(paths: Paths) -> LongArray:
    """How much each path speaks against the places that it crosses, in times that speak for them.

    One that carried more than any narrow one is sound, unless it only rested since: that is worth
    as much as sufficient evidence. One that lost packets and is in use again loses any of them.
    """
    narrow = paths.times > 0
    most = paths.packets[narrow].max(initial=0)
    sound = np.where(paths.packets > most, ev.NARROW_SURE, 0)
    return np.where(narrow | ~paths.usable, 0, np.where(paths.lost_bytes > 0, 1, sound))


def _kinds(fabric: Fabric) -> LongArray:
    """Of each number of a place: 0 for a directed port, 1 for a link, by the smaller of its two
    ports, 2 for a switch, 3 for a plane.
    """
    n = fabric.n_ports
    return np.repeat(np.arange(4), (n, n, fabric.n_switches, fabric.n_planes))


def _crossed(fabric: Fabric, routes: IntArray) -> IntArray:
    """The places that each path crosses, [n, 3 x hops + 1], -1 for none."""
    there, n = routes >= 0, fabric.n_ports
    link = np.where(there, n + np.minimum(routes, fabric.port_reverse[routes]), -1)
    switch = np.where(there, fabric.port_peer_switch[routes], -1)
    plane = fabric.sw_plane[switch[:, :1]]
    switch = np.where(switch >= 0, 2 * n + switch, -1)
    return np.hstack([routes, link, switch, 2 * n + fabric.n_switches + plane])


def _summed(crossed: IntArray, worth: LongArray | BoolArray, n: int) -> LongArray:
    """What the paths across each of `n` places are worth together."""
    each = np.broadcast_to(worth[:, None], crossed.shape)
    sums = np.bincount(crossed[crossed >= 0], each[crossed >= 0], minlength=n)
    return sums.astype(np.int64)


def _named(fabric: Fabric, places: Sequence[int]) -> str:
    """The place; or the places, if nothing tells which of them it is."""
    names = [_name(fabric, place) for place in places]
    more = f" or {len(names) - OTHERS_MAX} more" if len(names) > OTHERS_MAX else ""
    return " or ".join(names[:OTHERS_MAX]) + more


def _name(fabric: Fabric, place: int) -> str:
    n = fabric.n_ports
    if place < 2 * n:
        return fabric.link_name(place - n) if place >= n else fabric.port_name(place)
    switch, plane = place - 2 * n, place - 2 * n - fabric.n_switches
    return f"plane {plane}" if plane >= 0 else fabric.switch_name(switch)
