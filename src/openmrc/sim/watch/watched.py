"""The view of a simulated world for its observers: readers, invariants, captures."""

from __future__ import annotations

from typing import Any, Protocol

from openmrc.engine import state as es
from openmrc.fabric.model import Fabric
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.traffic.traffic import Traffic


class Watched(Protocol):
    """A world, as `sim.world.World` is one."""

    fabric: Fabric
    traffic: Traffic
    transport: Any  # of the kind that the world is of, and so are `values` and `state`
    seed: int
    values: Any  # what followed from fabric and transport
    ends: Ends
    engine: es.State
    net: ss.Net
    state: Any  # what the transport keeps beside the engine and the network

    @property
    def now_ps(self) -> int:
        """Simulated time."""

    @property
    def bytes_wrong(self) -> int:
        """Payload bytes placed at a wrong address, or again."""

    def net_of(self, port: int) -> ss.Net:
        """The network that has the queue of a directed port."""

    def counters(self) -> dict[str, int]:
        """What the network and the transport have counted."""

    def wrong_ends(self) -> list[str]:
        """Return one line for each invariant of the transport's endpoints that does not hold."""
