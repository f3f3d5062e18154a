"""The pools of a transport that has one path per queue pair: every directed port is one.

The paths are those that the packet level draws. Routing leaves a path that is down, or denied, when
it has converged, for one of those that are not, drawn anew. What was under way is lost; the sender
goes on when its next timer fires.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import PORT_ALLOW, PORT_DENY, PORT_DOWN, PORT_UP
from openmrc.fabric.model import Fabric
from openmrc.fabric.ways import routes
from openmrc.flow import crowded
from openmrc.flow.hashed import ways_of
from openmrc.flow.health import Floats, Health
from openmrc.flow.state import NEVER
from openmrc.sim.mrc.build import draw_evs
from openmrc.sim.mrc.derive import Derived
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net.network import Ends, Index
from openmrc.units import PS_BITS

SEED_REHASH = 12  # purpose of a random stream, in addition to those of the packet level
ROUTED = (PORT_DOWN, PORT_UP, PORT_DENY, PORT_ALLOW)  # what routing reacts to
FOR_EVER = 25  # of `exp_cnt` (MRC 1.8)
TRIES = 64  # paths drawn before a flow keeps its broken one: none reaches its peer then


class OnePath:
    """The pools of flows from `src` to `dst`, NICs, [flows]; as `pools.Sprayed`."""

    def __init__(
        self,
        fabric: Fabric,
        src: npt.NDArray[np.integer],
        dst: npt.NDArray[np.integer],
        groups: npt.NDArray[np.integer],
        transport: Transport,
        derived: Derived,
        ends: Ends,
        seed: int,
        actions: npt.NDArray[np.integer],
    ) -> None:
        self._transport, self._derived, self._actions = transport, derived, actions
        self._converges_at: set[int] = set()
        self._fabric, self._src, self._dst = fabric, src.astype(np.int64), dst.astype(np.int64)
        self._groups = groups[src] if len(groups) else np.zeros(len(src), np.int64)
        self._rng = np.random.default_rng([seed, SEED_REHASH])
        self.n_pools = fabric.n_ports
        self._evs = np.zeros(len(src), np.int64)
        for qps, _, evs, _ in draw_evs(fabric, transport, derived, ends, seed).blocks():
            these = ends.sends[qps]
            self._evs[ends.traffic_qp[qps[these]]] = evs[these, 0]
        self._rate = derived.port_rate_bps / PS_BITS

    def bytes_per_ps(self, health: Health) -> Floats:
        """What each pool carries, [pools]."""
        return health.bytes_per_ps()

    def ways(self, bytes_per_ps: Floats) -> npt.NDArray[np.int32]:
        """The pools of each flow, [flows, DATA + BACK], -1 where there is none."""
        ways = ways_of(self._ports(np.arange(len(self._src))), self._fabric.port_reverse)
        return crowded.keep(ways, self._src, self._dst, bytes_per_ps, self._rate)

    def _ports(self, flows: Index) -> npt.NDArray[np.int32]:
        return routes(self._fabric, self._src[flows], self._dst[flows], self._evs[flows])

    def planes(self, health: Health) -> Floats:
        """What the NIC's port carries of a flow that is alone, [1, flows]."""
        return np.full((1, len(self._src)), self._rate)

    def paths(self, active: int) -> Floats:
        """How many paths each flow uses, [flows]."""
        return np.ones(len(self._src))

    def broken(self, health: Health) -> Floats:
        """The share of paths on which nothing passes and the sender does not know it: of a path
        that is broken its pools carry nothing.
        """
        return np.zeros(len(self._src))

    def loses(self, health: Health) -> Floats:
        """The share of packets that each path loses on which others pass, [flows]."""
        ports = self._ports(np.arange(len(self._src)))
        passes = np.where(ports >= 0, 1 - health.loses[ports], 1).prod(axis=1)
        lost: Floats = np.where(passes > 0, 1 - passes, 0)
        return lost

    def carried(self, health: Health) -> Floats:
        """What the path of each flow carries, [flows]."""
        ports = self._ports(np.arange(len(self._src)))
        each = np.where(ports >= 0, health.bytes_per_ps()[ports], np.inf)
        carried: Floats = each.min(axis=1, initial=np.inf)
        return carried

    @property
    def next_at(self) -> int:
        """When routing converges next, ps."""
        return min(self._converges_at, default=NEVER)

    def change(self, health: Health, faults: range, at_ps: int) -> None:
        """These faults of the schedule begin or end, and routing has converged if it is due."""
        if at_ps in self._converges_at:
            self._converges_at.discard(at_ps)
            self._converge(health)
        if np.isin(self._actions[faults.start : faults.stop], ROUTED).any():
            self._converges_at.add(at_ps + self._transport.convergence_ps)

    def timer_ps(self, epoch: int) -> int:
        """How long timer number `epoch` without progress runs, ps (row 9; `engine/loss`)."""
        doublings = max(epoch - self._transport.linear_cnt + 1, 0)
        return self._derived.rto_ps << doublings

    @property
    def patience_ps(self) -> int:
        """How long a QP bears silence before it is in error (row 9)."""
        linear, exponential = self._transport.linear_cnt, self._transport.exp_cnt
        if exponential == FOR_EVER:
            return NEVER
        return sum(map(self.timer_ps, range(linear + exponential)))

    def _converge(self, health: Health) -> None:
        """Move the flows whose path is down or denied."""
        left = np.flatnonzero(self._is_out(np.arange(len(self._src)), health))
        for _ in range(TRIES):
            if not len(left):
                break
            self._evs[left] = list(self._drawn(left))
            left = left[self._is_out(left, health)]

    def _is_out(self, flows: Index, health: Health) -> npt.NDArray[np.bool_]:
        """Whether a port of their path is down or denied: silence and losses look healthy."""
        ports = self._ports(flows)
        denied = health.denied[ports] & (self._groups[flows][:, None] | 1) != 0
        out = (~health.up[ports] | denied) & (ports >= 0)
        found: npt.NDArray[np.bool_] = out.any(axis=1)
        return found

    def _drawn(self, flows: Index) -> Iterator[int]:
        for flow in flows.tolist():
            src, dst = int(self._src[flow]), int(self._dst[flow])
            plane = int(self._rng.integers(self._fabric.n_planes))
            n = self._fabric.n_paths(src, dst, plane)
            yield self._fabric.ev_of_path(src, dst, plane, int(self._rng.integers(n)))
