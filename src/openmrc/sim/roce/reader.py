"""Reads the flow of one QP while a RoCE world runs, for the pictures of a report.

A bundle's QPs are its paths: each has one, hashed, and its UDP source port stands for it. (Where
switches balance a QP has no path of its own.) In place
of MRC's window, it reports the bytes that the rate limiters allow in a base round trip; no delay is
measured, so there is no `delay_ps`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.sim.roce import ecmp
from openmrc.sim.watch.intervals import Array
from openmrc.sim.watch.reader import QpReader
from openmrc.sim.watch.samples import IN_USE, NO_TURN
from openmrc.sim.watch.watched import Watched
from openmrc.units import PS_BITS

ABOVE_PORTS = 1 << 16


class FlowReader(QpReader):
    """The paths of a QP of the workload: the QPs of its bundle."""

    def __init__(self, world: Watched, qp: int) -> None:
        n = int(world.state.c[0].qps)
        first = int(world.state.bundle[qp].sender)
        self._ends = np.arange(first, first + n)
        super().__init__(world, qp, n, move=True)

    def _read(self) -> dict[str, Array]:
        rq = self._world.state.qp[self._ends]
        pmtu = self._world.transport.pmtu
        return {
            "cwnd_bytes": np.float32(self._rate_bps() * self._world.values.base_rtt_ps / PS_BITS),
            "inflight_bytes": (np.asarray(rq.nxt) - np.asarray(rq.una)).sum() * pmtu,
            "state": np.where(np.asarray(rq.plane) >= 0, IN_USE, NO_TURN),
            "value": np.array([self._top(end) for end in self._ends.tolist()], np.uint32),
        }

    def _rate_bps(self) -> float:
        """The sum of the rate limiters, each at most a port's rate."""
        if self._world.state.c[0].paced:
            return float(self._world.state.limiter.rate_bps[self._ends].sum())
        return float(self._world.values.port_rate_bps * len(self._ends))

    def _used(self) -> Array:
        return np.asarray(self._world.state.qp[self._ends].high)

    def _paths(self, values: dict[str, Array]) -> dict[str, Any]:
        qp = self._world.state.qp[self._ends]
        tops = [self._top(end) for end in self._ends.tolist()]
        seen = np.union1d(np.array(tops, np.uint32), values["value"])
        by_port = zip(np.asarray(qp.sport).tolist(), tops, strict=True)
        return {
            "bundle": True,
            "evs": np.asarray(qp.sport).astype(np.uint32),
            "plane": np.maximum(np.asarray(qp.plane), 0),
            "names": {int(top): self._name(int(top)) for top in seen}
            | {port: self._name(top) for port, top in by_port},
        }

    def _top(self, end: int) -> int:
        """The highest switch of a flow's path, as a number above all ports; 0 if there is none."""
        ports = way_of(self._world, end)
        fabric = self._world.fabric
        switches = [int(s) for s in fabric.port_switch[ports] if s >= 0]
        if not switches:
            return 0
        return ABOVE_PORTS + max(switches, key=lambda s: int(fabric.sw_tier[s]))

    def _name(self, top: int) -> str:
        if top:
            return f"over {self._world.fabric.switch_name(top - ABOVE_PORTS)}"
        return "every way" if self._world.net.calls[0].egress else "no way"


def way_of(world: Watched, end: int) -> list[int]:
    """The directed ports on the current path of a QP's end; none if there is no route."""
    rq = world.state.qp[end]
    if rq.plane < 0 or world.net.calls[0].egress:
        return []
    ports: Any = np.zeros(ecmp.PORTS_OF_A_PATH, np.int64)
    ways = (int(rq.nic), int(rq.peer_nic), int(rq.plane), int(rq.flow))
    n = ecmp.way(world.net, *ways, ports)
    return [int(port) for port in ports[: int(n)]]
