"""Reads the sending end of one QP while a world runs: the part common to all transports. `Sampler`
calls it at the end of each interval.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from openmrc.sim.watch.intervals import Array
from openmrc.sim.watch.samples import QpSamples
from openmrc.sim.watch.watched import Watched


class QpReader(ABC):
    """The sending end of one QP of the workload, over this many paths.

    `shapes` of what `read` returns are for `Intervals`; `value` is among them if paths `move`.
    """

    def __init__(self, world: Watched, qp: int, n_paths: int, move: bool) -> None:
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
        """Read the current values."""
        return self._read() | {
            "queue_bytes": queue_bytes(self._world.net)[self._last_hop].max(),
            "used": self._used() - self._used_before,
        }

    def note(self) -> None:
        """Restart the counts of an interval."""
        self._used_before[:] = self._used()

    def samples(self, interval_ps: int, end_ps: int, values: dict[str, Array]) -> QpSamples:
        """Return the samples, with names."""
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
        """Read all of `shapes` but the queue and `used`."""

    @abstractmethod
    def _used(self) -> Array:
        """Packets sent on each path so far."""

    @abstractmethod
    def _paths(self, values: dict[str, Array]) -> dict[str, Any]:
        """`evs`, `plane` and `names` of `QpSamples`, matching these values."""


def queue_bytes(net: Any) -> Array:
    """Bytes queued at each port, over all classes."""
    port = net.port
    found: Array = np.asarray(port.data_queued_bytes) + np.asarray(port.control_queued_bytes)
    return found
