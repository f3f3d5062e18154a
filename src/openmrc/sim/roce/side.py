"""RoCEv2 as a `World` uses it: to build it, to run it, and to report results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import state as es
from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.jit import apart
from openmrc.sim.net import state as ss
from openmrc.sim.net.network import Ends
from openmrc.sim.net.parts import Parts
from openmrc.sim.roce import build, loop, pfc
from openmrc.sim.roce.derive import RoceDerived, derive
from openmrc.sim.roce.reader import FlowReader
from openmrc.sim.roce.state import ROCE, Roce
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.watch import books
from openmrc.sim.watch.side import Side
from openmrc.sim.watch.watched import Watched
from openmrc.units import US

PORTS_TOLD = 10  # named ones
COUNTED = (
    *("acks", "naks", "cnps", "duplicates", "discarded", "go_backs", "timeouts", "no_route"),
)


class RoceSide(Side):
    """RoCEv2 in a world."""

    values: RoceDerived
    state: Roce
    loop_advance = staticmethod(loop.advance)

    def __init__(self, parts: Parts, transport: RoceTransport) -> None:
        if transport.ack_every < 1:
            raise InputError(f"transport.ack_every: {transport.ack_every}; at least 1")
        self._transport = transport
        self.values = derive(
            parts.fabric,
            transport,
            parts.queues,
            parts.senders_per_nic,
            parts.packets_per_qp(transport.pmtu),
        )
        self.ends = Ends(parts.traffic, transport.qps)
        self.engine = build.build_engine(parts, self.ends)
        self.net = build.build_net(parts, transport, self.values, self.ends, self.engine)
        self.state = build.build_roce(
            parts, transport, self.values, self.ends, self.engine, self.net
        )
        if transport.balances:
            build.call_what_places(
                self.net, self.engine, self.state, transport.recovery == "selective"
            )

    def packets_reserved(self, links: int) -> int:
        """Return the number that an event may need; with PFC a fault may resume every link at
        once.
        """
        return loop.PACKETS_RESERVED + (links if self._transport.pfc else 0)

    def split(self, n: int) -> list[Roce]:
        """Each shard has its own counters; the rest is shared."""
        c = apart(n, ROCE)
        c[:] = self.state.c[0]
        one = [c[i : i + 1].view(np.recarray) for i in range(n)]
        return [self.state._replace(c=own) for own in one]

    def gather(self, shards: list[Roce]) -> None:
        """Sum the counters of the shards."""
        for name in COUNTED:
            self.state.c[0][name] = sum(int(of.c[0][name]) for of in shards)

    def error_of(self, net: ss.Net, message: int) -> int:
        """Why a message failed: the error of one of the QPs that it is striped over."""
        first = int(net.message.qp[message])
        errors = np.asarray(self.engine.qp.error[first : first + self._transport.qps])
        return int(errors.max())

    def counters(self, now_ps: int) -> dict[str, int]:
        """The counters that `World.counters` adds to those of every network, up to now."""
        c = self.state.c[0]
        return {
            "nack": int(c.naks),
            "duplicates": int(c.duplicates),
            "timeouts": int(c.timeouts),
            "roce.acks": int(c.acks),
            "roce.naks": int(c.naks),
            "roce.cnps": int(c.cnps),
            "roce.go_backs": int(c.go_backs),
            "roce.timeouts": int(c.timeouts),
            "roce.discarded": int(c.discarded),
            "roce.no_route": int(c.no_route),
            **self._pauses(now_ps),
        }

    def _pauses(self, now_ps: int) -> dict[str, int]:
        """The counters of PFC, over all ports."""
        pause = self.state.pause
        paused_ps = self.paused_ps(now_ps)
        return {
            "roce.pauses": int(pause.pauses.sum()),
            "roce.pause_storms": int(pause.storms.sum()),
            "roce.pause_frames": int(pause.frames_sent.sum()),
            "roce.paused_ports": int((np.asarray(pause.pauses) > 0).sum()),
            "roce.pause_us": int(paused_ps.sum()) // US,
            "roce.pause_us_max": int(paused_ps.max(initial=0)) // US,
            "roce.pfc_drops": int(self.state.buffer.drops.sum()),
        }

    def paused_ps(self, now_ps: int) -> npt.NDArray[np.int64]:
        """For how long PFC has paused the data of each directed port, ps; empty without PFC."""
        if not self._transport.pfc:
            return np.zeros(0, np.int64)
        return pfc.paused_ps(self.state.pause, now_ps)

    def pauses(self, fabric: Fabric, now_ps: int) -> list[dict[str, Any]]:
        """The ports that PFC has paused the longest: their names and for how long, us."""
        paused_ps = self.paused_ps(now_ps)
        most = np.argsort(-paused_ps, kind="stable")[:PORTS_TOLD]
        return [
            {"port": fabric.port_name(int(port)), "us": int(paused_ps[port]) / US}
            for port in most
            if paused_ps[port] > 0
        ]

    def reader(self, world: Watched, qp: int) -> FlowReader:
        """Return the reader of a QP of the workload while the world runs."""
        return FlowReader(world, qp)

    def wrong(self, world: Watched) -> list[str]:
        """Return one line for each invariant that does not hold."""
        found: list[str] = []
        for end in self.ends.sender.tolist():
            rq, q = self.state.qp[end], self.engine.qp[end]
            far = self.state.qp[int(rq.other)]
            pairs = [
                ("una <= nxt <= high", bool(rq.una <= rq.nxt <= rq.high <= rq.seq_end), True),
                ("acknowledged <= received", bool(rq.una <= far.expected <= rq.high), True),
                ("messages in the ring", bool(rq.msg_end - rq.msg_done <= rq.msg_mask + 1), True),
                ("an error is a dead QP", bool(q.state == es.ERROR), not rq.alive),
            ]
            found += books.different(f"QP {int(q.qpn):#x}: ", pairs)
            ahead = [("packets ahead", n, of) for n, of in self._ahead(end, int(rq.other))]
            found += books.different(f"QP {int(q.qpn):#x}: ", ahead)
        return found

    def _ahead(self, *ends: int) -> list[tuple[int, int]]:
        """Of the ends of a QP, the packets that they note one by one: as counted, and as noted."""
        if not self._transport.balances:
            return []
        state = self.state
        noted = np.bitwise_count(state.seen[list(ends)]).sum(axis=1)
        return [(int(state.qp.n_ahead[end]), int(n)) for end, n in zip(ends, noted, strict=True)]


SIDE = RoceSide
