"""How long a step takes while something is missing: of one job, over one fabric.

Ports are missing from certain NICs. Of uplinks only the T0, or block, that lacks most counts, since
the slowest group does: all are taken to lack as much. Of the two the worse counts, as the groups
that miss a port hardly notice what else is missing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from openmrc.flow.capacity import Capacity
from openmrc.flow.health import Floats
from openmrc.flow.steps import Lockstep, UnderWay

Missing = frozenset[tuple[int, int]]  # (NIC, plane)
S_PER_PS = 1e-12


class Steps:
    """`hashed` gives how many times as long a phase across T0s takes over hashed paths, by the
    share of uplinks that is missing; of a NIC queue pairs use the share `used`. Ranks that compute
    unevenly make each step `uneven_s` longer than in lockstep.
    """

    def __init__(
        self,
        job: Lockstep,
        whole: Capacity,
        hashed: Callable[[float], float] | None = None,
        used: float = 1.0,
        uneven_s: float = 0.0,
    ) -> None:
        self._uneven_s = uneven_s
        self.ideal_s = job.step_ps(job.taken(whole)) * S_PER_PS + uneven_s  # without collisions
        self._job, self._whole, self._hashed = job, whole.times(used), hashed
        self._known: dict[tuple[Missing, tuple[float, ...]], float] = {}
        self.none = (0.0,) * len(whole.up)
        self._undisturbed = job.taken(self._has(self.none))
        self.whole_s = self.step_s(frozenset(), self.none)
        unlimited_ps = job.step_ps(job.taken(whole.times(np.inf)))
        # of a step, what is not computation: the part that waits for the network
        self.exposed_share = 1 - (unlimited_ps * S_PER_PS + uneven_s) / self.whole_s

    def step_s(self, ports: Missing, uplinks: tuple[float, ...]) -> float:
        """Return the time of a step while these ports, and these shares of uplinks, are missing."""
        return max(self._one(ports, self.none), self._one(frozenset(), uplinks))

    def _one(self, ports: Missing, uplinks: tuple[float, ...]) -> float:
        key = (ports, uplinks)
        if key not in self._known:
            lockstep_ps = self._job.step_ps(self._taken(ports, uplinks))
            self._known[key] = lockstep_ps * S_PER_PS + self._uneven_s
        return self._known[key]

    def under_way(self, ports: Missing, share: float) -> list[UnderWay]:
        """What is under way at this share of a step while these ports are missing."""
        return self._job.under_way(self._taken(ports, self.none), share)

    def _taken(self, ports: Missing, uplinks: tuple[float, ...]) -> Floats:
        """What phases take while these ports, or these shares of uplinks, are missing."""
        has = self._has(uplinks)
        if ports:
            nics, planes = np.array(sorted(ports)).T
            has = has._replace(out=has.out.copy(), into=has.into.copy())
            has.out[nics, planes] = has.into[nics, planes] = 0
            return self._job.worse(self._undisturbed, has, nics)
        return self._undisturbed if uplinks == self.none else self._job.taken(has)

    def _has(self, uplinks: tuple[float, ...]) -> Capacity:
        left = 1 - np.array(uplinks)
        if self._hashed is not None:
            left = left * 0 + [1 / self._hashed(share) for share in uplinks]
        each = left[:, None]
        return self._whole._replace(up=self._whole.up * each, down=self._whole.down * each)
