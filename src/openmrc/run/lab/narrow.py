"""Where the MTU is too small: the places that narrow paths share and sound ones do not cross.

A sender knows of each of its paths how often in a row it passed a small packet and then lost a
larger one, and not where. Of a path that loses packets of any size, that happens with a probability
of a quarter at most (`engine.ev`). So each time speaks for the places that the path crosses, and
paths that do otherwise speak against theirs: a place is worth how much likelier its paths are at
their own rate than at a quarter. Places are taken until none is left with enough evidence, the one
with most first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.engine import ev
from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.verbs.tally import too_narrow

CHANCE = 0.25  # that a path at a loss of one half passes a small packet and then loses a larger one
OTHERS_MAX = 3  # that explain as much: more are only counted


class Paths(NamedTuple):
    """Paths that carried data."""

    routes: IntArray  # [n, hops] directed ports, -1 after the last
    times: LongArray  # [n] in a row it passed a small packet and then lost a larger one
    lost_bytes: (
        LongArray  # [n] payload of the smallest packet that each lost, and none passed since
    )
    packets: LongArray  # [n] sent on each
    blamed: BoolArray  # [n] whether each lost any


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
    against = _summed(crossed, _against(paths), len(kind))
    enough = _evidence(np.array([ev.NARROW_SURE]), np.zeros(1, np.int64))[0]  # as of a path alone
    left = paths.times > 0
    while left.any():
        evidence = _evidence(_summed(crossed, paths.times * left, len(kind)), against)
        best = int(evidence.argmax())  # of places with as much the smallest kind
        if evidence[best] < enough:
            break
        across = (crossed == best).any(axis=1)
        shared = _summed(crossed, across & left, len(kind))
        alike = (kind == kind[best]) & (evidence == evidence[best]) & (shared == shared[best])
        yield _named(fabric, np.flatnonzero(alike).tolist()), across
        left &= ~across


def _against(paths: Paths) -> LongArray:
    """How often each path did otherwise: it lost a packet, and delivered the next one as large. One
    that lost none, but carried more than any narrow one, is as good as sufficient evidence; others
    may only have rested.
    """
    most = paths.packets[paths.times > 0].max(initial=0)
    sound = np.where(paths.packets > most, ev.NARROW_SURE, 0)
    return np.where(paths.lost_bytes > 0, 0, np.where(paths.blamed, 1, sound))


def _evidence(times: LongArray, against: LongArray) -> NDArray[np.float64]:
    """How much likelier the outcomes at each place are at their own rate than at `CHANCE`, as the
    logarithm; 0 where the rate is not higher.
    """
    n = np.maximum(times + against, 1)
    rate = np.maximum(times / n, CHANCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        other = np.where(against > 0, against * np.log((1 - rate) / (1 - CHANCE)), 0.0)
    return np.asarray(times * np.log(rate / CHANCE) + other)


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
