"""Pools between switches that many NICs fill: what they carry beside data, and how unevenly flows
share them.

All senders begin at line rate. What meets at such a pool in their first windows, beyond what it
carries meanwhile and holds, is trimmed: headers cross it, and are answered. Later its queues mark a
share of all packets, and receivers answer each of these at once. Congestion control takes many
round trips to make shares even, more than most messages last.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import IntArray, LongArray
from openmrc.flow.health import Floats
from openmrc.flow.rates import NEAR
from openmrc.flow.state import DATA

# Measured by `benchmarks/crowded.py`: how many of the packets that cross such pools are
# answered by themselves, and by how much of a fair rate NSCC gives flows more or less.
ANSWERED = 0.6
SPREAD = 0.2
# And what a flow has beside one with a queue less on its way, in the end; and how many BDPs are
# sent until it has.
YIELD, EVEN = 0.1, 10.0


def yields(windows: Floats) -> Floats:
    """How much less a flow, of so many BDPs, has for each queue that it crosses beyond the first:
    delays of all its queues add up, and those of its neighbours are at their target with one.
    """
    found: Floats = YIELD + (1 - YIELD) * np.minimum(1, EVEN / np.maximum(windows, NEAR))
    return found


def keep(
    ways: npt.NDArray[np.int32],
    src: IntArray | LongArray,
    dst: IntArray | LongArray,
    pool_bytes_per_ps: Floats,
    nic_bytes_per_ps: float,
) -> npt.NDArray[np.int32]:
    """The ways of flows, [flows, DATA + BACK], without those pools between switches that cannot be
    full: the NICs that send through them, or receive, all together, have no more.
    """
    between, back = ways[:, 2:DATA], ways[:, DATA + 2 :]
    n = len(pool_bytes_per_ps)
    counts = []
    for nic in (src, dst):
        pairs = np.concatenate([np.stack([pool, nic], 1)[pool >= 0] for pool in between.T])
        counts.append(np.bincount(np.unique(pairs, axis=0)[:, 0], minlength=n))
    all_of_them = np.minimum(*counts) * nic_bytes_per_ps
    may = pool_bytes_per_ps < all_of_them * (1 - NEAR)
    found = ways.copy()
    for kept, there in ((found[:, 2:DATA], between), (found[:, DATA + 2 :], back)):
        kept[(there >= 0) & ~may[there]] = -1
    return found


def beyond(
    pools: npt.NDArray[np.int32],
    src: IntArray,
    first_bytes: LongArray,
    data_bytes: LongArray,
    pool_bytes_per_ps: Floats,
    nic_bytes_per_ps: Floats,
    queue_ps: float,
) -> Floats:
    """Of each packet of a flow, how many are trimmed, or dropped, at that of its pools, [flows,
    places], where most are: `first_bytes` are sent at once, of `data_bytes`.
    """
    n = len(pool_bytes_per_ps)
    of_nic = np.bincount(src, first_bytes)
    first, data, lasts_ps = np.zeros(n), np.ones(n), np.zeros(n)
    for place in pools.T:
        there = place >= 0
        first += np.bincount(place[there], first_bytes[there], n)
        data += np.bincount(place[there], data_bytes[there], n)
        np.maximum.at(lasts_ps, place[there], (of_nic[src] / nic_bytes_per_ps)[there])
    share = np.maximum(first - pool_bytes_per_ps * (lasts_ps + queue_ps), 0) / data
    found: Floats = np.where(pools >= 0, share[pools], 0).max(axis=1, initial=0)
    return found
