"""Reads the sending end of one QP of MRC while a world runs: its EVs."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import ev, place
from openmrc.sim.watch.intervals import Array
from openmrc.sim.watch.reader import QpReader
from openmrc.sim.watch.samples import ASSUMED_BAD, BACKUP, DENIED, IN_USE, NO_TURN, SKIP
from openmrc.sim.watch.watched import Watched


class EvReader(QpReader):
    """The paths of a QP of MRC: its EVs."""

    def __init__(self, world: Watched, qp: int) -> None:
        self._end = int(world.ends.sender[qp])
        q = world.engine.qp[self._end]
        self._evs = place.evs(q)
        self._move = world.transport.paths == "single"
        super().__init__(world, qp, self._evs.stop - self._evs.start, self._move)
        self.shapes["delay_ps"] = (0, "f4")

    def _read(self) -> dict[str, Array]:
        engine, q = self._world.engine, self._world.engine.qp[self._end]
        e = engine.ev[self._evs]
        believed, plane = np.asarray(e.state), np.asarray(e.plane, np.int64)
        state = np.where(np.asarray(e.active) != 0, IN_USE, BACKUP)
        state[believed == ev.SKIP] = SKIP
        state[(int(q.planes_ok) >> plane) & 1 == 0] = NO_TURN
        state[believed == ev.ASSUMED_BAD] = ASSUMED_BAD
        state[believed == ev.DENIED] = DENIED
        found = {
            "cwnd_bytes": q.cwnd,
            "inflight_bytes": q.inflight,
            "delay_ps": q.avg_delay,
            "state": state,
        }
        return found | ({"value": np.asarray(e.value)} if self._move else {})

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
        """The first choices of a path; a hashed EV has no name for its path."""
        fabric = self._world.fabric
        if self._world.transport.balances:
            return "every way"
        if self._world.transport.hashed:
            return "hashed by the switches"
        ports = fabric.route(self.src, self.dst, ev)
        top = max((int(s) for s in fabric.port_switch[ports[1:]]), key=lambda s: fabric.sw_tier[s])
        return f"over {fabric.switch_name(top)}"
