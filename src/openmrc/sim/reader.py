"""Reads the sending end of one QP while a world runs: what all transports have in common, and the
EVs of MRC. `Sampler` asks for it at the end of each interval.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.engine import paths
from openmrc.sim.intervals import Array
from openmrc.sim.samples import ASSUMED_BAD, BACKUP, DENIED, IN_USE, NO_TURN, SKIP, QpSamples

if TYPE_CHECKING:
    from openmrc.sim.world import World


class QpReader(ABC):
    """The sending end of one QP of the workload, over so many paths.

    `shapes` of what `read` returns are for `Intervals`; `value` is among them if paths `move`.
    """

    def __init__(self, world: World, qp: int, n_paths: int, move: bool) -> None:
        self._world, self._number = world, qp
        self.src, self.dst = int(world.traffic.qp_src[qp]), int(world.traffic.qp_dst[qp])
        self._used_before = np.zeros(n_paths, np.int64)
        own = world.fabric.nic_port(self.dst, 0) + np.arange(world.fabric.n_planes)
        self._last_hop = world.fabric.port_reverse[own]
        self.shapes = {
            "cwnd_bytes": (0, "f4"),
            "inflight_bytes": (0, "i8"),
            "queue_bytes": (0, "i4"),
            "state": (n_paths, "u1"),
            "used": (n_paths, "f4"),
        }
        if move:
            self.shapes["value"] = (n_paths, "u4")

    def read(self) -> dict[str, Array]:
        """Now."""
        return self._read() | {
            "queue_bytes": queue_bytes(self._world.net)[self._last_hop].max(),
            "used": self._used() - self._used_before,
        }

    def note(self) -> None:
        """From here on count anew."""
        self._used_before[:] = self._used()

    def samples(self, interval_ps: int, end_ps: int, values: dict[str, Array]) -> QpSamples:
        """What was read, with names."""
        return QpSamples(
            interval_ps,
            end_ps,
            values,
            qp=self._number,
            src=self.src,
            dst=self.dst,
            **self._paths(values),
        )

    @abstractmethod
    def _read(self) -> dict[str, Array]:
        """All of `shapes` but the queue and `used`."""

    @abstractmethod
    def _used(self) -> Array:
        """Packets that each path was given so far."""

    @abstractmethod
    def _paths(self, values: dict[str, Array]) -> dict[str, Any]:
        """`evs`, `plane` and `names` of `QpSamples`, to go with these values."""


class EvReader(QpReader):
    """The paths of a QP of MRC: its EVs."""

    def __init__(self, world: World, qp: int) -> None:
        self._end = int(world.ends.sender[qp])
        q = world.engine.qp[self._end]
        self._evs = slice(int(q.ev0), int(q.ev0 + q.n_evs))
        self._move = world.transport.paths == "single"
        super().__init__(world, qp, int(q.n_evs), self._move)
        self.shapes["delay_ps"] = (0, "f4")

    def _read(self) -> dict[str, Array]:
        engine, q = self._world.engine, self._world.engine.qp[self._end]
        ev = engine.ev[self._evs]
        believed, plane = np.asarray(ev.state), np.asarray(ev.plane, np.int64)
        state = np.where(np.asarray(ev.active) != 0, IN_USE, BACKUP)
        state[believed == paths.SKIP] = SKIP
        state[(int(q.planes_ok) >> plane) & 1 == 0] = NO_TURN
        state[believed == paths.ASSUMED_BAD] = ASSUMED_BAD
        state[believed == paths.DENIED] = DENIED
        found = {
            "cwnd_bytes": q.cwnd,
            "inflight_bytes": q.inflight,
            "delay_ps": q.avg_delay,
            "state": state,
        }
        return found | ({"value": np.asarray(ev.value)} if self._move else {})

    def _used(self) -> Array:
        return np.asarray(self._world.engine.ev[self._evs].used)

    def _paths(self, values: dict[str, Array]) -> dict[str, Any]:
        ev = self._world.engine.ev[self._evs]
        evs = np.asarray(ev.value).copy()
        seen = np.union1d(evs, values["value"]) if self._move else evs
        return {
            "evs": evs,
            "plane": np.asarray(ev.plane).copy(),
            "names": {int(value): self._name(int(value)) for value in seen},
        }

    def _name(self, ev: int) -> str:
        """The first choices of a path; what hashing switches make of an EV has no name."""
        fabric = self._world.fabric
        if self._world.transport.hashed:
            return "hashed by the switches"
        ports = fabric.route(self.src, self.dst, ev)
        top = max((int(s) for s in fabric.port_switch[ports[1:]]), key=lambda s: fabric.sw_tier[s])
        return f"over {fabric.switch_name(top)}"


def queue_bytes(net: Any) -> Array:
    """Queued at each port, of all classes."""
    found: Array = np.asarray(net.port.data_bytes) + np.asarray(net.port.control_bytes)
    return found
