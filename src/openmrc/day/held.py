"""What failures hold at present: ports of NICs, and shares of the uplinks of T0s and blocks.

It changes with each failure and repair, hundreds of thousands of times, so what steps depend on is
kept up to date, not gathered: the ports that are missing, and in each tier the largest share of
uplinks that one T0, or one block, lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from openmrc.day.failures import Failures
from openmrc.day.steps import Missing
from openmrc.planning.reliability import PATHS, PORT
from openmrc.planning.sizing import Design

DIGITS = 9  # of a share: what failures add and repairs take away again is zero


class Held:
    """What the failures of `failures` hold of a fabric whose steps know so many `tiers` of links
    between switches, and of the NICs of one job, `mine` [NICs].
    """

    def __init__(
        self, failures: Failures, design: Design, tiers: int, mine: npt.NDArray[np.bool_]
    ) -> None:
        self._mine = None if mine.all() else mine.tolist()
        self.design = design
        self._kinds = failures.kinds
        columns = failures.kind, failures.nic, failures.plane
        self._kind, self._nic, self._plane = (column.tolist() for column in columns)
        reach = [design.reach(tier) for tier in range(design.tiers)]
        self._tier = [  # of each kind
            min(next((t for t, nics in enumerate(reach) if k.nics <= nics), 0), tiers - 1)
            for k in failures.kinds
        ]
        self.ports: dict[tuple[int, int], int] = {}  # missing, and by how many failures
        self._lacking: Missing | None = frozenset()  # the same as a key; None: to be made
        self._uplinks: dict[tuple[int, int], float] = {}  # (kind's NICs, first): missing share
        self._shares: list[Counter[float]] = [Counter() for _ in range(tiers)]  # how many lack it

    def nics(self, number: int) -> Sequence[int]:
        """The job's NICs below a failure."""
        first, kind = self._nic[number], self._kinds[self._kind[number]]
        below = range(first, min(first + kind.nics, self.design.nics))
        mine = self._mine
        return below if mine is None else [nic for nic in below if mine[nic]]

    def add(self, number: int, by: int) -> None:
        """A failure begins (1) or ends (-1) to take ports or paths."""
        k = self._kind[number]
        kind = self._kinds[k]
        if kind.takes == PORT:
            self._lacking = None
            plane = self._plane[number]
            for nic in self.nics(number):
                held = self.ports.get((nic, plane), 0) + by
                if held > 0:
                    self.ports[nic, plane] = held
                else:
                    self.ports.pop((nic, plane), None)
        elif kind.takes == PATHS:
            shares, key = self._shares[self._tier[k]], (kind.nics, self._nic[number])
            before = self._uplinks.get(key, 0.0)
            after = round(before + by * kind.share / self.design.planes, DIGITS)
            for share, more in ((before, -1), (after, 1)):
                if share > 0:
                    shares[share] += more
                    if not shares[share]:
                        del shares[share]
            if after > 0:
                self._uplinks[key] = after
            else:
                self._uplinks.pop(key, None)

    def replace(self, hosts: Iterable[int], per_host: int) -> None:
        """Hosts with all their ports take the place of these."""
        gone = set(hosts)
        for key in [key for key in self.ports if key[0] // per_host in gone]:
            del self.ports[key]
            self._lacking = None

    def lost(self, number: int) -> list[int]:
        """The NICs below a failure that have no port left."""
        planes = range(self.design.planes)
        return [nic for nic in self.nics(number) if all((nic, k) in self.ports for k in planes)]

    def now(self) -> tuple[Missing, tuple[float, ...]]:
        """The ports that are missing, and in each tier the most that is missing of uplinks."""
        if self._lacking is None:
            self._lacking = frozenset(self.ports)
        return self._lacking, tuple([max(shares, default=0.0) for shares in self._shares])
