"""The view of a simulated world for its observers: readers, invariants, captures."""

from __future__ import annotations

from typing import Any, Protocol

from openmrc.engine import state as es
from openmrc.fabric.model import Fabric
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.traffic.traffic import Traffic


class Watched(Protocol):
    """A world, such as `sim.world.World`."""

    fabric: Fabric
    traffic: Traffic
    transport: Any  # of the world's kind, and so are `values` and `state`
    seed: int
    values: Any  # what was derived from fabric and transport
    ends: Ends
    engine: es.State
    net: ss.Net
    state: Any  # what the transport keeps in addition to the engine and the network

    @property
    def now_ps(self) -> int:
        """Simulated time, ps."""

    @property
    def bytes_wrong(self) -> int:
        """Payload bytes placed at a wrong address, or twice."""

    def net_of(self, port: int) -> ss.Net:
        """The network that has the queue of a directed port."""

    def counters(self) -> dict[str, int]:
        """The counters of the network and of the transport."""

    def wrong_ends(self) -> list[str]:
        """Return one line for each invariant of the transport's endpoints that does not hold."""
