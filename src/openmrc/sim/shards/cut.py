"""Where a fabric is cut: which shard each of its NICs, switches and ports belongs to.

The fabric alone decides, never the number of threads: a run is a function of scenario and seed. A
shard is a range of T0s, the same in all planes, with their NICs, and a share of the switches above.
So only packets from switch to switch cross, which takes a link's delay at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import REVIEW_PATHS, SWITCH_DOWN, SWITCH_SILENT, SWITCH_UP
from openmrc.fabric.model import Fabric
from openmrc.sim.net.network import Ends
from openmrc.traffic.traffic import Traffic

CUT_FROM_NICS = 1024  # smaller fabrics fit the caches of one core, and gain little
PORTS_A_SHARD = 4096  # a shard's state grows with its ports: each cut costs what crosses it
NICS_A_SHARD = 512  # and with its queue pairs, which are more a port where planes are few
SHARDS_MAX = 64  # each reads the lists of all others once per window
EVERY = -1  # in place of a shard: an action for all of them

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Shard of each NIC, of each switch, and of each directed port: that of its sender.

    What happens in one shard affects another `window_ps` later at the earliest.
    """

    n: int
    nic: Index
    switch: Index
    port: Index
    peer: Index  # shard at the other end of each port
    window_ps: int

    @property
    def links_into(self) -> int:
        """The most directed links that lead into one shard from others."""
        return int(np.bincount(self.peer[self.port != self.peer]).max())


class Uncut(NamedTuple):
    """Why a world is one shard, as the end of a sentence."""

    why: str


def shards_of(fabric: Fabric) -> int:
    """The number of shards for a fabric of this size, if it can be cut."""
    if fabric.n_nics < CUT_FROM_NICS:
        return 1
    n = max(fabric.n_ports // PORTS_A_SHARD, fabric.n_nics // NICS_A_SHARD, 2)
    return min(n, SHARDS_MAX)


def cut(fabric: Fabric, n: int) -> Cut | Uncut:
    """Cut a fabric into `n` shards, or fewer where it has fewer T0s."""
    if n < 2:
        return Uncut(f"{fabric.n_nics} NICs are no more than one core's caches hold")
    t0 = fabric.sw_index[fabric.port_peer_switch[np.arange(fabric.n_nics) * fabric.n_planes]]
    n_t0 = int(t0.max()) + 1
    n = min(n, n_t0)
    nic = t0.astype(np.int64) * n // n_t0
    if n < 2 or (np.diff(nic) < 0).any():
        return Uncut("all NICs are at the same T0" if n < 2 else "its T0s serve no ranges of NICs")
    switch = _switches(fabric, nic, n)
    port = np.where(fabric.port_switch >= 0, switch[fabric.port_switch], nic[fabric.port_nic])
    into_switch = fabric.port_peer_switch >= 0
    peer = np.where(into_switch, switch[fabric.port_peer_switch], nic[fabric.port_peer_nic])
    crosses = port != peer
    delay = fabric.hop_delays_ps()
    if not crosses.any():
        return Uncut("its parts have no link in common")
    window_ps = int(delay[crosses].min())
    if window_ps <= 0:
        return Uncut("nothing delays packets between its switches")
    return Cut(n, nic, switch, port, peer, window_ps)


def _switches(fabric: Fabric, nic: Index, n: int) -> Index:
    """The shard of each switch: T0s go with their NICs, the others are distributed by number."""
    index, tier = fabric.sw_index.astype(np.int64), fabric.sw_tier
    shard = nic[np.minimum(fabric.sw_lo, fabric.n_nics - 1)]
    for above in range(1, fabric.n_tiers):
        these = np.flatnonzero(tier == above)
        order = np.argsort(index[these], kind="stable")
        shard[these[order]] = np.arange(len(these)) * n // max(len(these), 1)
    return shard


def entries(found: Cut, traffic: Traffic, ends: Ends) -> Index | Uncut:
    """The shard that posts each entry of a workload: a message's is its sender's.

    An entry releases others at once, at its sender or receiver, which only works within a shard. So
    computations belong where their releases come from and go to.
    """
    m = traffic.n_msgs
    src, dst = (found.nic[end[traffic.msg_qp]] for end in (traffic.qp_src, traffic.qp_dst))
    shard = np.full(traffic.n_entries, EVERY, np.int64)
    shard[:m] = src
    giver, released, by_receiver = _releases(traffic)
    giver_shard_known = giver < m
    row = np.minimum(giver, m)  # computations have no ends
    fixed = np.where(by_receiver, np.append(dst, EVERY)[row], np.append(src, EVERY)[row])

    def of_givers() -> Index:
        of: Index = np.where(giver_shard_known, fixed, shard[giver])
        return of

    core = traffic.calc_core
    while True:
        before = shard.copy()
        of = of_givers()
        forwards = (of >= 0) & (shard[released] < 0)
        shard[released[forwards]] = of[forwards]
        backwards = ~giver_shard_known & (shard[giver] < 0) & (shard[released] >= 0)
        shard[giver[backwards]] = shard[released[backwards]]
        if len(core):
            calc = shard[m:]
            of_core = np.full(int(core.max()) + 1, EVERY, np.int64)
            np.maximum.at(of_core, core, calc)
            shared = (core > 0) & (calc < 0)
            calc[shared] = of_core[core[shared]]
        if (shard == before).all():
            break
    shard[shard < 0] = 0
    torn = (of_givers() != shard[released]).any()
    if len(core):
        least = np.full(int(core.max()) + 1, found.n, np.int64)
        most = np.full(int(core.max()) + 1, EVERY, np.int64)
        np.minimum.at(least, core, shard[m:])
        np.maximum.at(most, core, shard[m:])
        torn |= bool((least[1:] < most[1:]).any())
    return Uncut("some of its messages release others elsewhere at once") if torn else shard


def _releases(traffic: Traffic) -> tuple[Index, Index, npt.NDArray[np.bool_]]:
    """Giving entries, released entries, and whether the giver's receiver releases them."""
    giving, released = traffic.edges
    n_recv = len(traffic.recv_next)
    return giving, released.astype(np.int64), np.arange(len(giving)) < n_recv


def of_faults(found: Cut, fault: object) -> npt.NDArray[np.int32]:
    """The shard in which each action of a schedule happens."""
    action, target = np.asarray(fault.action), np.asarray(fault.target, np.int64)  # type: ignore[attr-defined]
    of_switch = np.isin(action, (SWITCH_UP, SWITCH_DOWN, SWITCH_SILENT))
    of_all = action == REVIEW_PATHS
    shard = np.full(len(action), EVERY, np.int32)
    shard[of_switch] = found.switch[target[of_switch]]
    of_port = ~of_switch & ~of_all
    shard[of_port] = found.port[target[of_port]]
    return shard
