"""What is missing where, by time: on links, and in switches.

Both ends of a link count packets, so what it lost is known. What went into a switch, and neither
came out nor was dropped because a queue was full, is lost there, or waits in a queue: no more was
lost by a time than is missing at any later one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from openmrc.ops.diagnose.observed import FloatArray, Observed


class Missing(NamedTuple):
    """What is missing, in each bin."""

    links: FloatArray  # [bins, ports]
    inside: FloatArray  # [bins, switches]


def missing(seen: Observed) -> Missing:
    """Return what is missing on links and in switches."""
    fabric = seen.fabric
    into, own, n = fabric.port_peer_switch, fabric.port_switch, fabric.n_switches
    came, went = seen.out - seen.gone, seen.out + seen.dropped
    held = np.zeros((len(came), n))
    for ports, each, sign in ((into, came, 1), (own, went, -1)):
        there = np.flatnonzero(ports >= 0)
        for row, counts in zip(held, each, strict=True):
            row += sign * np.bincount(ports[there], counts[there], n)
    upto = np.minimum.accumulate(np.cumsum(held, axis=0)[::-1], axis=0)[::-1]
    return Missing(seen.gone, np.diff(np.maximum(upto, 0), axis=0, prepend=0))
