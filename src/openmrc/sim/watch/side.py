"""What a world asks of its transport, whichever that is: to be built, to go on, to tell what came
of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from openmrc.engine import state as es
from openmrc.fabric.model import Fabric
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.sim.net.parts import Parts, Values
from openmrc.sim.watch.reader import QpReader
from openmrc.sim.watch.watched import Watched


class Side(ABC):
    """A transport in a world; `state` is what it keeps beside the engine and the network."""

    values: Values
    ends: Ends
    engine: es.State
    net: ss.Net
    state: Any = None

    @abstractmethod
    def __init__(self, parts: Parts, transport: Any) -> None:
        """Build it. Raises `InputError` for what it does not do."""

    @abstractmethod
    def advance(self, net: ss.Net, until: int, budget: int) -> int:
        """As the `advance` of its `loop`."""

    def advance_at(self, net: ss.Net) -> int:
        """Where the `advance` of its `loop` is, for the shards of a world; 0 if it has none."""
        return 0

    @property
    def packets_reserved(self) -> int:
        """More than one event ever needs."""
        return 0

    @abstractmethod
    def error_of(self, net: ss.Net, message: int) -> int:
        """Why a message failed, an index into `ERROR_TEXTS`."""

    @abstractmethod
    def counters(self, now_ps: int) -> dict[str, int]:
        """What `World.counters` has beside what every network counts, up to now."""

    @abstractmethod
    def reader(self, world: Watched, qp: int) -> QpReader:
        """What reads a QP of the workload while the world runs."""

    @abstractmethod
    def wrong(self, world: Watched) -> list[str]:
        """One line for each thing in the books that is not so."""

    def pauses(self, fabric: Fabric, now_ps: int) -> list[dict[str, Any]]:
        """The ports that flow control has held the longest: `port`, its name, and `us`."""
        return []
