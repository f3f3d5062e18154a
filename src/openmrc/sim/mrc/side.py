"""MRC as a `World` uses it: to build it, to run it, and to report results."""

from __future__ import annotations

from dataclasses import replace

from openmrc.engine import observe
from openmrc.errors import InputError
from openmrc.sim.mrc import build, htsim, loop
from openmrc.sim.mrc.derive import derive
from openmrc.sim.mrc.reader import EvReader
from openmrc.sim.mrc.transport import COUNTED, Transport
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.sim.net.parts import Parts
from openmrc.sim.watch import books
from openmrc.sim.watch.side import Side
from openmrc.sim.watch.watched import Watched


class MrcSide(Side):
    """MRC in a world."""

    loop_advance = staticmethod(loop.advance)

    def __init__(self, parts: Parts, transport: Transport) -> None:
        if htsim.is_asked_for(transport) and not transport.srv6:
            raise InputError("transport.srv6: rules = 'peer' hashes EVs by itself; leave it out")
        if transport.trim is not None:
            parts = replace(parts, queues=replace(parts.queues, trim=transport.trim))
        self.values = derive(parts.fabric, transport, parts.queues, parts.senders_per_nic)
        self.ends = Ends(parts.traffic)
        self.engine = build.build_engine(parts, transport, self.values, self.ends)
        self.net = build.build_net(parts, transport, self.values, self.ends, self.engine)

    def packets_reserved(self, links: int) -> int:
        """The number of packet records that one event may need."""
        return loop.PACKETS_RESERVED

    def error_of(self, net: ss.Net, message: int) -> int:
        """Why a message failed, an index into `ERROR_TEXTS`."""
        q, end = self.engine.qp, int(net.message.qp[message])
        return int(q.error[end]) or int(q.error[self.ends.other[end]])

    def counters(self, now_ps: int) -> dict[str, int]:
        """The counters that `World.counters` adds to those of every network, up to now."""
        counted = observe.counters(self.engine.qp)
        return {name: int(counted[own].sum()) for name, own in COUNTED.items()}

    def reader(self, world: Watched, qp: int) -> EvReader:
        """Return the reader of a QP of the workload while the world runs."""
        return EvReader(world, qp)

    def wrong(self, world: Watched) -> list[str]:
        """Check that each sender's counters agree with its window and its paths."""
        found: list[str] = []
        for end in self.ends.sender.tolist():
            pairs = observe.books(self.engine, end)
            found += books.different(f"QP {int(self.engine.qp[end].qpn):#x}: ", pairs)
        return found


SIDE = MrcSide
