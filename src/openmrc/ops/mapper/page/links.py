"""How the page numbers links, and which of them a place is.

Links are numbered by their lower port, in the order of ports: those of NICs (NIC x planes + plane),
then tier by tier those between switches, by plane, switch and uplink. A direction is 1 upwards, 2
downwards.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from openmrc.fabric import places
from openmrc.fabric.model import BoolArray, Fabric, LongArray

UP, DOWN = 1, 2


@lru_cache(maxsize=4)
def numbers(fabric: Fabric) -> tuple[LongArray, BoolArray]:
    """Return, by directed port, the number of its link, and whether it sends upwards."""
    own, far = fabric.port_switch, fabric.port_peer_switch
    climbs = (own < 0) | ((far >= 0) & (fabric.sw_tier[own] < fabric.sw_tier[far]))
    lower = np.flatnonzero(climbs)
    link = np.zeros(fabric.n_ports, np.int64)
    link[lower] = link[fabric.port_reverse[lower]] = np.arange(len(lower))
    return link, climbs


@lru_cache(maxsize=1024)  # a live page asks for the same places again and again
def links(fabric: Fabric, where: str) -> list[list[int]]:
    """Return [link, directions] of a place, or of several with commas between them. Not to be
    changed.
    """
    link, climbs = numbers(fabric)
    ports = places.ports(fabric, where)
    found, which = np.unique(link[ports], return_inverse=True)
    ways = np.zeros(len(found), np.int64)
    np.bitwise_or.at(ways, which, np.where(climbs[ports], UP, DOWN))
    return [list(pair) for pair in zip(found.tolist(), ways.tolist(), strict=True)]


def drawn(fabric: Fabric) -> dict[str, Any]:
    """Return what the page draws of a fabric: one plane, as all are alike."""
    first = np.arange(fabric.n_nics) * fabric.n_planes
    up, upper, bundle = [], [], []
    for tier in range(fabric.n_tiers - 1):
        switches = np.flatnonzero((fabric.sw_tier == tier) & (fabric.sw_plane == 0))
        n_up = int(fabric.sw_n_up[switches[0]])
        ports = np.add.outer(fabric.sw_first_up[switches], np.arange(n_up)).ravel()
        above = fabric.port_peer_switch[ports]
        up.append(n_up)
        upper.append(fabric.sw_index[above].tolist())
        bundle.append(int(fabric.sw_bundle[above[0]]))
    return {
        "nics": fabric.n_nics,
        "planes": fabric.n_planes,
        "t0_of": fabric.sw_index[fabric.port_peer_switch[first]].tolist(),
        "tiers": list(fabric.tier_counts),
        "up": up,  # uplinks of a switch of each tier below the top
        "upper": upper,  # where they lead: [switch x up + uplink], in this plane
        "bundle": bundle,  # parallel links to each neighbour above
    }
