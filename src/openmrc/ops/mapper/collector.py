"""The controller's view of the agents' reports: the places that lose probes, by name.

No clock, no socket: its inputs are the time and the reports, its outputs bursts to order and places
found. Losses are judged (`ops.localise`) as soon as they are reported, over the last
`WINDOW_PERIODS` periods together with the bursts of that time, and twice a second over the last
second and the last ten, in which a place that loses one packet in a thousand shows.

A place that cannot be distinguished from another is not named; its links are probed in a burst. A
place is over when it has lost nothing for a time in which losses were expected.

An agent that sends no report for `STALE_PS` counts as silent: the probes that it would have sent,
and those that others would have sent to it one way, are no evidence. Agents of NICs tell what they
have asked, and only that is evidence (`crossings`).

Times are those of agents' clocks. A report cannot arrive before it is sent, so the report that took
the least time tells how far a clock is from the collector's: one that was long under way, or waited
for a processor, does not make what it tells of any younger.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from openmrc.ops import causes, evidence, weigh
from openmrc.ops.evidence import Evidence
from openmrc.ops.localise import Rules, Verdict, localise, suspected
from openmrc.ops.mapper import crossings
from openmrc.ops.mapper.agent import Loss, Report
from openmrc.ops.mapper.bursts import Bursts, Count, Order
from openmrc.ops.schedule import HOPS_MAX, TURNS, Schedule
from openmrc.units import MS, S

WINDOW_PERIODS = 5
LONG_PS = (1 * S, 10 * S)
LOOK_PS = S // 2  # between two evaluations of the long windows
STALE_PS = 3 * S  # without a report: three missed ones
ROUTES_KEPT = 1 << 17  # probes of a period; beyond this, routes are computed as needed
DARK_PS = 5 * MS  # within which all NICs of a T0 that died report it
OVER_PERIODS = 25  # without a loss, although some were expected
OVER_LOSSES = 10.0
DRIFT = 10_000  # clocks of hosts drift from each other by at most a part in so many
KEPT_MAX = 1 << 18  # losses kept in memory
RULES = Rules(learns_chance=False)


@dataclass
class Place:
    """A place that loses probes, or lost some."""

    where: str
    kind: str
    cause: int
    since_ps: int
    last_ps: int  # of its last loss
    named_ps: int  # when it was found
    rate: float
    lost: int
    crossed: int
    nats: float
    until_ps: int | None = None  # None: it still loses
    withdrawn: bool = False  # later evidence blames another place
    is_dark: bool = False  # its own NICs saw no carrier
    uncounted: float = 0.0  # of all that ever crossed it, what is not in `crossed`


class _Lost(NamedTuple):
    at_ps: int
    loss: Loss
    new: bool  # no known place explained it


class Said(NamedTuple):
    """What to do after a tick: bursts to order and to count, places that are new or changed."""

    orders: list[Order | Count]
    changed: list[Place]


class Collector:
    """The reports of all agents of one fabric."""

    def __init__(self, schedule: Schedule, now_ps: int, first_burst: int = 1) -> None:
        """Agents remember bursts by number, also those of a controller that died before it asked
        for them: `first_burst` should differ from start to start.
        """
        self.schedule = schedule
        self.places: dict[int, Place] = {}  # that lose now, by cause
        self.heard_ps: dict[int, int] = {}  # by NIC: its last report
        self.began_ps: dict[int, int] = {}
        self._losses: deque[_Lost] = deque()
        self.bursts = Bursts(schedule, first_burst, self._is_dark)
        self._routes: dict[int, np.ndarray] = {}  # by turn
        self._masks: dict[int, np.ndarray] = {}  # by cause
        self._looked_ps = self._swept_ps = now_ps
        self.news = False  # losses that have not been judged yet
        self._asks_again = False  # as soon as no burst is out
        self._again_ps: int | None = None  # when suspects may be probed again
        self._dark: dict[int, int] = {}  # NIC ports without carrier, and since when
        self._clocks: dict[int, tuple[int, int]] = {}  # by NIC: how far from its own, and when
        self._crossings = crossings.of(schedule)
        self._warm_up(now_ps)

    def _warm_up(self, now_ps: int) -> None:
        """Judge a dummy case once: loading the code for the first verdict takes longer than a fault
        should stay unknown.
        """
        numbers = np.arange(min(8, self.schedule.n_probes))
        for number in numbers.tolist():
            self._losses.append(_Lost(now_ps, Loss(number, 0, now_ps), True))
        seen = self.evidence(now_ps, self.schedule.period_ps)
        suspected(
            self.schedule.fabric, seen, localise(self.schedule.fabric, seen, RULES), rules=RULES
        )
        self._losses.clear()

    # --- reports

    def join(self, now_ps: int, nic: int) -> None:
        """An agent has joined."""
        self.began_ps[nic] = self.heard_ps[nic] = now_ps
        self._clocks.pop(nic, None)

    def leave(self, nic: int) -> None:
        """An agent has left: its connection closed."""
        self.heard_ps.pop(nic, None)
        self.began_ps.pop(nic, None)
        self._see(0, nic, ())

    def hear(
        self, now_ps: int, nic: int, report: Report, down: Collection[int] = ()
    ) -> list[Order | Count]:
        """Process a report of an agent that has joined, and the planes on which its NIC's port is
        down; `tick` returns the consequences.
        """
        self.heard_ps[nic] = now_ps
        self._see(now_ps, nic, down)
        ahead_ps = self._ahead(now_ps, nic, report.at_ps)

        def when(at_ps: int) -> int:
            return min(at_ps + ahead_ps, now_ps)

        self._crossings.hear(nic, [one._replace(at_ps=when(one.at_ps)) for one in report.rounds])
        if report.lost:
            at_ps = [when(one.at_ps) for one in report.lost]
            new = self._unexplained(at_ps, report.lost)
            self._count(at_ps, report.lost)
            self._losses.extend(map(_Lost, at_ps, report.lost, new))
            self.news |= any(new)
        while len(self._losses) > KEPT_MAX:
            self._losses.popleft()
        self._take_back(report.late)
        return [each for burst in report.bursts for each in self.bursts.hear(now_ps, nic, burst)]

    def _ahead(self, now_ps: int, nic: int, at_ps: int) -> int:
        """How far this clock is ahead of an agent's that now tells of `at_ps`."""
        ahead_ps, since_ps = self._clocks.get(nic, (now_ps - at_ps, now_ps))
        ahead_ps = min(now_ps - at_ps, ahead_ps + (now_ps - since_ps) // DRIFT)
        self._clocks[nic] = ahead_ps, now_ps
        return ahead_ps

    def tick(self, now_ps: int) -> Said:
        """Call it after a report, and some ten times a second unless it is `idle`: judge new
        losses, evaluate the long windows, end places that are over.
        """
        bursts = self.bursts
        bursts.expire(now_ps)
        self._forget(now_ps)
        orders: list[Order] = []
        changed = [*self._name_dark(now_ps), *self._over(now_ps)]
        if self._again_ps is not None and now_ps >= self._again_ps:
            self.news = True
        if self._has_news and not bursts.holds(now_ps):
            self.news = bursts.news = self._asks_again = False
            self._again_ps = None
            window_ps = WINDOW_PERIODS * self.schedule.period_ps
            found, seen, verdicts = self._judge(now_ps, window_ps)
            changed += found
            if not self._explains_all(now_ps - window_ps):
                ports = suspected(self.schedule.fabric, seen, verdicts, rules=RULES).tolist()
                if any(at_ps >= now_ps - window_ps for at_ps, _ in bursts.results):
                    # One agent's losses alone look like those of its own link.
                    ports = self._decisive(ports, verdicts)
                # What is out may decide it, and more would only come later for it.
                self._asks_again = any(one.port in ports for one in bursts.out.values())
                if not self._asks_again:
                    orders = bursts.order(now_ps, ports, self.places, self.heard_ps)
                    if ports and not orders:
                        self._again_ps = now_ps + self.schedule.period_ps
        if now_ps - self._looked_ps >= LOOK_PS and self._losses:
            self._looked_ps = now_ps
            for window_ps in LONG_PS:
                if now_ps - min(self.began_ps.values(), default=now_ps) >= window_ps // 2:
                    changed += self._judge(now_ps, window_ps)[0]
        return Said([*orders], changed)

    @property
    def _has_news(self) -> bool:
        """Whether there is something to judge: losses, or the results of bursts."""
        return self.news or self.bursts.news or (self._asks_again and not self.bursts.out)

    @property
    def waits(self) -> bool:
        """Whether there is a report that `tick` has not processed yet."""
        return self._has_news or any(
            not any(self._mask(cause)[port] for cause in self.places) for port in self._dark
        )

    @property
    def idle(self) -> bool:
        """Whether `tick` has nothing to do before the next report: nothing was lost lately."""
        return not (self._losses or self.bursts.out or self.places or self._dark)

    def silent(self, now_ps: int) -> list[int]:
        """Return the NICs whose agents have been silent for long, or never joined."""
        return [nic for nic in range(self.schedule.fabric.n_nics) if not self.hears(now_ps, nic)]

    def hears(self, now_ps: int, nic: int) -> bool:
        """Whether a NIC's agent has reported lately."""
        return now_ps - self.heard_ps.get(nic, now_ps - STALE_PS) < STALE_PS

    # --- ports without carrier

    def _see(self, now_ps: int, nic: int, down: Collection[int]) -> None:
        """A NIC reports its own ports: that one is down need not be inferred."""
        for plane in range(self.schedule.fabric.n_planes):
            port = nic * self.schedule.fabric.n_planes + plane
            if plane in down:
                self._dark.setdefault(port, now_ps)
            else:
                self._dark.pop(port, None)

    def _name_dark(self, now_ps: int) -> list[Place]:
        """Name what has no carrier, as soon as its extent is clear."""
        fabric, found = self.schedule.fabric, list[Place]()
        if all(now_ps - since_ps < DARK_PS for since_ps in self._dark.values()):
            return found
        for what in causes.of_dark_ports(fabric, self._dark, self.heard_ps):
            since_ps = min(self._dark[p] for p in self._dark if self._mask(what[0])[p])
            for cause in what:
                if now_ps - since_ps < DARK_PS:
                    continue
                place = self.places.get(cause)
                if place is None:
                    place = self.places[cause] = Place(
                        causes.name(fabric, cause), causes.kind(fabric, cause), cause,
                        since_ps, now_ps, now_ps, 1.0, 0, 0, 0.0,
                    )  # fmt: skip
                    found.append(place)
                    self._withdraw_links_of(cause, now_ps)
                place.last_ps, place.is_dark = now_ps, True
        return found + (self._withdraw_for_dark(now_ps) if found else [])

    def _is_dark(self, routes: np.ndarray) -> np.ndarray:
        """[n] whether these cross a port without carrier: their losses are no new evidence."""
        mask = np.zeros(self.schedule.fabric.n_ports + 1, np.bool_)
        own = np.array(list(self._dark), np.int64)
        mask[own] = mask[self.schedule.fabric.port_reverse[own]] = True
        for cause, place in self.places.items():
            if place.is_dark:
                mask |= self._mask(cause)
        found: np.ndarray = mask[routes].any(axis=1)
        return found

    def _withdraw_for_dark(self, now_ps: int) -> list[Place]:
        """End the places that were named before a NIC reported its port as dark, if all their
        losses crossed that port.
        """
        routes = self._routes_of([one.loss for one in self._losses])
        other = routes[~self._is_dark(routes)]
        found = []
        for cause, place in list(self.places.items()):
            if not place.is_dark and not self._mask(cause)[other].any():
                place.until_ps, place.withdrawn = now_ps, True
                del self.places[cause]
                found.append(place)
        return found

    # --- judging

    def _unexplained(self, at_ps: Sequence[int], losses: Sequence[Loss]) -> list[bool]:
        """Whether each of these crossed none of the places known to lose probes."""
        if not self.places:
            return [True] * len(losses)
        routes = self._routes_of(losses)
        left = np.ones(len(losses), np.bool_)
        for cause, place in self.places.items():
            hit = self._mask(cause)[routes].any(axis=1)
            left &= ~hit
            place.last_ps = max([place.last_ps, *(at_ps[i] for i in np.flatnonzero(hit).tolist())])
        found: list[bool] = left.tolist()
        return found

    def _explains_all(self, since_ps: int) -> bool:
        """Whether the known places explain the losses since then."""
        lost = [one for one in self._losses if one.at_ps >= since_ps]
        return not any(self._unexplained([one.at_ps for one in lost], [one.loss for one in lost]))

    def _mask(self, cause: int) -> np.ndarray:
        """[ports + 1] the directed ports that a cause stands for; the last is none."""
        if cause not in self._masks:
            self._masks[cause] = np.zeros(self.schedule.fabric.n_ports + 1, np.bool_)
            self._masks[cause][causes.links_of(self.schedule.fabric, cause)] = True
        return self._masks[cause]

    def _routes_of(self, losses: Sequence[Loss]) -> np.ndarray:
        """[n, hops] the directed ports of these probes; -1 after the last."""
        found = np.full((len(losses), HOPS_MAX), -1, np.int32)
        turns = np.array([one.turn for one in losses], np.int64)
        numbers = np.array([one.number for one in losses], np.int64)
        for turn in set(turns.tolist()):
            mine = turns == turn
            found[mine] = self._turn(turn, numbers[mine])
        return found

    def _turn(self, turn: int, numbers: np.ndarray) -> np.ndarray:
        if self.schedule.n_probes > ROUTES_KEPT:
            return self.schedule.routes(turn, numbers)
        if turn not in self._routes:
            self._routes[turn] = self.schedule.routes(turn)
        found: np.ndarray = self._routes[turn][numbers]
        return found

    def _judge(self, now_ps: int, window_ps: int) -> tuple[list[Place], Evidence, list[Verdict]]:
        seen = self.evidence(now_ps, window_ps)
        verdicts = localise(self.schedule.fabric, seen, RULES)
        # A device of which two links were cut within a long window looks like one that loses a
        # part.
        short = window_ps == WINDOW_PERIODS * self.schedule.period_ps
        sure = [one for one in verdicts if one.is_sure and (short or one.kind == causes.LINK)]
        changed = [place for one in sure if (place := self._name(now_ps, one)) is not None]
        return changed, seen, verdicts

    def _name(self, now_ps: int, verdict: Verdict) -> Place | None:
        last_ps = now_ps if verdict.until_ps is None else verdict.until_ps
        place = self.places.get(verdict.cause)
        if place is None:
            where = self.schedule.name(verdict.cause)
            if self._is_within(verdict.cause) or not self._has_two_witnesses(verdict):
                return None
            crossed = round(verdict.lost / verdict.rate)
            place = self.places[verdict.cause] = Place(
                where, verdict.kind, verdict.cause, verdict.since_ps, last_ps, now_ps,
                verdict.rate, verdict.lost, crossed, verdict.nats,
                uncounted=self._crossings.total(verdict.cause, now_ps) - crossed,
            )  # fmt: skip
            self._withdraw_links_of(verdict.cause, now_ps)
            return place
        place.last_ps = max(place.last_ps, last_ps)
        return None

    def _count(self, at_ps: Sequence[int], losses: Sequence[Loss]) -> None:
        """How much known places have lost that is told after they were named: not all of it is
        remembered.
        """
        when, routes = np.array(at_ps), self._routes_of(losses)
        for cause, place in self.places.items():
            hit = self._mask(cause)[routes].any(axis=1) & (when >= place.since_ps)
            if place.is_dark or not hit.any():
                continue
            crossed = round(self._crossings.total(cause, place.last_ps) - place.uncounted)
            place.lost += int(hit.sum())
            place.crossed = max(crossed, place.lost)
            place.rate = place.lost / place.crossed

    def _has_two_witnesses(self, verdict: Verdict) -> bool:
        """Whether several agents at one instant saw it lose: else the host may be to blame."""
        per_nic = self.schedule.per_port * self.schedule.fabric.n_planes
        seen = set()
        lately = [one.loss for one in self._losses if one.at_ps >= verdict.since_ps]
        hits = self._mask(verdict.cause)[self._routes_of(lately)].any(axis=1)
        for loss, hit in zip(lately, hits.tolist(), strict=True):
            if hit:
                seen.add((loss.number // per_nic, loss.at_ps))
        if len(seen) > 1:
            return True
        fabric = self.schedule.fabric
        return any(
            (causes.of_routes(fabric, result.routes) == verdict.cause).any()
            for at_ps, result in self.bursts.results
            if at_ps >= verdict.since_ps
        )

    def _is_within(self, cause: int) -> bool:
        """Whether an already named device loses all that crosses this link."""
        fabric = self.schedule.fabric
        return cause < fabric.n_ports and any(
            place.kind != causes.LINK and place.rate > 0.9 and cause in causes.links_of(fabric, own)
            for own, place in self.places.items()
        )

    def _withdraw_links_of(self, cause: int, now_ps: int) -> None:
        """Withdraw links that were named before the device that loses everything and explains
        them.
        """
        fabric = self.schedule.fabric
        if cause < fabric.n_ports or self.places[cause].rate <= 0.9:
            return
        for link in causes.links_of(fabric, cause).tolist():
            place = self.places.pop(link, None)
            if place is not None:
                place.until_ps, place.withdrawn = now_ps, True

    def _over(self, now_ps: int) -> list[Place]:
        """Places that have lost nothing for so long that losses were expected."""
        found = []
        for cause, place in list(self.places.items()):
            quiet = (now_ps - place.last_ps) / self.schedule.period_ps
            crossed = self._crossings
            since = crossed.total(cause, now_ps) - crossed.total(cause, place.last_ps)
            expected = since * place.rate
            if quiet >= OVER_PERIODS and expected >= OVER_LOSSES:
                place.until_ps = place.last_ps
                del self.places[cause]
                self._settle(place)
                found.append(place)
        return found

    def _settle(self, place: Place) -> None:
        """Mark the losses of a place as explained when it is over: they are no evidence of anything
        new.
        """
        mine = self._mask(place.cause)[self._routes_of([one.loss for one in self._losses])]
        self._losses = deque(
            one
            for one, hit in zip(self._losses, mine.any(axis=1).tolist(), strict=True)
            if one.at_ps > place.last_ps or not hit
        )
        self.bursts.forget(place.last_ps + 1)

    def evidence(self, now_ps: int, window_ps: int) -> Evidence:
        """Return the evidence of the last `window_ps`, with the bursts of that time."""
        schedule, from_ps = self.schedule, now_ps - window_ps
        # Crossings from before the first loss would only hide how bad links are now.
        known = [one for one in self._losses if one.at_ps >= from_ps]
        dark = self._is_dark(self._routes_of([one.loss for one in known]))
        known = [one for one, is_dark in zip(known, dark.tolist(), strict=True) if not is_dark]
        from_ps = max(from_ps, min((one.at_ps for one in known), default=from_ps) - 1)
        grouped: dict[tuple[int, int], list[int]] = {}
        for at_ps, loss, _ in known:
            grouped.setdefault((loss.turn, loss.number), []).append(at_ps)
        keys = list(grouped)
        routes = self._routes_of([Loss(number, turn, 0) for turn, number in keys])
        lost = np.array([len(grouped[key]) for key in keys], np.int64)
        first = np.array([min(grouped[key]) for key in keys], np.int64)
        last = np.array([max(grouped[key]) for key in keys], np.int64)
        periods = (now_ps - from_ps) / schedule.period_ps
        crossed = self._crossings.between(from_ps, now_ps, frozenset(self.silent(now_ps)))
        for column in causes.of_routes(schedule.fabric, routes):  # of agents that have left since
            least = np.zeros(len(crossed), np.int64)
            weigh.total(column[None], lost, least)
            np.maximum(crossed, least, out=crossed)
        sent = np.maximum(lost, round(periods / TURNS))
        probes = evidence.of_lossy(routes, sent, lost, first, last, crossed, from_ps, now_ps)
        return _merged(evidence.joined([probes, *self.bursts.since(from_ps, now_ps)]))

    def _decisive(self, ports: Sequence[int], verdicts: Sequence[Verdict]) -> Sequence[int]:
        """Of suspected ports those between which verdicts cannot decide, where there are any."""
        mask = np.zeros(self.schedule.fabric.n_ports + 1, np.bool_)
        for verdict in verdicts:
            for cause in () if verdict.is_sure else (verdict.cause, *verdict.one_of):
                mask |= self._mask(cause)
        return [port for port in ports if mask[port]] or ports

    # --- memory

    def _take_back(self, late: Sequence[Loss]) -> None:
        if not late:
            return
        back = Counter(late)
        kept: deque[_Lost] = deque()
        for one in self._losses:
            if back[one.loss]:
                back[one.loss] -= 1
            else:
                kept.append(one)
        self._losses = kept

    def _forget(self, now_ps: int) -> None:
        longest = max(*LONG_PS, WINDOW_PERIODS * self.schedule.period_ps)
        self._crossings.forget(now_ps - longest)
        while self._losses and self._losses[0].at_ps < now_ps - longest:
            self._losses.popleft()
        # Losses that a known place explains are needed until it is clear that nothing larger
        # explains them.
        old_ps = now_ps - WINDOW_PERIODS * self.schedule.period_ps
        if now_ps - self._swept_ps >= LOOK_PS:
            self._swept_ps = now_ps
            self._losses = deque(one for one in self._losses if one.new or one.at_ps >= old_ps)
        self.bursts.forget(now_ps - longest)


def _merged(seen: Evidence) -> Evidence:
    """Merge rows of the same path: judging time is proportional to rows, and many of a burst's
    hundred probes take the same path.
    """
    if len(seen.lost) < 2:
        return seen
    path = (
        np.ascontiguousarray(seen.routes)
        .view(f"V{seen.routes.shape[1] * seen.routes.itemsize}")
        .ravel()
    )
    _, row, into = np.unique(path, return_index=True, return_inverse=True)
    first, last = seen.first_ps[row].copy(), seen.last_ps[row].copy()
    np.minimum.at(first, into, seen.first_ps)
    np.maximum.at(last, into, seen.last_ps)
    return replace(
        seen,
        routes=seen.routes[row],
        sent=np.bincount(into, seen.sent).astype(np.int64),
        lost=np.bincount(into, seen.lost).astype(np.int64),
        first_ps=first,
        last_ps=last,
        background=seen.background[row],
    )
