"""Probes of EVs, as NICs send them by MRC's C API: from NIC to NIC and back on the same EV.

The answer takes the EV of the question, so both cross the same links, one way and the other: a
missing answer says nothing of the direction. What can be blamed is a cable, a switch or a NIC. A
cable is counted and named by its upward port; its direction towards the NIC that was asked stands
in a route too, so that this NIC is a cause.

In a fabric with two T0s every probe over a T1 crosses both of its cables: these three are one.
From three T0s on they differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.ops import causes
from openmrc.ops.schedule import (
    HOPS_MAX,
    PROBE_BYTES,
    TURNS,
    TWO_T1S,
    Schedule,
    Shares,
    check,
)
from openmrc.units import MS, PS_BITS

TIMEOUT_PS = 10 * MS  # of a probe: far above round trips, and above most pauses of a host
PERIOD_MIN_PS = 2 * TIMEOUT_PS  # a call waits for what is lost; as long is left for all else
GOLDEN = (5**0.5 - 1) / 2


def stride(n: int) -> int:
    """Return a step through a ring of `n` that meets all of them, and of which even a few lie far
    apart: without a common factor, next to the golden section.
    """
    return next(step for step in range(round(GOLDEN * n), n + 2) if math.gcd(step, n) == 1)


class Asked(NamedTuple):
    """What probes ask: the NIC, the plane, and the EV as a number, [n] each."""

    nic: LongArray
    plane: LongArray
    ev: LongArray


@dataclass(frozen=True, eq=False)
class EvSchedule(Schedule):
    """The EV probes of a fabric of two tiers: every NIC asks others in turn, on all of its EVs in
    turn.
    """

    rounds_are_told: ClassVar[bool] = True

    def kinds(self, turn: int, numbers: npt.ArrayLike) -> IntArray:
        """Return the kind of each of these probes: all come back to their sender."""
        return np.full(np.shape(numbers), TWO_T1S, np.int32)

    def judges(self, turn: int, numbers: npt.ArrayLike) -> LongArray:
        """Return the NIC whose agent says whether each of these probes was answered."""
        return np.asarray(numbers, np.int64) // (self.per_port * self.fabric.n_planes)

    def routes(self, turn: int, numbers: npt.ArrayLike | None = None) -> IntArray:
        """Return the cables that these probes (None: all) cross, as upward ports, and the downward
        port of the NIC that is asked, [n, `HOPS_MAX`]; -1 after the last.
        """
        each = np.arange(self.n_probes) if numbers is None else np.asarray(numbers, np.int64)
        slot, port = each % self.per_port, each // self.per_port
        nic, plane = port // self.fabric.n_planes, port % self.fabric.n_planes
        step = turn * self.per_port + slot
        others = self.fabric.n_nics - 1
        dst = (nic + 1 + (step * stride(others) + plane) % others) % self.fabric.n_nics
        return self._between(nic, dst, plane, (nic + step) % self._n_up)

    def burst(self, port: int, n: int, turn: int = 0) -> IntArray:
        """Return the routes of `n` probes that all cross the cable of `port`."""
        fabric, i = self.fabric, np.arange(n) + turn * n
        up = min(port, int(fabric.port_reverse[port]))
        if (nic := int(fabric.port_nic[up])) >= 0:
            other = (nic + 1 + (i // 2) % (fabric.n_nics - 1)) % fabric.n_nics
            src, dst = np.where(i % 2, other, nic), np.where(i % 2, nic, other)
            return self._between(src, dst, np.full(n, up % fabric.n_planes), i % self._n_up)
        t0 = int(fabric.port_switch[up])
        low, high = int(fabric.sw_lo[t0]), int(fabric.sw_hi[t0])
        src = low + i % (high - low)
        others = fabric.n_nics - (high - low)
        dst = (high + i * stride(others) % others) % fabric.n_nics
        uplink = np.full(n, up - int(fabric.sw_first_up[t0]))
        return self._between(src, dst, np.full(n, int(fabric.sw_plane[t0])), uplink)

    def beside(self, ports: list[int]) -> list[int]:  # type: ignore[override]  # it reads none
        """Nothing else: a burst varies all but the suspect."""
        return []

    def ends(self, routes: IntArray) -> tuple[LongArray, LongArray]:
        """Return who sends each probe, and who judges it: the same."""
        src = self.fabric.port_nic[routes[:, 0]].astype(np.int64)
        return src, src

    def name(self, cause: int) -> str:
        """Return the name of a cause: a cable without a direction."""
        if cause < self.fabric.n_ports:
            return self.fabric.link_name(cause)
        return causes.name(self.fabric, cause)

    def asked(self, routes: IntArray) -> Asked:
        """Return what probes of these routes ask."""
        fabric = self.fabric
        last = routes[np.arange(len(routes)), (routes >= 0).sum(axis=1) - 1]
        t0 = fabric.port_peer_switch[routes[:, 0]]
        is_far = fabric.port_switch[routes[:, 1]] == t0  # it goes up; else it is a NIC's
        up = np.where(is_far, routes[:, 1] - fabric.sw_first_up[t0], 0)
        plane = (routes[:, 0] % fabric.n_planes).astype(np.int64)
        ev = fabric.ev_base | plane << fabric.ev_plane_shift | up << fabric.ev_up0_shift
        return Asked(fabric.port_peer_nic[last].astype(np.int64), plane, ev.astype(np.int64))

    @cached_property
    def crossed(self) -> tuple[LongArray, LongArray, LongArray]:
        """How many probes of a period cross each cable, each switch, and each NIC, on average."""
        fabric = self.fabric
        found = np.zeros(causes.count(fabric))
        for turn in range(TURNS):
            for column in causes.of_routes(fabric, self.routes(turn)):
                found += np.bincount(column[column >= 0], minlength=len(found))
        first_nic = fabric.n_ports + fabric.n_switches
        of_period = np.ceil(found / TURNS).astype(np.int64)
        by_port, by_switch, by_nic = np.split(of_period, [fabric.n_ports, first_nic])
        return by_port, by_switch, by_nic

    @cached_property
    def _n_up(self) -> int:
        return int(self.fabric.sw_n_up[self.fabric.port_peer_switch[0]])

    def _between(self, src: LongArray, dst: LongArray, plane: LongArray, up: LongArray) -> IntArray:
        fabric = self.fabric
        own, far = src * fabric.n_planes + plane, dst * fabric.n_planes + plane
        t0, its = fabric.port_peer_switch[own], fabric.port_peer_switch[far]
        found = np.full((len(src), HOPS_MAX), -1, np.int32)
        is_local = t0 == its
        found[:, 0] = own
        found[:, 1] = np.where(is_local, far, fabric.sw_first_up[t0] + up)
        found[:, 2] = np.where(is_local, fabric.port_reverse[far], fabric.sw_first_up[its] + up)
        found[:, 3] = np.where(is_local, -1, far)
        found[:, 4] = np.where(is_local, -1, fabric.port_reverse[far])
        return found


def make(fabric: Fabric, k: int, period_ps: int, load_max: float) -> EvSchedule:
    """Return the schedule that crosses each cable `k` times a period or more, on average.

    The period is `period_ps`, or as long as necessary: for an agent's calls, and to stay within
    `load_max`, the fraction of a link's rate that probes may take. Raises `InputError` for fabrics
    that cannot be probed by EVs.
    """
    if fabric.n_tiers != 2 or fabric.sw_bundle.max() > 1:
        raise InputError(
            "EV probes: a fabric of two tiers without parallel links is accepted, whose EVs name"
            " one T1 each"
        )
    if fabric.n_nics < 2:
        raise InputError("EV probes: one NIC has nobody to ask; two or more are accepted")
    check(k, period_ps, load_max)
    is_t0 = fabric.sw_tier == 0
    fewest = int((fabric.sw_hi - fabric.sw_lo)[is_t0].min())
    per_port = max(-(-k // 2), -(-k * int(fabric.sw_n_up[is_t0].max()) // (2 * fewest)))
    bits = 2 * per_port * PROBE_BYTES * PS_BITS
    least_ps = int(-(-bits // (load_max * int(fabric.port_rate_bps.min()))))
    return EvSchedule(fabric, k, Shares(0, 0), per_port, max(period_ps, least_ps, PERIOD_MIN_PS))
