"""What a `World` asks of MRC: to build it, to run it, to tell what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.sim import books, build, loop, network
from openmrc.sim import state as ss
from openmrc.sim.derive import derive
from openmrc.sim.reader import EvReader
from openmrc.sim.transport import Queues, Transport
from openmrc.traffic import Traffic

if TYPE_CHECKING:
    from openmrc.sim.world import World


class MrcSide:
    """MRC in a world."""

    def __init__(
        self,
        fabric: Fabric,
        traffic: Traffic,
        transport: Transport,
        queues: Queues,
        schedule: FaultSchedule | None,
        seed: int,
        tapped: npt.NDArray[np.int64],
    ) -> None:
        queues = queues.under(transport)
        senders = int(np.bincount(traffic.qp_dst, minlength=1).max(initial=0))
        self.values = derive(fabric, transport, queues, senders)
        self.ends = network.Ends(traffic)
        self.engine = build.build_engine(
            fabric, traffic, transport, queues, self.values, self.ends, seed
        )
        self.net = build.build_net(
            fabric,
            traffic,
            transport,
            queues,
            self.values,
            self.ends,
            self.engine,
            schedule,
            seed,
            tapped,
        )

    def advance(self, net: ss.Net, until: int, budget: int) -> int:
        """As `sim.loop.advance`."""
        why: int = loop.advance(net, self.engine, until, budget)
        return why

    def error_of(self, net: ss.Net, message: int) -> int:
        """Why a message failed, an index into `ERROR_TEXTS`."""
        q, end = self.engine.qp, int(net.message.qp[message])
        return int(q.error[end]) or int(q.error[self.ends.other[end]])

    def counters(self, now_ps: int) -> dict[str, int]:
        """What `World.counters` has beside what every network counts, up to now."""
        q = self.engine.qp
        return {
            "sack": int(q.n_sack.sum()),
            "nack": int(q.n_nack.sum()),
            "probe": int(q.n_probe.sum()),
            "duplicates": int(q.n_dup.sum()),
            "assumed_bad": int(q.n_bad_total.sum()),
            "revived": int(q.n_revived.sum()),
            "skips": int(q.n_skips.sum()),
            "false_alarms": int(q.n_false.sum()),
            "inferred": int(q.n_inferred.sum()),
            "timeouts": int(q.n_timeouts.sum()),
            "epochs": int(q.n_epochs.sum()),
        }

    def pauses(self, fabric: Fabric, now_ps: int) -> list[dict[str, Any]]:
        """None: there is no flow control on these links."""
        return []

    def reader(self, world: World, qp: int) -> EvReader:
        """What reads a QP of the workload while the world runs."""
        return EvReader(world, qp)

    def wrong(self, world: World) -> list[str]:
        """One line for each thing in the books that is not so."""
        return books.senders(world)
