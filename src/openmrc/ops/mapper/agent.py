"""An agent of the mapper, as a state machine without clock and without sockets.

Its inputs are the time and the probes that arrived, its outputs the probes to send and those that
were lost. The driver, sockets or a simulated world, calls it at `next_ps`, in this order:

    agent.arrive(now_ps, payloads)   probes that arrived since the last call
    agent.due(now_ps)                probes to send now
    agent.report(now_ps)             the report for the controller, or None

**When is a probe lost?** Not when a timeout alone has passed: a host or a switch that was not
scheduled for a while answers late, and for all probes at once, or for those that it had not handled
yet. So an agent that misses a probe of the age of `timeout_ps` sends a check, a local loop on each
plane: if that returns, whatever stood still runs again, and the probe, if it is not back by then,
is lost. What misses the plane's check too, as its own link may, is lost `margin_ps` after one has
returned on another plane, because planes are not in step with each other. Only when nothing
at all has arrived for `silence_ps` is everything lost. A probe that arrives after all is reported
as late and cancels its loss.

A burst is judged by a check that was sent `timeout_ps` after it and that nothing more of it
followed: its probes, and those of other bursts, queue one behind another for the suspect's port,
which checks do not cross. They also cross up to three times as many links, so it is judged when the
check could have gone its way three times, or `margin_ps` after the burst. If the burst's plane
returns no check, another's counts half of `margin_ps` later.

All these times grow, for two seconds, by what was too short for a probe that came after a check
that it should have preceded: if queues or switches make probes late, an agent reports less and
later, but nothing false twice.

It wakes to send, and once after sending to check for arrivals; more often only while a probe is
out. The processing of each probe is compiled (`tally`).

**One-way probes** are judged by their receiver. A receiver knows the schedule, so it knows what
each NIC of its T0 sends it, and in which order. A probe is lost if one that the same NIC sent after
it, on any plane, has arrived, and then a check of the receiver's own, half of `margin_ps` ago: a
sender may stand still between any two. A receiver does not report on a NIC from which nothing
arrives: it may be switched off. On an ordinary network nothing returns that could be a check: there
the time of `margin_ps` grows by what a later probe has overtaken, for a busy host hands on what
came to one core long after what came to another. Periods are counted, not timed, so an agent that
is late skips nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import IntArray
from openmrc.jit.bound import Bound, column
from openmrc.ops.mapper import tally
from openmrc.ops.mapper.probe import BURST, CHECK, SCHEDULED, ByteArray
from openmrc.ops.mapper.tally import LOSSES_MAX, ROOM
from openmrc.ops.schedule import BURST_MAX, HOPS_MAX, ONE_WAY, TURNS, Schedule
from openmrc.units import MS, S

TICK_PS = 20 * MS  # the shortest time between two sends of an agent
LOOK_PS = 5 * MS  # after sending it checks for arrivals; again, while a probe is out
MARGIN_PS = 10 * MS  # by which planes may be out of step
SILENCE_PERIODS = 10  # without any arrival ...
SILENCE_PS = 1 * S  # ... and this long: a busy machine stalls for less
TELL_PS = 1 * S  # between two reports, if nothing was lost
LONGER = HOPS_MAX // 2  # a probe's way than a check's, at most
PERIODS = 1 << 32  # the width of a period's number
REPORTED_MAX = LOSSES_MAX  # losses in one report
BURSTS_MAX = 64  # bursts of others that are remembered


class Loss(NamedTuple):
    """A probe of the schedule that was lost."""

    number: int
    turn: int
    at_ps: int  # when it was sent, as precisely as its judge knows


class Send(NamedTuple):
    """Probes to send now, in this order. For the schedule: `numbers` are positions in the period's
    order; for a burst: its rows, and `routes` are the directed ports that these cross, [n, hops];
    for a check: planes.
    """

    kind: int
    period: int
    numbers: Sequence[int]
    routes: IntArray | None = None


class Round(NamedTuple):
    """Probes of the schedule that an agent has asked, and of which it knows what became: all of its
    own of this turn, or these.
    """

    turn: int
    at_ps: int
    numbers: tuple[int, ...] | None = None


class BurstReport(NamedTuple):
    """What one agent knows of a burst: the rows that it sent and that did not return, those that it
    received, and those that it sent and can say nothing of.
    """

    burst: int
    lost: tuple[int, ...]
    heard: tuple[int, ...]
    unknown: tuple[int, ...] = ()


@dataclass
class Report:
    """An agent's report."""

    at_ps: int
    periods: int  # judged since the last report
    lost: list[Loss]
    late: list[Loss]
    bursts: list[BurstReport]
    rounds: list[Round] = field(default_factory=list)  # of agents that tell them


