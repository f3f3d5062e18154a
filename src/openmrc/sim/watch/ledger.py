"""The accounts of a world's engines, one a shard, as one (`engine.account`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import account
from openmrc.engine.state import State
from openmrc.sim.net.state import EVENTS_BETWEEN_CHECKS

DUE = 4096  # records: so many are worth a reader's call


def kept(st: State) -> State:
    """Return an engine that keeps an account, with room for all that the events decide between two
    looks at how full it is.
    """
    evs, qps = int(st.qp.n_evs.max(initial=0)), int(st.nic.n_qps.max(initial=0))
    return account.kept(st, DUE + EVENTS_BETWEEN_CHECKS * account.most(st, evs, qps), DUE)


class Ledger:
    """Takes the records of the shards, whenever one has many, and returns them in one order: by
    time, and those of one instant by shard. It depends neither on threads nor on the steps in which
    a run is requested, if all shards have reached the time at which it is asked.
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[Any]] = {}
        self._missing = 0

    def take(self, shard: int, engine: State) -> None:
        """Take what one shard has recorded since the last time."""
        found, missing = account.take(engine)
        self._missing += missing
        self._parts.setdefault(shard, []).append(np.asarray(found))

    def records(self, engines: list[State]) -> tuple[Any, int]:
        """Return the records of all since the last call, and how many more found no room."""
        for shard, engine in enumerate(engines):
            self.take(shard, engine)
        found = np.concatenate([part for _, each in sorted(self._parts.items()) for part in each])
        missing, self._missing, self._parts = self._missing, 0, {}
        if len(engines) > 1:
            found = found[np.argsort(found["at"], kind="stable")]
        return found, missing
