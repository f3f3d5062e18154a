"""A simulated world: one fabric, one workload, one transport, run in virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.engine import state as es
from openmrc.engine.parameters import PLANES_MAX
from openmrc.errors import InputError
from openmrc.fabric.actions import FaultSchedule
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.jit import interpreted
from openmrc.jit.interrupts import held_back
from openmrc.sim.kinds import side_of
from openmrc.sim.mrc.transport import COUNTED, Transport
from openmrc.sim.net import room
from openmrc.sim.net import state as ss
from openmrc.sim.net.parts import Parts
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.shards.crew import Crew
from openmrc.sim.shards.cut import Cut, Uncut, cut, entries, shards_of
from openmrc.sim.shards.split import emptied
from openmrc.sim.told import Told
from openmrc.sim.watch import ledger
from openmrc.sim.watch.capture import LinkCapture
from openmrc.sim.watch.sampler import Sampler
from openmrc.sim.watch.samples import Samples
from openmrc.traffic.traffic import Traffic

LATEST_PS = int(es.NEVER) - 1  # events at NEVER do not happen
# Between two checks of the clock: about a tenth of a second. A run begins with shorter steps, so
# that a short one too has several in its first tenth, by which its end is told.
EVENTS_A_STEP = 300_000
EVENTS_AT_FIRST = 20_000
STEPS_SO_FAR = 16


@dataclass(frozen=True)
class Progress:
    """Progress of a run."""

    now_ps: int
    flows_done: int
    flows_total: int
    link_traversals: int
    wall_s: float


class World(Told):
    """Simulates `traffic` over `fabric` with `transport`; a run is a function of its arguments, bit
    for bit.

    `schedule` is the faults (`fabric.faults.compile_faults`), `stop_ps` a time at which the run
    ends as planned. `run` may be called repeatedly with later times; results may be read at any
    time. Frames on the links of `capture`, which is of the transport's kind, are written there.

    A large fabric is cut into `shards` (None: as many as suit its size), which `threads` run in
    parallel. Results depend on the shards, and never on the threads. `uncut` says why there is only
    one shard, as the end of a sentence; "" if there are several.
    """

    def __init__(
        self,
        fabric: Fabric,
        traffic: Traffic,
        transport: Transport | RoceTransport,
        schedule: FaultSchedule | None = None,
        seed: int = 1,
        queues: Queues | None = None,
        stop_ps: int | None = None,
        capture: LinkCapture | None = None,
        shards: int | None = None,
        threads: int = 1,
    ) -> None:
        _check(fabric, traffic, transport)
        self.fabric = fabric
        self.traffic = traffic
        self.transport: Any = transport  # each kind has keys of its own
        self.seed = seed
        self.stop_ps = stop_ps
        tapped = np.zeros(0, np.int64) if capture is None else capture.ports
        parts = Parts(fabric, traffic, queues or Queues(), schedule, seed, tapped)
        self.side = side_of(transport)(parts, transport)
        self.values: Any = self.side.values
        self.ends, self.engine = self.side.ends, self.side.engine
        self.net, self.state = self.side.net, self.side.state
        self.capture = capture
        self.loop_s = 0.0
        self._sampler: Sampler | None = None
        self._ledger = ledger.Ledger()
        self.threads = threads
        self._cut = self._where_to_cut(shards_of(fabric) if shards is None else shards)
        self._crew: Crew | None = None
        self.uncut = self._cut.why if isinstance(self._cut, Uncut) else ""

    def _where_to_cut(self, shards: int) -> tuple[Cut, Any] | Uncut:
        """The shards, and which of them posts each entry of the workload."""
        found = cut(self.fabric, shards)
        if isinstance(found, Uncut):
            return found
        entry = entries(found, self.traffic, self.ends)
        return entry if isinstance(entry, Uncut) else (found, entry)

    def sample(self, qp: int | None, columns: int) -> None:
        """Sample from the start, in `columns` intervals at most; call it before `run`.

        `qp`: the one whose paths are sampled; None takes the first of those with the longest path.
        """
        assert not self.net.ctl[0].started, "what is past cannot be sampled"
        if qp is None:
            ways = self.fabric.uplinks(self.traffic.qp_src, self.traffic.qp_dst)
            qp = int(ways.argmax())
        self._sampler = Sampler(self, self.side.reader(self, qp), columns)

    def keep_account(self) -> None:
        """Have the engine tell what becomes of packets and paths; call it before `run`."""
        assert not self.net.ctl[0].started, "what is past was not told"
        self.engine = self.side.engine = ledger.kept(self.engine)

    def account(self) -> tuple[Any, int]:
        """Return the records (`engine.account.RECORD`) since the last call, in time order, and how
        many of them are missing. Where a world has shards, call it when `run` has reached the time
        that was asked for.
        """
        engines = [self.engine] if self._crew is None else self._crew.engines
        return self._ledger.records(engines)

    def samples(self) -> Samples | None:
        """Load, queues, losses and health over time; None unless `sample` asked for them."""
        return None if self._sampler is None else self._sampler.samples()

    def run(
        self, until_ps: int | None = None, progress: Callable[[Progress], None] | None = None
    ) -> bool:
        """Run until `until_ps`, `stop_ps` or the end; True when no events are left, or when a
        workload that ends with the first QP error (`Traffic.ends_on_error`) has ended.

        Ctrl-C ends it between two steps, a tenth of a second each.
        """
        if self._crew is None and not isinstance(self._cut, Uncut):
            self._crew = self._new_crew(*self._cut)
        if not self.net.ctl[0].started:
            self._step(-1, 0)  # loads the compiled code, opens the QPs
        if interpreted():  # here a step takes minutes
            return self._run(until_ps, progress, lambda: None)
        with held_back() as let_through:
            return self._run(until_ps, progress, let_through)

    def _new_crew(self, found: Cut, entry: Any) -> Crew:
        crew = Crew(self.net, self.side, found, entry, self.threads, self._ledger.take)
        self.net = emptied(self.net)
        return crew

    def _step(self, until: int, budget: int) -> int:
        """As the `advance` of the transport's loop."""
        if self._crew is None:
            return self.side.advance(self.net, until, budget)
        try:
            return self._crew.advance(until, budget)
        finally:
            self._crew.gather(self.net)
            if self.capture is not None:
                self.net = self._crew.with_taps(self.net)

    def _run(
        self,
        until_ps: int | None,
        progress: Callable[[Progress], None] | None,
        let_through: Callable[[], None],
    ) -> bool:
        until = min(t for t in (until_ps, self.stop_ps, LATEST_PS) if t is not None)
        while True:
            let_through()
            due = until if self._sampler is None else min(until, self._sampler.due_ps)
            why = self._advance(due)
            if why == ss.ROOM:
                (self.net,) = room.more_packets([self.net])
            elif why == ss.HEAP:
                self.net = room.more_heap(self.net)
            elif why == ss.TOLD:
                self._ledger.take(0, self.engine)
            elif why == ss.TIMELINE:
                (room.coarsen(self.net) if self._crew is None else self._crew.coarsen())
            elif why == ss.REACHED and due < until and self._sampler is not None:
                self._sampler.take()
                why = ss.BUDGET  # not the end
            if progress is not None:
                progress(self._progress())
            if why == ss.FINISHED:
                return True
            if why == ss.REACHED:
                return self.stop_ps is not None and until == self.stop_ps

    def _advance(self, until: int) -> int:
        started = time.perf_counter()
        most = EVENTS_A_STEP * min(self.threads, len(self.nets))
        budget = max(int(self.net.ctl[0].events) // STEPS_SO_FAR, EVENTS_AT_FIRST)
        try:
            why = self._step(until, min(budget, most))
        finally:  # in plain Python Ctrl-C arrives here: what was sent by then is kept
            self.loop_s += time.perf_counter() - started
            if self.capture is not None and (self._crew is None or self._crew.is_level):
                self.capture.take(self)
        return why

    def _progress(self) -> Progress:
        c = self.net.ctl[0]
        ended = int(c.sends_done + c.messages_failed + c.messages_orphaned)
        return Progress(int(c.now), ended, self.traffic.n_sends, int(c.traversals), self.loop_s)

    @property
    def nets(self) -> list[ss.Net]:
        """The network of each shard; `net` itself if there is one shard, else `net` has the
        sums.
        """
        return [self.net] if self._crew is None else self._crew.nets

    def net_of(self, port: int) -> ss.Net:
        """The network that has the queue of a directed port."""
        if self._crew is None or isinstance(self._cut, Uncut):
            return self.net
        return self._crew.nets[int(self._cut[0].port[port])]

    @property
    def bytes_wrong(self) -> int:
        """Payload bytes placed at a wrong address, or twice; anything but 0 is a bug."""
        return int(self.net.ctl[0].wrong_bytes)

    def derived(self) -> dict[str, int]:
        """All values derived at the start, with units in the names."""
        return self.side.values.as_dict()

    def errors(self) -> list[str]:
        """Per message, why it failed; "" where it did not."""
        texts = [""] * self.traffic.n_msgs
        # only messages fail: an entry that waits for one is an orphan
        for mi in np.flatnonzero(np.asarray(self.net.message.fate) == ss.FAILED):
            texts[mi] = es.ERROR_TEXTS[self.side.error_of(self.net, int(mi))]
        return texts

    def qp_errors(self) -> list[str]:
        """One line per QP in error: which, why, when."""
        q = self.engine.qp
        lines = []
        for i in np.flatnonzero(np.asarray(q.state) == es.ERROR):
            way = "to" if self.ends.sends[i] else "from"
            lines.append(
                f"QP {int(q.qpn[i]):#08x} of nic {int(q.nic[i])} {way} nic {int(q.peer_nic[i])}: "
                f"{es.ERROR_TEXTS[int(q.error[i])]} at {int(q.error_at[i]) / 1e6:.1f} us"
            )
        return lines

    def counters(self) -> dict[str, int]:
        """The counters of `summary.json`, and the terms of packet conservation."""
        c = self.net.ctl[0]
        return {
            "data": int(c.data_packets - c.retransmitted),
            "retransmitted": int(c.retransmitted),
            "trimmed": int(c.trimmed),
            "dropped_queue": int(c.dropped_queue + c.dropped_control),
            "dropped_fault": int(c.dropped_fault),
            "dropped_corrupt": int(c.dropped_corrupt),
            "ecn_marked": int(c.ecn_marked),
            **dict.fromkeys(COUNTED, 0),
            **self.side.counters(int(c.now)),
            "link_traversals": int(c.traversals),
            "injected": int(c.injected),
            "delivered": int(c.delivered),
            "in_flight": int(c.n_packets - c.n_free - c.n_frames),
        }

    def wrong_ends(self) -> list[str]:
        """Return one line for each invariant of the transport's endpoints that does not hold."""
        return self.side.wrong(self)

    def pauses(self) -> list[dict[str, Any]]:
        """The ports that flow control has paused the longest: `port`, its name, and `us`."""
        return self.side.pauses(self.fabric, int(self.net.ctl[0].now))

    def _timeline(self) -> npt.NDArray[np.int64]:
        return super()._timeline() if self._crew is None else self._crew.timeline()

    def _rate(self) -> npt.NDArray[np.int64]:
        return super()._rate() if self._crew is None else self._crew.rate()


def _check(fabric: Fabric, traffic: Traffic, transport: Transport | RoceTransport) -> None:
    if traffic.n_nics > fabric.n_nics:
        raise InputError(f"workload: needs {traffic.n_nics} NICs, the fabric has {fabric.n_nics}")
    if fabric.n_planes > PLANES_MAX:
        raise InputError(f"fabric.planes = {fabric.n_planes}: at most {PLANES_MAX}")
    if transport.rules == "peer" and fabric.n_planes != 1:
        raise InputError('transport.rules = "peer": needs a fabric of one plane')
    if traffic.n_qps > 1 << es.REGION_INDEX_BITS:
        raise InputError(
            f"workload: {traffic.n_qps} queue pairs; at most {1 << es.REGION_INDEX_BITS}"
        )
