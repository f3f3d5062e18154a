"""What is missing where, by time: on links, and in switches.

Both ends of a link count packets, so what it lost is known. What went into a switch, and neither
came out nor was dropped because a queue was full, is lost there, or waits in a queue: no more was
lost by a time than is missing at any later one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import Fabric
from openmrc.ops.diagnose.observed import FloatArray, Observed


class Missing(NamedTuple):
    """What is missing, in each bin."""

    links: FloatArray  # [bins, ports]
    inside: FloatArray  # [bins, switches]


def missing(seen: Observed) -> Missing:
    """Return what is missing on links and in switches."""
    return Missing(seen.gone, inside(seen.fabric, seen.out, seen.gone, seen.dropped))


def inside(fabric: Fabric, out: FloatArray, gone: FloatArray, dropped: FloatArray) -> FloatArray:
    """Return [bins, switches] what is missing in switches, if ports count so much."""
    into, own, n = fabric.port_peer_switch, fabric.port_switch, fabric.n_switches
    held = np.zeros((len(out), n))
    for ports, each, sign in ((into, out - gone, 1), (own, out + dropped, -1)):
        there = np.flatnonzero(ports >= 0)
        for row, counts in zip(held, each, strict=True):
            row += sign * np.bincount(ports[there], counts[there], n)
    upto = np.minimum.accumulate(np.cumsum(held, axis=0)[::-1], axis=0)[::-1]
    return np.diff(np.maximum(upto, 0), axis=0, prepend=0)
