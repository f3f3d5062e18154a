"""What an agent of the mapper does, as a state machine without clock and without sockets.

It is told the time and what arrived, and says what to send and what was lost. Whoever drives it,
sockets or a simulated world, does this at `next_ps`, in this order:

    agent.arrive(now_ps, heard)      what came since the last time
    agent.due(now_ps)                what to send now
    agent.report(now_ps)             what is to be told, or None

**When is a probe lost?** Not when time is over: a host or a switch that was not scheduled for a
while answers late, and for all probes at once. A probe counts as lost when it is older than
`timeout_ps` and one that was sent after it on the same plane has come back; or on another plane,
some time ago (`margin_ps`), for planes do not keep step with each other. Only where nothing at all
comes any more, for `silence_ps`, is everything lost. What comes after all is told as late and takes
its loss back.

Both times grow by what round trips have lately taken more than a tick: where hosts or switches
wait for a processor, or queues for a link, an agent says less and says it later, and nothing false.

**One-way probes** are judged by who receives them. A receiver knows the schedule, so it knows what
each NIC of its T0 sends it, and in which order. A probe is lost if a later one of the same NIC, on
whatever plane, has come. Of a NIC from which nothing comes it says nothing: it may be switched off.
Periods are counted, not timed, so an agent that is late skips nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import IntArray
from openmrc.ops.mapper.probe import BURST, CLOSING, SCHEDULED, Heard
from openmrc.ops.schedule import BURST_MAX, ONE_WAY, TURNS, Schedule
from openmrc.units import MS, S

TICK_PS = 10 * MS  # an agent wakes so often at most
TIMEOUT_PS = 5 * MS  # of a probe, at least
SILENCE_PERIODS = 10  # without any arrival
LATE_MEMORY_PS = 2 * S  # for what round trips have taken more than a tick, to be forgotten
GAP_PERIODS = 4  # that a peer is ahead: then it began anew
TELL_PS = 1 * S  # between two words, if nothing was lost
PERIODS = 1 << 32  # a period's number has so many bits
REPORTED_MAX = 4096  # losses in one report
BURSTS_MAX = 64  # of others, remembered


class Loss(NamedTuple):
    """A probe of the schedule that was lost."""

    number: int
    turn: int
    at_ps: int  # when it was sent, as near as who judges knows


class Send(NamedTuple):
    """Probes to send now, in this order. Of the schedule: `numbers` are places in the period's
    order; of a burst: rows of it, and `routes` are the directed ports that these cross, [n, hops].
    """

    kind: int
    period: int
    numbers: Sequence[int]
    routes: IntArray | None = None


class BurstReport(NamedTuple):
    """What one agent knows of a burst: the rows that it sent and that did not come back, and those
    that it received.
    """

    burst: int
    lost: tuple[int, ...]
    heard: tuple[int, ...]


@dataclass
class Report:
    """What an agent has to tell."""

    at_ps: int
    periods: int  # judged since the last report
    lost: list[Loss]
    late: list[Loss]
    bursts: list[BurstReport]


@dataclass
class _Peer:
    """The one-way probes of one NIC, as its receiver sees them. A rank is period x slots + slot."""

    frontier: int  # all of this rank and before are judged
    latest: int
    latest_ps: int  # when that came
    heard: set[tuple[int, int]] = field(default_factory=set)  # rank, plane


@dataclass
class _Burst:
    rows: frozenset[int]  # that this agent sends and awaits itself
    sent_ps: int
    back: set[int] = field(default_factory=set)
    closed: bool = False  # something that was sent after it has come


class Order(NamedTuple):
    """A period's probes of one NIC in the order in which they are sent: slot by slot, so that the
    planes take turns.
    """

    numbers: list[int]  # in the schedule
    planes: list[int]
    routes: list[list[int]]
    loops: list[bool]  # comes back here


def order(schedule: Schedule, nic: int, turn: int) -> Order:
    """Return what a NIC sends in a period of this turn."""
    n_planes, per_port = schedule.fabric.n_planes, schedule.per_port
    slot, plane = np.divmod(np.arange(n_planes * per_port), n_planes)
    numbers = (nic * n_planes + plane) * per_port + slot
    loops = schedule.kinds(turn, numbers) != ONE_WAY
    routes = schedule.routes(turn, numbers)
    return Order(numbers.tolist(), plane.tolist(), routes.tolist(), loops.tolist())


class Agent:
    """The agent of one NIC; `first_period` should grow from start to start, as a clock's does."""

    def __init__(
        self,
        schedule: Schedule,
        nic: int,
        now_ps: int,
        first_period: int = 0,
        tick_ps: int = TICK_PS,
    ) -> None:
        self.schedule, self.nic = schedule, nic
        self.ticks = max(1, schedule.period_ps // max(tick_ps, 1))
        self.tick_ps = schedule.period_ps // self.ticks
        self._timeout_ps = min(TIMEOUT_PS, self.tick_ps // 2)
        self._late_ps = 0.0  # more than a tick that a round trip took lately, at most
        self.silence_ps = SILENCE_PERIODS * schedule.period_ps
        self._due_ps = self._judged_ps = now_ps
        self.orders = [order(schedule, nic, turn) for turn in range(TURNS)]
        self._expected = _expected(schedule, nic)
        self._tick = self._first_tick = first_period * self.ticks
        self._sequence = 0  # of all that was sent
        n_planes = schedule.fabric.n_planes
        self._proofs = [-1] * n_planes  # the latest of them that came back, by plane
        self._seen: deque[tuple[int, int]] = deque()  # when the latest of any plane was seen
        self._settled = -1  # the latest of any plane, of some time ago
        self._heard_ps = now_ps
        self._came = False
        self._out: dict[tuple[int, int], tuple[int, int]] = {}  # (period, place): sequence, sent
        self._lost: dict[tuple[int, int], int] = {}  # judged so, lately: when sent
        self._peers: dict[int, _Peer] = {}
        self._missed: dict[tuple[int, int, int], int] = {}  # (NIC, rank, plane): when
        self._asked: deque[tuple[int, int, int]] = deque()
        self._bursts: dict[int, _Burst] = {}
        self._received: dict[int, set[int]] = {}  # by burst, what others sent here
        self._told_ps = now_ps
        self._report = Report(now_ps, 0, [], [], [])

    # --- what happens

    def arrive(self, now_ps: int, heard: Iterable[Heard]) -> None:
        """Take the probes that came."""
        own, out, proofs = self.nic, self._out, self._proofs
        for one in heard:
            if one.kind == SCHEDULED:
                if one.nic != own:
                    self._came_one_way(now_ps, one)
                    continue
                self._came = True
                sent = out.pop((one.period, one.number), None)
                if sent is None:
                    self._came_late(now_ps, one)
                    continue
                self._took(now_ps, sent[1])
                proofs[one.plane] = max(proofs[one.plane], sent[0])
            elif one.kind == BURST and one.nic != own:
                # Perhaps before this agent is asked to take part.
                self._received.setdefault(one.period, set()).add(one.number)
            elif one.nic == self.nic and one.period in self._bursts:
                burst = self._bursts[one.period]
                if one.kind == CLOSING:
                    burst.closed = True
                elif one.number in burst.rows:
                    burst.back.add(one.number)

    def ask(self, burst: int, port: int, n: int) -> None:
        """Take part in a burst: send its rows that begin here, count those that end here."""
        if not 0 <= port < self.schedule.fabric.n_ports or not 1 <= n <= BURST_MAX:
            return
        self._asked.append((burst, port, n))

    def count(self, burst: int) -> BurstReport:
        """Return which rows of others arrived here; to be asked when they say that they sent."""
        return BurstReport(burst, (), tuple(sorted(self._received.pop(burst, ()))))

    def due(self, now_ps: int) -> list[Send]:
        """Judge what is out, and return what to send now."""
        self._judge(now_ps)
        while len(self._received) > BURSTS_MAX:
            self._received.pop(next(iter(self._received)))
        found = [self._begin(now_ps, *asked) for asked in self._asked]
        self._asked.clear()
        sends = [send for send in found if send is not None]
        if now_ps >= self._due_ps:
            sends.append(self._scheduled(now_ps))
        return sends

    @property
    def timeout_ps(self) -> int:
        """How old a probe is at least that counts as lost."""
        return self._timeout_ps + round(self._late_ps)

    @property
    def margin_ps(self) -> int:
        """How far planes may be out of step."""
        return self.tick_ps + round(self._late_ps)

    @property
    def periods(self) -> int:
        """Periods whose probes have all been sent."""
        return (self._tick - self._first_tick) // self.ticks

    @property
    def next_ps(self) -> int:
        """When to be called again: to send, or to judge a burst."""
        bursts = [burst.sent_ps + self.timeout_ps for burst in self._bursts.values()]
        return min([self._due_ps, *(at_ps for at_ps in bursts if at_ps > self._judged_ps)])

    def report(self, now_ps: int) -> Report | None:
        """Return what is to be told now: losses at once, that all is well once a second."""
        found = self._report
        news = found.lost or found.late or found.bursts
        if not news and now_ps < self._told_ps + TELL_PS:
            return None
        found.at_ps = self._told_ps = now_ps
        rest = found.lost[REPORTED_MAX:]
        del found.lost[REPORTED_MAX:]
        self._report = Report(now_ps, 0, rest, [], [])
        return found

    # --- sending

    def _scheduled(self, now_ps: int) -> Send:
        period, part = divmod(self._tick, self.ticks)
        n = self.schedule.fabric.n_planes * self.schedule.per_port
        first, last = part * n // self.ticks, (part + 1) * n // self.ticks
        period %= PERIODS
        loops = self.orders[period % TURNS].loops
        for place in range(first, last):
            if loops[place]:
                self._out[period, place] = (self._sequence, now_ps)
            self._sequence += 1
        self._tick += 1
        if part + 1 == self.ticks:
            self._report.periods += 1
        self._due_ps = max(self._due_ps + self.tick_ps, now_ps + self.tick_ps // 2)
        return Send(SCHEDULED, period, range(first, last))

    def _begin(self, now_ps: int, burst: int, port: int, n: int) -> Send | None:
        routes = self.schedule.burst(port, n, burst % TURNS)
        fabric = self.schedule.fabric
        mine = np.flatnonzero(fabric.port_nic[routes[:, 0]] == self.nic)
        if not len(mine):
            return None
        last = routes[mine, (routes[mine] >= 0).sum(axis=1) - 1]
        back = mine[fabric.port_peer_nic[last] == self.nic]
        self._bursts[burst] = _Burst(frozenset(back.tolist()), now_ps)
        return Send(BURST, burst, mine.tolist(), routes[mine])

    # --- judging

    def _took(self, now_ps: int, sent_ps: int) -> None:
        self._late_ps = max(self._late_ps, now_ps - sent_ps - self.tick_ps)

    def _came_late(self, now_ps: int, one: Heard) -> None:
        key = (one.period, one.number)
        at_ps = self._lost.pop(key, None)
        if at_ps is not None:
            self._took(now_ps, at_ps)
            self._report.late.append(self._loss(*key, at_ps))

    def _loss(self, period: int, place: int, at_ps: int) -> Loss:
        turn = period % TURNS
        return Loss(self.orders[turn].numbers[place], turn, at_ps)

    def _judge(self, now_ps: int) -> None:
        self._late_ps *= max(0.0, 1 - (now_ps - self._judged_ps) / LATE_MEMORY_PS)
        self._judged_ps = now_ps
        if self._came:
            self._heard_ps, self._came = now_ps, False
        silent = now_ps - self._heard_ps > self.silence_ps
        old_ps = now_ps - self.timeout_ps
        self._seen.append((now_ps, max(self._proofs)))
        margin_ps = self.margin_ps
        while self._seen[0][0] <= now_ps - margin_ps:
            self._settled = self._seen.popleft()[1]
        proofs, settled, n_planes = self._proofs, self._settled, len(self._proofs)
        gone = [
            (key, sent_ps)
            for key, (sequence, sent_ps) in self._out.items()
            if sent_ps <= old_ps
            and (sequence < proofs[key[1] % n_planes] or sequence < settled or silent)
        ]
        for key, sent_ps in gone:
            del self._out[key]
            self._lost[key] = sent_ps
            self._report.lost.append(self._loss(*key, sent_ps))
        while len(self._lost) > REPORTED_MAX:
            self._lost.pop(next(iter(self._lost)))
        for nic, peer in self._peers.items():
            self._judge_peer(now_ps, nic, peer)
        for number, burst in list(self._bursts.items()):
            silent = now_ps - burst.sent_ps > self.silence_ps
            if (burst.closed and burst.sent_ps <= old_ps) or silent:
                lost = tuple(sorted(burst.rows - burst.back))
                self._report.bursts.append(BurstReport(number, lost, ()))
                del self._bursts[number]

    # --- what others send here

    def _came_one_way(self, now_ps: int, one: Heard) -> None:
        slots = self.schedule.per_port
        slot, plane = divmod(one.number, self.schedule.fabric.n_planes)
        expected = self._expected[one.period % TURNS].get(one.nic, {})
        if plane != one.plane or (slot, plane) not in expected:
            return
        rank = one.period * slots + slot
        peer = self._peers.get(one.nic)
        if peer is None or not 0 <= rank - peer.frontier + slots <= GAP_PERIODS * slots:
            # Begins, or began anew: what it sent until then nobody judges.
            self._peers[one.nic] = _Peer(rank, rank, now_ps)
            return
        if rank <= peer.frontier:
            at_ps = self._missed.pop((one.nic, rank, plane), None)
            if at_ps is not None:
                number = expected[slot, plane]
                self._report.late.append(Loss(number, one.period % TURNS, at_ps))
            return
        peer.heard.add((rank, plane))
        if rank > peer.latest:
            peer.latest, peer.latest_ps = rank, now_ps

    def _judge_peer(self, now_ps: int, nic: int, peer: _Peer) -> None:
        if peer.latest <= peer.frontier or now_ps < peer.latest_ps + self.margin_ps:
            return
        slots = self.schedule.per_port
        for period in range((peer.frontier + 1) // slots, peer.latest // slots + 1):
            turn = period % TURNS
            for (slot, plane), number in self._expected[turn].get(nic, {}).items():
                rank = period * slots + slot
                if not peer.frontier < rank <= peer.latest or (rank, plane) in peer.heard:
                    continue
                self._missed[nic, rank, plane] = peer.latest_ps
                self._report.lost.append(Loss(number, turn, peer.latest_ps))
        peer.heard = {each for each in peer.heard if each[0] > peer.latest}
        peer.frontier = peer.latest
        while len(self._missed) > REPORTED_MAX:
            self._missed.pop(next(iter(self._missed)))


def _expected(schedule: Schedule, nic: int) -> list[dict[int, dict[tuple[int, int], int]]]:
    """By turn and by NIC that sends: what comes here one way, (slot, plane) to number."""
    fabric = schedule.fabric
    t0 = int(fabric.port_peer_switch[nic * fabric.n_planes])
    n_planes, per_port = fabric.n_planes, schedule.per_port
    here = np.arange(int(fabric.sw_lo[t0]), int(fabric.sw_hi[t0]))
    first = here[0] * n_planes * per_port
    numbers = np.arange(first, first + len(here) * n_planes * per_port)
    found = []
    for turn in range(TURNS):
        kinds = schedule.kinds(turn, numbers)
        one_way = numbers[kinds == ONE_WAY]
        to = fabric.port_peer_nic[schedule.routes(turn, one_way)[:, 1]]
        by_nic: dict[int, dict[tuple[int, int], int]] = {}
        for number in one_way[to == nic].tolist():
            port, slot = divmod(number, per_port)
            src, plane = divmod(port, n_planes)
            by_nic.setdefault(src, {})[slot, plane] = number
        found.append(by_nic)
    return found
