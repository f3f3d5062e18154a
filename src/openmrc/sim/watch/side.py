"""The interface of a transport in a world: to build it, to run it, and to report results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import state as es
from openmrc.fabric.model import Fabric
from openmrc.jit.bound import Bound
from openmrc.jit.callref import address_of
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.sim.net.parts import Parts, Values
from openmrc.sim.watch.reader import QpReader
from openmrc.sim.watch.watched import Watched


class Side(ABC):
    """A transport in a world; `state` is its own, in addition to that of the engine and the
    network.
    """

    values: Values
    ends: Ends
    engine: es.State
    net: ss.Net
    state: Any = None
    loop_advance: Callable[..., int]  # the `advance` of its `loop`
    _bound: Bound | None = None

    @abstractmethod
    def __init__(self, parts: Parts, transport: Any) -> None:
        """Build it. Raises `InputError` for options that it does not support."""

    def advance(self, net: ss.Net, until: int, budget: int) -> int:
        """As the `advance` of its `loop`."""
        if self._bound is None:
            self._bound = Bound(self.loop_advance, self._parts(net), 2)
        self._bound.rebind(self._parts(net))
        return self._bound.call(until, budget)

    def advance_at(self, net: ss.Net) -> int:
        """The address of its loop's `advance`, for the shards of a world."""
        return address_of(self.loop_advance, (*self._parts(net), 0, 0))

    def _parts(self, net: ss.Net) -> tuple[Any, ...]:
        """All state that its loop works on."""
        own = () if self.state is None else (self.state,)
        return (net, self.engine, *own)

    @abstractmethod
    def packets_reserved(self, links: int) -> int:
        """The largest number of packet records that anything needs at once, in a shard into which
        so many `links` lead from others.
        """

    @property
    def changes_at(self) -> npt.NDArray[np.int64]:
        """When all shards change at once, apart from faults, as routing does: in time order, ps."""
        return np.asarray(self.net.change.at)

    def split(self, n: int) -> list[Any]:
        """Return the `state` of each of n shards, if it has one."""
        return []

    def gather(self, shards: list[Any]) -> None:
        """Write the sums of the states that `split` returned into `state`."""
        assert not shards

    @abstractmethod
    def error_of(self, net: ss.Net, message: int) -> int:
        """Why a message failed, an index into `ERROR_TEXTS`."""

    @abstractmethod
    def counters(self, now_ps: int) -> dict[str, int]:
        """The counters that `World.counters` adds to those of every network, up to now."""

    @abstractmethod
    def reader(self, world: Watched, qp: int) -> QpReader:
        """Return the reader of a QP of the workload while the world runs."""

    @abstractmethod
    def wrong(self, world: Watched) -> list[str]:
        """Return one line for each invariant that does not hold."""

    def pauses(self, fabric: Fabric, now_ps: int) -> list[dict[str, Any]]:
        """The ports that flow control has paused the longest: `port`, its name, and `us`."""
        return []
