"""The pools of a transport that sprays, and what one of its flows can have at most.

The packets of a flow take all planes and all paths alike, so what limits it is sums: the ports of
its NIC, the uplinks of its T0s, and so on down to the ports of the receiver, each over all planes.
Such a sum is a pool: the ports that one of the outline's (`fabric.outline`) stands for, taken
together over the planes. Of a pool between switches the flows are members only where it can be
full: if it carries less than all NICs below it together.

A flow has also a limit of its own, what the ports that both ends have in common carry: where the
sender has lost one plane and the receiver another, neither is of use to it; nor is an uplink whose
switch does not reach the receiver.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.fabric.outline import outline
from openmrc.fabric.ways import routes
from openmrc.flow import crowded
from openmrc.flow.health import Floats, Health
from openmrc.flow.rates import TINY
from openmrc.flow.state import BACK, DATA, LAST, NEVER
from openmrc.units import PS_BITS


class Sprayed:
    """The pools of flows from `src` to `dst`, NICs, [flows]; `groups` of denylists by NIC."""

    def __init__(
        self, fabric: Fabric, src: IntArray, dst: IntArray, groups: npt.NDArray[np.integer]
    ) -> None:
        self._fabric, self._src, self._dst = fabric, src, dst
        drawn = outline(fabric)
        known = drawn.fabric
        of_plane_0 = _of_plane_0(known)
        pools, one_plane = np.unique(of_plane_0, return_inverse=True)
        self._pool_of = one_plane[drawn.port_of]
        self.n_pools = len(pools)
        found = routes(known, src, dst, np.full(len(src), known.ev(0, 0)))
        ends = np.argmax(np.append(found, np.full((len(src), 1), -1), axis=1) < 0, axis=1)
        last = found[np.arange(len(src)), ends - 1]
        # first the NICs' own pools, which every flow is in
        self._ways = np.full((len(src), DATA + BACK), -1, np.int32)
        self._ways[:, 0] = one_plane[found[:, 0]]
        self._ways[:, LAST] = one_plane[last]
        between = np.where(np.arange(found.shape[1]) < ends[:, None] - 1, found, -1)[:, 1:-1]
        reverse = known.port_reverse
        self._ways[:, DATA] = one_plane[reverse[last]]
        self._ways[:, DATA + 1] = one_plane[reverse[found[:, 0]]]
        for first, ports in ((2, between), (DATA + 2, reverse[between])):
            pools_between = np.where(between >= 0, one_plane[ports], -1)
            self._ways[:, first : first + between.shape[1]] = pools_between
        t0 = (
            fabric.port_peer_switch[src * fabric.n_planes],
            fabric.port_peer_switch[dst * fabric.n_planes],
        )
        mask = groups[src] if len(groups) else np.zeros(len(src), np.int64)
        pairs = np.stack([*t0, mask], axis=1)
        self._pairs, self._pair_of = _distinct(pairs)
        one = np.zeros(len(self._pairs), np.int64)
        one[self._pair_of] = np.arange(len(src))
        self._one = one  # a flow of each pair

    @property
    def next_at(self) -> int:
        """When something else changes than the fabric, ps."""
        return NEVER

    def change(self, health: Health, faults: range, at_ps: int) -> None:
        """These faults of the schedule begin or end: both ends find out by themselves."""

    def bytes_per_ps(self, health: Health) -> Floats:
        """What each pool carries, [pools]."""
        found = np.bincount(self._pool_of, health.bytes_per_ps(1), self.n_pools)
        return found.astype(np.float64)

    def ways(self, bytes_per_ps: Floats) -> npt.NDArray[np.int32]:
        """The pools of each flow that may limit it, and behind them those of its answers, [flows,
        DATA + BACK], -1 where there is none.
        """
        nic = float(self._fabric.port_rate_bps[0]) * self._fabric.n_planes / PS_BITS
        return crowded.keep(self._ways, self._src, self._dst, bytes_per_ps, nic)

    def planes(self, health: Health) -> Floats:
        """What each plane carries of a flow that is alone, [planes, flows]."""
        fabric, n = self._fabric, len(self._src)
        found = np.zeros((fabric.n_planes, n))
        carried = health.bytes_per_ps()
        between = (fabric.port_switch >= 0) & (fabric.port_peer_switch >= 0)
        whole = bool((carried[between] == fabric.port_rate_bps[between] / PS_BITS).all()) and not (
            health.denied.any()
        )
        for plane in range(fabric.n_planes):
            out = self._src * fabric.n_planes + plane
            into = fabric.port_reverse[self._dst * fabric.n_planes + plane]
            found[plane] = np.minimum(carried[out], carried[into])
            if not whole:
                found[plane] = np.minimum(found[plane], self._through(carried, health, plane))
        return found

    def paths(self, active: int) -> Floats:
        """How many paths each flow uses, of at most `active` on a plane, [flows]."""
        climbs = self._fabric.uplinks(self._src[self._one], self._dst[self._one])
        found = np.ones(len(climbs))
        for up in range(1, self._fabric.n_tiers):
            these = climbs == up
            if these.any():
                n_up0, n_up1 = self._choices(int(self._src[self._one[these][0]]), up)
                found[these] = min(n_up0 * n_up1, active)
        paths: Floats = found[self._pair_of] * self._fabric.n_planes
        return paths

    def broken(self, health: Health) -> Floats:
        """The share of paths between the T0s of each flow on which nothing passes, [flows]."""
        if bool(health.works[self._fabric.port_switch >= 0].all()):
            return np.zeros(len(self._src))
        planes = range(self._fabric.n_planes)
        works = health.works.astype(np.float64)
        whole = np.ones_like(works)
        left, all_of_them = (
            np.sum([self._through(each, health, plane) for plane in planes], axis=0)
            for each in (works, whole)
        )
        some = np.isfinite(all_of_them) & (all_of_them > 0)
        share = np.zeros(len(self._src))
        share[some] = 1 - left[some] / all_of_them[some]
        return share

    def loses(self, health: Health) -> Floats:
        """The share of packets that paths lose on which others pass, [flows]."""
        found = np.zeros(len(self._src))
        lost = health.loses
        if not ((lost > 0) & (lost < 1)).any():
            return found
        fabric, passes = self._fabric, 1 - lost
        for plane in range(fabric.n_planes):
            out = self._src * fabric.n_planes + plane
            into = fabric.port_reverse[self._dst * fabric.n_planes + plane]
            left, some = (
                self._through(each, health, plane) for each in (passes, (passes > 0).astype(float))
            )
            some = np.where(np.isfinite(some), np.maximum(some, TINY), 1)  # below one T0
            between = np.where(np.isfinite(left), left, 1) / some
            each = passes[out] * passes[into] * between
            found += np.where(each > 0, 1 - each, 0) / fabric.n_planes
        return found

    def reach(self, stopped: npt.NDArray[np.bool_]) -> Floats:
        """How far of its way what is under way must have come where these ports have stopped."""
        fabric, planes = self._fabric, np.arange(self._fabric.n_planes)
        into = fabric.port_reverse[self._dst[:, None] * fabric.n_planes + planes]
        out = self._src[:, None] * fabric.n_planes + planes
        at_sender = stopped[out].any(axis=1)
        far: Floats = np.where(stopped[into].any(axis=1), 1.0, np.where(at_sender, 0.0, 0.5))
        return far

    def _through(self, carries: Floats, health: Health, plane: int) -> Floats:
        """What all paths of a plane together carry between the T0s of each flow, [flows], if
        `carries` is what each port does; infinitely much below one T0.
        """
        fabric = self._fabric
        src, dst = self._src[self._one], self._dst[self._one]
        climbs = fabric.uplinks(src, dst)
        through = np.where(climbs == 0, np.inf, 0.0)
        for mask in np.unique(self._pairs[:, 2]).tolist():
            carried = np.where(health.denied & (1 | mask) == 0, carries, 0)
            for up in range(1, fabric.n_tiers):
                these = np.flatnonzero((climbs == up) & (self._pairs[:, 2] == mask))
                if not len(these):
                    continue
                n_up0, n_up1 = self._choices(int(src[these[0]]), up)
                for up0 in range(n_up0):
                    for up1 in range(n_up1):
                        evs = np.full(len(these), fabric.ev(plane, up0, up1))
                        ports = routes(fabric, src[these], dst[these], evs)
                        inner = ports[:, 1 : 2 * up + 1]
                        through[these] += carried[inner].min(axis=1)
        return through[self._pair_of]

    def _choices(self, nic: int, up: int) -> tuple[int, int]:
        fabric = self._fabric
        t0 = int(fabric.port_peer_switch[nic * fabric.n_planes])
        if up < 2:
            return int(fabric.sw_n_up[t0]), 1
        t1 = int(fabric.port_peer_switch[fabric.sw_first_up[t0]])
        return int(fabric.sw_n_up[t0]), int(fabric.sw_n_up[t1])


def _of_plane_0(known: Fabric) -> LongArray:
    """By directed port, the one in its place in plane 0."""
    found = np.arange(known.n_ports, dtype=np.int64)
    n_own = known.n_nics * known.n_planes
    found[:n_own] -= found[:n_own] % known.n_planes
    place = np.full((known.n_tiers, int(known.sw_index.max()) + 1), -1, np.int64)
    first = np.flatnonzero(known.sw_plane == 0)
    place[known.sw_tier[first], known.sw_index[first]] = first
    own = known.port_switch[n_own:]
    there = place[known.sw_tier[own], known.sw_index[own]]
    found[n_own:] = known.sw_first_down[there] + (found[n_own:] - known.sw_first_down[own])
    return found


def _distinct(rows: LongArray) -> tuple[LongArray, LongArray]:
    found, which = np.unique(rows, axis=0, return_inverse=True)
    return found, which.reshape(-1).astype(np.int64)