@dataclass
class _Burst:
    rows: frozenset[int]  # that this agent sends and awaits itself
    plane: int
    sent_ps: int
    checked_ps: int = -tally.NEVER_PS  # when the check was sent after which the last of it came
    back: set[int] = field(default_factory=set)


class Order(NamedTuple):
    """A period's probes of one NIC in the order in which they are sent: slot by slot, so that the
    planes take turns.
    """

    numbers: list[int]  # in the schedule
    planes: list[int]
    routes: list[list[int]]
    loops: list[bool]  # whether it returns here


def order(schedule: Schedule, nic: int, turn: int) -> Order:
    """Return what a NIC sends in a period of this turn."""
    n_planes, per_port = schedule.fabric.n_planes, schedule.per_port
    slot, plane = np.divmod(np.arange(n_planes * per_port), n_planes)
    numbers = (nic * n_planes + plane) * per_port + slot
    loops = schedule.kinds(turn, numbers) != ONE_WAY
    routes = schedule.routes(turn, numbers)
    return Order(numbers.tolist(), plane.tolist(), routes.tolist(), loops.tolist())


class Agent:
    """The agent of one NIC; `first_period` should grow from start to start, as a clock does."""

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
        self.silence_ps = max(SILENCE_PERIODS * schedule.period_ps, SILENCE_PS)
        self.orders = [order(schedule, nic, turn) for turn in range(TURNS)]
        self.may_check = any(any(one.loops) for one in self.orders)
        self._first_tick = first_period * self.ticks
        self.tally = _tally(self, now_ps)
        self._arrive = Bound(tally.arrive, (self.tally,), 2)
        self._due = Bound(tally.due, (self.tally,), 1)
        self._book = {name: column(self.tally.book, name) for name in tally.BOOK.names or ()}
        self._asked: deque[tuple[int, int, int]] = deque()
        self._bursts: dict[int, _Burst] = {}
        self._received: dict[int, set[int]] = {}  # by burst, the rows of others received here
        self._told_ps = now_ps
        self._told_periods = 0
        self._judged: list[BurstReport] = []

    # --- inputs and outputs

    def arrive(self, now_ps: int, payloads: ByteArray) -> None:
        """Process the probes that arrived, [n, `PAYLOAD_BYTES`]."""
        for first in range(0, len(payloads), ROOM):
            part = payloads[first : first + ROOM]
            self.tally.inbox[: len(part)] = part
            others = self._arrive.call(len(part), now_ps)
            if others:
                self.came(others)

    def came(self, others: int) -> None:
        """Process the probes of bursts that the tally has just taken."""
        for kind, nic, number, row, checked_ps in self.tally.other[:others].tolist():
            if nic != self.nic:
                if kind == BURST and row < BURST_MAX:  # perhaps before this agent is asked for it
                    self._received.setdefault(number, set()).add(row)
            elif (burst := self._bursts.get(number)) is not None and row in burst.rows:
                burst.back.add(row)
                burst.checked_ps = checked_ps

    def ask(self, burst: int, port: int, n: int) -> None:
        """Take part in a burst: send its rows that start here, count those that end here."""
        if not 0 <= port < self.schedule.fabric.n_ports or not 1 <= n <= BURST_MAX:
            return
        self._asked.append((burst, port, n))

    def count(self, burst: int) -> BurstReport:
        """Return which rows of others arrived here; to be called after their senders reported."""
        return BurstReport(burst, (), tuple(sorted(self._received.pop(burst, ()))))

    def due(self, now_ps: int) -> list[Send]:
        """Judge the probes that are out, and return those to send now."""
        tick = self._due.call(now_ps)
        checks = self._checks()
        sends = [*checks, *self.bursts(now_ps)]
        return sends if tick < 0 else [*sends, self._of_tick(tick)]

    def bursts(self, now_ps: int) -> list[Send]:
        """Judge the bursts that are out, and return those to send now: all that remains to be done
        if the tally runs by itself (`loop`).
        """
        while len(self._received) > BURSTS_MAX:
            self._received.pop(next(iter(self._received)))
        if not self._bursts and not self._asked:
            return []
        for number, burst in list(self._bursts.items()):
            self._judge_burst(now_ps, number, burst)
        found = [self._begin(now_ps, *asked) for asked in self._asked]
        self._asked.clear()
        self._book["busy"][0] = len(self._bursts)
        sends = [send for send in found if send is not None]
        self._look_for_bursts(now_ps)
        return sends

    def left(self, now_ps: int, sends: Sequence[Send]) -> None:
        """Count these bursts' time from now: to send them took a while."""
        for send in sends:
            self._bursts[send.period].sent_ps = now_ps
        self._look_for_bursts(now_ps)

    @property
    def misses(self) -> bool:
        """Whether something was lost that is not reported yet."""
        return bool(self._book["n_lost"][0])

    @property
    def timeout_ps(self) -> int:
        """The minimum age of a probe that counts as lost, ps."""
        return int(self._book["timeout_ps"][0]) + self._late_ps

    @property
    def margin_ps(self) -> int:
        """The time by which planes may be out of step, ps."""
        return int(self._book["margin_ps"][0]) + self._late_ps

    @property
    def _late_ps(self) -> int:
        return int(tally.lateness(self._book["late_ps"][0]))

    @property
    def periods(self) -> int:
        """Periods whose probes have all been sent."""
        return int(self._book["next_tick"][0] - self._first_tick) // self.ticks

    @property
    def next_ps(self) -> int:
        """When to call it again, ps: to send, or to check for arrivals."""
        return int(min(self._book["due_ps"][0], self._book["look_at_ps"][0]))

    @property
    def tell_at_ps(self) -> int:
        """When the next report is due, ps, if there is no news before."""
        return self._told_ps + TELL_PS

    def report(self, now_ps: int, at_once: bool = False) -> Report | None:
        """Return the report that is due: losses at once, otherwise once a second, or `at_once`."""
        n_lost, n_late = self._book["n_lost"], self._book["n_late"]
        news = n_lost[0] or n_late[0] or self._judged
        if not news and not at_once and now_ps < self.tell_at_ps:
            return None
        lost = [Loss(*row) for row in self.tally.lost[: n_lost[0]].tolist()]
        late = [Loss(*row) for row in self.tally.late[: n_late[0]].tolist()]
        found = Report(now_ps, self.periods - self._told_periods, lost, late, self._judged)
        n_lost[0] = n_late[0] = 0
        self._judged, self._told_ps, self._told_periods = [], now_ps, self.periods
        return found

    # --- sending

    def _of_tick(self, tick: int) -> Send:
        period, part = divmod(tick, self.ticks)
        n = self.schedule.fabric.n_planes * self.schedule.per_port
        places = range(part * n // self.ticks, (part + 1) * n // self.ticks)
        return Send(SCHEDULED, period % PERIODS, places)

    def _begin(self, now_ps: int, burst: int, port: int, n: int) -> Send | None:
        routes = self.schedule.burst(port, n, burst % TURNS)
        fabric = self.schedule.fabric
        mine = np.flatnonzero(fabric.port_nic[routes[:, 0]] == self.nic)
        if not len(mine):
            return None
        last = routes[mine, (routes[mine] >= 0).sum(axis=1) - 1]
        back = mine[fabric.port_peer_nic[last] == self.nic]
        plane = int(routes[mine[0], 0]) % fabric.n_planes
        self._bursts[burst] = _Burst(frozenset(back.tolist()), plane, now_ps)
        return Send(BURST, burst, mine.tolist(), routes[mine])

    def _checks(self) -> list[Send]:
        if not self._book["check_now"][0]:
            return []
        self._book["check_now"][0] = 0
        number = int(self._book["check"][0]) % PERIODS
        return [Send(CHECK, number, range(self.schedule.fabric.n_planes))]

    def _look_for_bursts(self, now_ps: int) -> None:
        """Check, and look, as soon as a burst has had its time: others wait for its judgement."""
        book = self._book
        sent_ps = int(self.tally.check_ps[book["check"][0] % tally.CHECKS])
        awaited_ps = [
            need_ps
            for burst in self._bursts.values()
            if (need_ps := self._need_ps(burst)) > self.tally.checked_ps[burst.plane]
        ]
        unsent_ps = [one for one in awaited_ps if one > sent_ps] if self.may_check else []
        book["burst_ps"][0] = min(unsent_ps or awaited_ps, default=tally.NEVER_PS)
        looks_ps = [int(book["look_at_ps"][0]), *(max(one, now_ps) for one in unsent_ps)]
        ripe_ps = [self._ripe_ps(burst) for burst in self._bursts.values()]
        looks_ps += [one for one in ripe_ps if one > now_ps]
        book["look_at_ps"][0] = min(looks_ps)

    def _need_ps(self, burst: _Burst) -> int:
        """From when on a check proves that nothing more of a burst will come."""
        return max(burst.sent_ps + self.timeout_ps, burst.checked_ps + 1)

    def _ripe_ps(self, burst: _Burst) -> int:
        """When what did not come of a burst is lost; never, as far as no check says so."""
        found, need_ps = self.tally, self._need_ps(burst)
        latest_ps = burst.sent_ps + self.margin_ps
        if not self.may_check:
            return latest_ps
        checked_ps = int(found.checked_ps[burst.plane])
        if checked_ps >= need_ps:
            return min(latest_ps, checked_ps + LONGER * int(found.took_ps[burst.plane]))
        back_ps = int(found.back_ps[found.check_ps >= need_ps].min(initial=tally.NEVER_PS))
        return back_ps + self.margin_ps // 2

    def _judge_burst(self, now_ps: int, number: int, burst: _Burst) -> None:
        silent = now_ps - burst.sent_ps > self.silence_ps
        if now_ps >= self._ripe_ps(burst) or silent:
            lost = tuple(sorted(burst.rows - burst.back))
            self._judged.append(BurstReport(number, lost, ()))
            del self._bursts[number]


def _tally(agent: Agent, now_ps: int) -> tally.Tally:
    """The agent's tally, initialised from its schedule."""
    schedule, fabric, nic = agent.schedule, agent.schedule.fabric, agent.nic
    t0 = int(fabric.port_peer_switch[nic * fabric.n_planes])
    here = np.arange(int(fabric.sw_lo[t0]), int(fabric.sw_hi[t0]))
    n_planes, slots = fabric.n_planes, schedule.per_port
    found = tally.new_tally(len(here), n_planes, slots, agent.ticks)
    book = found.book[0]
    book.nic, book.first_nic, book.n_planes = nic, here[0], n_planes
    book.ticks, book.silence_ps = agent.ticks, agent.silence_ps
    book.tick_ps, book.due_ps, book.look_at_ps = agent.tick_ps, now_ps, tally.NEVER_PS
    book.timeout_ps = book.look_ps = min(LOOK_PS, agent.tick_ps // 2)
    book.margin_ps = min(MARGIN_PS, agent.tick_ps)
    book.first_tick = book.next_tick = book.oldest = agent._first_tick
    book.heard_ps = book.judged_ps = book.look_next_ps = now_ps
    book.burst_ps = book.settles_ps = tally.NEVER_PS
    book.settled_ps = book.known_ps = -tally.NEVER_PS
    book.may_check = agent.may_check
    for turn, each in enumerate(agent.orders):
        found.loops[turn], found.numbers[turn] = each.loops, each.numbers
        for who, other in enumerate(here.tolist()):
            numbers = (other * n_planes + np.arange(n_planes)) * slots + np.arange(slots)[:, None]
            flat = numbers.ravel()  # by position
            to = fabric.port_peer_nic[schedule.routes(turn, flat)[:, 1]]
            mine = (schedule.kinds(turn, flat) == ONE_WAY) & (to == nic)
            at = slice(who * len(flat), (who + 1) * len(flat))
            found.expected[turn, at] = np.where(mine, flat, -1)
    return found
