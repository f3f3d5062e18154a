"""The shards of a world, and the threads that run them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from openmrc.engine import state as es
from openmrc.jit import records
from openmrc.jit.beside import cores
from openmrc.jit.bound import Bound
from openmrc.jit.byref import Kept
from openmrc.sim.net import room
from openmrc.sim.net import state as ss
from openmrc.sim.shards import windows
from openmrc.sim.shards.cut import EVERY, Cut, Index, of_faults
from openmrc.sim.shards.split import split
from openmrc.sim.watch.side import Side

LOOKS = 300_000  # some 100 us: longer than a thread waits for the last shard as a rule
ALONE_EVENTS = 1000  # a window of fewer is handled by one thread
SUMS = (
    *("sends_done", "messages_done", "messages_failed", "messages_orphaned", "messages_open"),
    *("wrong_bytes", "verified_bytes", "traversals", "injected", "delivered", "trimmed"),
    *("dropped_queue", "dropped_control", "dropped_fault", "dropped_corrupt", "ecn_marked"),
    *("data_packets", "retransmitted", "events", "n_packets", "n_free", "n_frames"),
)


class Crew:
    """Runs the shards of a world on `threads` threads; `nets` and `engines` are the shards'.

    `side` is that of the transport; `entry` says which shard posts each entry of the workload;
    `heed` takes the account of a shard, which has many records.
    """

    def __init__(
        self,
        whole: ss.Net,
        side: Side,
        cut: Cut,
        entry: Index,
        threads: int,
        heed: Callable[[int, es.State], None],
    ) -> None:
        self._heed = heed
        self._side = side
        self._controls, self.nets, self.engines = split(whole, side.engine, cut, entry)
        self._agenda = _agenda(cut, whole.fault, side.changes_at)
        self._shard = records(cut.n, windows.SHARD)
        self._shard.why = windows.GO_ON
        self._shard.done_until = -2
        pairs = zip(self.nets, self.engines, strict=True)
        self._kept = [(Kept(net), Kept(st)) for net, st in pairs]
        self._own = [Kept(state) for state in side.split(cut.n)]
        for row, own in zip(self._shard, self._own, strict=bool(self._own)):
            row.own = own.address
        self._crew = records(1, windows.CREW)
        self._plan = windows.Plan(self._crew, self._shard, self._agenda)
        self._resume, self._work_of, self._level = bound(*self._common())
        self._say_where()
        c = self._crew[0]
        c.advance, c.window_ps = side.advance_at(whole), cut.window_ps
        c.packets_reserved = side.packets_reserved(cut.links_into)
        c.start = c.end = -1  # the QPs have not been opened yet
        c.threads = max(1, min(threads, cut.n))
        c.looks = LOOKS if c.threads <= cores() else 0
        c.alone_below = ALONE_EVENTS
        # its threads wait for work, and end with the crew
        self._others = ThreadPoolExecutor(int(c.threads) - 1) if c.threads > 1 else None

    def advance(self, until: int, budget: int) -> int:
        """As a transport's `advance`, of all shards; only `TIMELINE` is left to the caller."""
        while True:
            why = self._step(until, budget)
            if why != windows.HELP:
                return why
            if (self._shard.why == ss.ROOM).any():
                self._more_packets()
            for i in np.flatnonzero(self._shard.why != windows.GO_ON).tolist():
                self._help(i, int(self._shard.why[i]))

    def coarsen(self) -> None:
        """Make the bins of the timelines twice as wide."""
        for net in self.nets:
            room.coarsen(net)

    def _step(self, until: int, budget: int) -> int:
        c = self._crew[0]
        little = 0 < c.events < c.alone_below  # in the step before: not worth waking others
        if not self._resume.call(until, budget):
            return int(c.why)
        others = []
        if self._others is not None and not little:
            others = [self._others.submit(self._work, me) for me in range(1, int(c.threads))]
        try:
            self._work_of.call(0)
        finally:
            self._send_home()
            for other in others:
                other.result()
        return int(c.why)

    def _work(self, me: int) -> None:
        try:
            self._work_of.call(me)
        finally:
            self._send_home()

    def _send_home(self) -> None:
        """Make sure that no thread waits for one that failed, which happens only in plain
        Python.
        """
        c = self._crew[0]
        if not c.stopped:
            c.why, c.halted, c.stopped = ss.BUDGET, 1, 1
            c.moves += 1

    def _common(self) -> tuple[Any, ...]:
        """What each of the compiled functions gets: the first shard's state stands for its type."""
        return self._plan, self.nets[0], self.engines[0]

    def _say_where(self) -> None:
        self._resume.rebind(self._common())
        self._work_of.rebind(self._common())
        self._level.rebind(self._common()[:2])
        for row, (net, engine) in zip(self._shard, self._kept, strict=True):
            row.net, row.st = net.address, engine.address

    def _more_packets(self) -> None:
        """A shard has no free packet index left: it gets some of the other shards' free ones, if
        they have enough for a while, or all get new ones.
        """
        parts, n = self._controls, len(self.nets)
        enough = max(parts["n_packets"].sum() // 64, 2 * n * int(self._crew[0].packets_reserved))
        if parts["n_free"].sum() < enough:
            self.nets = room.more_packets(self.nets)
            for i, net in enumerate(self.nets):
                self._keep(i, net)
            self._say_where()
        self._level.call()
        self._shard.why[self._shard.why == ss.ROOM] = windows.GO_ON

    def _help(self, i: int, why: int) -> None:
        if why == ss.TOLD:
            self._heed(i, self.engines[i])
        else:
            more = {ss.HEAP: room.more_heap, ss.TAPPED: room.more_taps}
            self.nets[i] = more[why](self.nets[i])
            self._keep(i, self.nets[i])
            self._say_where()
        self._shard[i].why = windows.GO_ON

    def _keep(self, i: int, net: ss.Net) -> None:
        if net is not self._kept[i][0].value:
            self._kept[i] = (Kept(net), self._kept[i][1])

    @property
    def is_level(self) -> bool:
        """Whether all shards have reached the same time."""
        done: bool = (self._shard.done_until == self._shard.done_until[0]).all()
        return done

    def gather(self, into: ss.Net) -> None:
        """Write the sums over all shards into the control record of the whole, and the transport's
        sums into its own.
        """
        self._side.gather([own.value for own in self._own])
        # plain arrays: attributes of NumPy's recarrays cost more than all sums, after each step
        whole, parts = into.ctl.view(np.ndarray)[0], self._controls.view(np.ndarray)
        sums = map(sum, zip(*parts[list(SUMS)].tolist(), strict=True))
        for name, total in zip(SUMS, sums, strict=True):
            whole[name] = total
        whole["messages_open"] -= len(self.nets)  # see `split`
        whole["started"] = parts["started"].min()
        whole["placed_at"] = parts["placed_at"].max()
        whole["bin_ps"] = parts["bin_ps"][0]
        whole["ended"] = parts["ended"].max()
        ended = parts["now"][parts["ended"] != 0]
        whole["now"] = ended.min() if len(ended) else parts["now"].max()
        lost = parts["first_fault_drop_at"]
        lost = lost[lost >= 0]
        whole["first_fault_drop_at"] = lost.min() if len(lost) else -1

    def timeline(self) -> Any:
        """As `Net.timeline`, of all."""
        return sum(net.timeline for net in self.nets)

    def rate(self) -> Any:
        """As `Net.rate`, of all."""
        return sum(net.rate for net in self.nets)

    def with_taps(self, into: ss.Net) -> ss.Net:
        """Return the whole with what tapped ports have recorded in all shards, by time; the shards'
        records are cleared. Nothing is taken unless all shards have reached the same time: before
        that the order is not final.
        """
        if not self.is_level:
            return into
        counts = [int(net.ctl[0].tap_n) for net in self.nets]
        noted = list(zip(self.nets, counts, strict=True))
        tap = np.concatenate([net.tap[:n] for net, n in noted])
        packet = np.concatenate([net.tap_packet[:n] for net, n in noted])
        order = np.lexsort((tap["port"], tap["at"]))
        taps, packets = records(len(tap), tap.dtype), records(len(tap), packet.dtype)
        taps[:], packets[:] = tap[order], packet[order]
        for net in self.nets:
            net.ctl[0].tap_n = 0
        into.ctl[0].tap_n = len(taps)
        return into._replace(tap=taps, tap_packet=packets)


def bound(plan: windows.Plan, net: ss.Net, engine: Any) -> tuple[Bound, Bound, Bound]:
    """The compiled functions of a crew: `windows.resume`, `work` and `level`. They call the loop of
    the transport by its address.
    """
    return (
        Bound(windows.resume, (plan, net, engine), 2),
        Bound(windows.work, (plan, net, engine), 1),
        Bound(windows.level, (plan, net), 0),
    )


def _agenda(cut: Cut, fault: Any, changes_at: Index) -> Any:
    """What happens between two windows: the faults of a schedule, then the transport's changes."""
    n_faults = len(fault)
    agenda = records(n_faults + len(changes_at), windows.AGENDA)
    at = np.concatenate([np.asarray(fault.at_ps), changes_at])
    order = np.argsort(at, kind="stable")
    following = np.searchsorted(fault.at_ps, at[order], side="right")
    agenda.at = at[order]
    agenda.fault_at = np.append(fault.at_ps, es.NEVER)[following]
    agenda.shard = np.append(of_faults(cut, fault), np.full(len(changes_at), EVERY))[order]
    agenda.number = order
    return agenda
