"""The pools of a transport whose switches choose a port for each packet: those of one that sprays.

What differs is who leaves what is broken. A switch leaves its own dead link at once. Of a link
further on it hears when routing has converged, and until then loses what it sends there; it never
hears of silence. So senders have nothing to learn of a path, and lose the same share of all packets
for as long as that lasts. A NIC leaves a plane on which its peer has no port after `failover`;
MRC's endpoints tell each other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import PORT_ALLOW, PORT_DENY, PORT_DOWN, PORT_UP
from openmrc.fabric.model import Fabric, IntArray
from openmrc.flow.health import Floats, Health
from openmrc.flow.pools import Sprayed
from openmrc.flow.rates import TINY
from openmrc.flow.state import NEVER

SEED_CONVERGENCE = 13  # purpose of a random stream, in addition to those of the packet level
ROUTED = (PORT_DOWN, PORT_UP, PORT_DENY, PORT_ALLOW)  # what routing hears of


class Balanced(Sprayed):
    """As `pools.Sprayed`. Routing converges at a time drawn from `convergence_ps`, and NICs leave
    planes `failover_ps` after a fault of `events`.
    """

    def __init__(
        self,
        fabric: Fabric,
        src: IntArray,
        dst: IntArray,
        groups: npt.NDArray[np.integer],
        events: npt.NDArray[np.void],
        convergence_ps: tuple[int, int],
        failover_ps: int,
        seed: int,
    ) -> None:
        super().__init__(fabric, src, dst, groups)
        self._events = events[np.isin(events["action"], ROUTED)]
        rng = np.random.default_rng([seed, SEED_CONVERGENCE])
        low, high = convergence_ps
        times, fault = np.unique(self._events["at_ps"], return_inverse=True)
        drawn = rng.integers(low, high + 1, len(times))[fault.reshape(-1)]
        self._switches = _Heard(fabric, self._events, self._events["at_ps"] + drawn)
        self._nics = _Heard(fabric, self._events, self._events["at_ps"] + failover_ps)
        lower, upper = fabric.port_switch, fabric.port_peer_switch
        between = (lower >= 0) & (upper >= 0)
        self._climbs = between & (fabric.sw_tier[upper] > fabric.sw_tier[lower])

    @property
    def next_at(self) -> int:
        """When something is heard of next, ps."""
        return min(self._switches.next_at, self._nics.next_at)

    def change(self, health: Health, faults: range, at_ps: int) -> None:
        """What is heard of by now is."""
        self._switches.hear(at_ps)
        self._nics.hear(at_ps)

    def broken(self, health: Health) -> Floats:
        """The share of packets that switches and NICs send where nothing passes, [flows]."""
        fabric, n = self._fabric, len(self._src)
        known = self._switches.health.up & (self._switches.health.denied & 1 == 0)
        taken = np.where(self._climbs, known & health.up, known).astype(np.float64)
        works = taken * health.works
        passes, sent = np.zeros(n), np.zeros(n)
        for plane in range(fabric.n_planes):
            out = self._src * fabric.n_planes + plane
            into = fabric.port_reverse[self._dst * fabric.n_planes + plane]
            ways, open_ways = (self._through(each, health, plane) for each in (works, taken))
            some = np.where(np.isfinite(open_ways), np.maximum(open_ways, TINY), 1)
            share = np.where(np.isfinite(ways), ways, 1) / some
            uses = (health.up[out] & self._nics.health.up[into]).astype(np.float64)
            sent += uses
            passes += uses * health.works[out] * health.works[into] * share
        found: Floats = np.where(sent > 0, 1 - passes / np.maximum(sent, 1), 0)
        return found


class _Heard:
    """The fabric as somebody hears of it: each change at its time."""

    def __init__(
        self, fabric: Fabric, events: npt.NDArray[np.void], at_ps: npt.NDArray[np.int64]
    ) -> None:
        self.health = Health(fabric, 0)
        order = np.argsort(at_ps, kind="stable")
        self._events, self._at_ps, self._n = events[order], at_ps[order], 0

    @property
    def next_at(self) -> int:
        return int(self._at_ps[self._n]) if self._n < len(self._at_ps) else NEVER

    def hear(self, at_ps: int) -> None:
        last = int(np.searchsorted(self._at_ps, at_ps, "right"))
        self.health.apply(self._events[self._n : last])
        self._n = last
