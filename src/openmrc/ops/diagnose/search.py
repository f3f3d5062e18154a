"""The most probable set of faults: components, each with the times at which it was bad, and a rate.

A packet is lost by chance or by a fault that it crosses while that lasts, so losses speak for a
component, each by the logarithm of how much more probable it makes them; packets that crossed it
and arrived speak against. For a rate the best times are found in one pass (`runs`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import permutations
from typing import NamedTuple

import numpy as np

from openmrc.fabric.model import BoolArray, IntArray, LongArray
from openmrc.ops.diagnose import chance
from openmrc.ops.diagnose.components import HALF, SWITCH, Component, Table, planes, ways_back
from openmrc.ops.diagnose.counters import counters, unanswered
from openmrc.ops.diagnose.crossed import arrived, crossed, split
from openmrc.ops.diagnose.met import meet
from openmrc.ops.diagnose.observed import MOMENT_US, FloatArray, Observed
from openmrc.ops.diagnose.runs import (
    DEAD,
    NARROW,
    NEVER,
    OF_ALL,
    OF_DATA,
    best_rates,
    best_runs,
    explain,
    touch,
)
from openmrc.ops.diagnose.waits import QUEUED, waits

# Rates that are tried; what lets nothing through is seen to let through what left just before, as
# far as bins of time can tell. The last one is of large packets only.
RATES = np.array([0.98, 0.6, 0.35, 0.2, 0.1, 0.05, 0.025, 0.012, 0.006, 0.003, 0.0015, 0.98])
# Planes and tiers of them die, and so do answers: what loses a part of all is no damage.
TOTAL_MIN = 0.9
HIGH_MIN = 0.35  # a rate of which packets of all sorts tell: of lower ones losses of data do
LEVEL = np.where(RATES >= TOTAL_MIN, DEAD, np.where(RATES >= HIGH_MIN, OF_ALL, OF_DATA))
LEVEL[-1] = NARROW
THROUGH = np.log1p(-RATES)
ROUNDS_MAX = 60
EQUAL = 0.01  # of what is explained: two explanations that differ by less are as good
LOOKED_AT = 40  # components whose counters are looked at
JEFFREYS = 0.5  # packets that passed beside those that did: the prior of a rate
LOSSES_MIN = 2
NESTED_NATS = 40.0  # what is broken is hardly ever broken in a part of it, too, at the same time
QUICK = 1.5  # round trips
FRONT = 1.5  # round trips that a packet may have waited before what then lost it
AT_ONCE = 0.25  # round trips
AROUND = 0.1  # round trips: packets that left as much earlier or later met a fault as well
AGAIN_NATS = 12.0  # what was broken once breaks again more easily: the choice of both edges
RUNS_MAX = 64
BETTER_NATS = 1.0  # by less nothing is exchanged: two explanations are as good
NEAR_NATS = 10.0  # by which one that is tried in place of a fault may explain less
NEAR_MAX = 4


class Fault(NamedTuple):
    """A component that loses `rate` of its packets during some spans."""

    component: int
    spans_us: tuple[tuple[float, float], ...]
    rate: float
    draws: float  # the same, if losses at once are one
    level: int  # of its rate
    nats: float  # by which it explains more than the others, less its prior
    moved: FloatArray  # the counts that it moves, as expected
    lost: int
    passed: float
    price: float  # beside its prior: of each further run, and of ports that stayed up
    told: bool  # it took ports down that said so

    @property
    def since_us(self) -> float:
        """When it began."""
        return self.spans_us[0][0]

    @property
    def until_us(self) -> float:
        """When it ended last."""
        return self.spans_us[-1][1]


@dataclass(frozen=True, eq=False)
class Pairs:
    """What each component has met, in order of time: a loss or an answer for each entry."""

    component: IntArray  # sorted
    packet: IntArray  # its number; those of answers follow those of losses
    at_us: FloatArray
    back: BoolArray  # only the answer to the packet crosses it
    # [2, n] packets that had crossed the component, and arrived, as many as may have a little
    # before, and as few as a little later: of data, and of all sorts, which speak against what
    # lets nothing through
    before: FloatArray
    first_even: FloatArray  # and if those of a bin arrive evenly in it, just before
    even: FloatArray  # and just after
    after: FloatArray
    first: LongArray  # of each component, and the end


class Search:
    """The faults so far, and how well they explain each loss."""

    def __init__(self, seen: Observed, table: Table) -> None:
        self.table = table
        # [losses] those of one path that were sent and missed at once are one entry: so many
        # packets, and such a part of a draw
        came = arrived(seen)
        self.seen, self.chance, self.weight, self.draws = _merged(seen)
        seen = self.seen
        self.now = self.chance.copy()  # the logarithm of each loss's probability
        self.counters = counters(seen)
        self.moved = self.counters.usual  # counts, as expected
        self._moves = self.counters.moved_by(table.rows)
        self.edges_us, self.came, self.through = split(seen, came, self.counters.surely_through())
        self.pairs = self._pairs()
        self.faults: list[Fault] = []
        n = len(table)
        self._told = np.full(len(seen.lost), np.nan)  # `now` at the last look
        self._prior = np.full(n, np.nan)
        self._gains = np.zeros((len(RATES), len(seen.lost)))
        # [2, components] of rates of which some passes, and of which nothing does
        self._nats, self._rate = np.full((2, n), -1e300), np.zeros((2, n), np.int64)
        self._again = np.full(n, AGAIN_NATS)
        at = np.searchsorted(self.edges_us, self.pairs.at_us, side="right") - 1
        width_us = np.diff(self.edges_us)[np.clip(at, 0, len(self.edges_us) - 2)]
        self._within_us = width_us + 2 * QUEUED * seen.rtt_us
        most = int(np.diff(self.pairs.first).max(initial=0))
        self._space = *np.zeros((2, 3)), *np.zeros((2, 3, most), np.int64)
        self._begun, self._stale = False, np.diff(self.pairs.first) > 0
        self._left, self._alone = np.zeros(n), np.zeros(n)
        # The components that met each loss, one after the other.
        own = self.pairs.packet < len(seen.lost)
        order = np.argsort(self.pairs.packet[own], kind="stable")
        self._met_by = self.pairs.component[own][order]
        ends = np.arange(len(seen.lost) + 1)
        self._of_loss = np.searchsorted(self.pairs.packet[own][order], ends)

    # --- what each component met

    def _worth(self) -> BoolArray:
        """Which components could be worth their prior, if nothing spoke against them."""
        lost, n = self.seen.lost, len(self.table)
        most = np.zeros(n + 1)
        n_met = np.zeros(n + 1)
        for port in np.concatenate([lost.routes, lost.back], axis=1).T:
            owners = self.table.of_port[port]
            for column in owners.T:  # twice, if it is met twice: no harm
                most += np.bincount(
                    np.where(column < 0, n, column), -self.chance * self.draws, n + 1
                )
                n_met += np.bincount(np.where(column < 0, n, column), self.weight, n + 1)
        worth = (most[:-1] > self.table.nats - self._counted()) & (n_met[:-1] >= LOSSES_MIN)
        return np.append(worth, False)  # that of no component

    def _counted(self) -> FloatArray:
        """By component how much the counts may speak for it, beside the faults so far."""
        return self.counters.at_most(self.moved, *self._moves, len(self.table))

    def _pairs(self) -> Pairs:
        lost, answered = self.seen.lost, self.seen.answered
        # Of a probe that was long under way nobody knows when it crossed what.
        quick = answered.known_us - answered.sent_us <= QUICK * self.seen.rtt_us
        tells = np.append(self.chance < math.log(chance.MOST), quick)
        # Of data the answer may have met a component as well; the answer to a probe is all there is
        # of it.
        probe = np.append(lost.probe, np.ones(len(answered), np.bool_))
        routes = np.concatenate(
            [np.concatenate([it.routes, it.back], 1) for it in (lost, answered)]
        )
        hops, worth = lost.routes.shape[1], self._worth()
        first = np.zeros(len(self.table) + 1, np.int64)
        nothing, none = np.zeros(0, np.int32), np.full(len(self.table) + 1, -1)
        meet(routes, self.table.of_port, worth, tells, none.copy(), first, nothing, nothing)
        first = np.append(0, np.cumsum(first[:-1]))
        packet, hop = np.zeros((2, int(first[-1])), np.int32)
        meet(routes, self.table.of_port, worth, tells, none.copy(), first.copy(), packet, hop)
        sent_us = np.append(lost.sent_us, answered.sent_us)
        # About when it came out of a link, if no queue was in the way: what was on it then is lost.
        # A port that says that it was down knows when.
        on_way = np.append(lost.ev >= 0, np.ones(len(answered), np.bool_))[packet]
        at_us = sent_us[packet] + on_way * np.minimum((hop + 1) / hops, 1) * self.seen.rtt_us / 2
        every = np.concatenate([waits(self.seen, it) for it in (lost, answered)])
        wait_us, around_us = on_way * every[packet, hop], on_way * AROUND * self.seen.rtt_us
        component = np.repeat(np.arange(len(self.table), dtype=np.int32), np.diff(first))
        before, first_even, even, after = np.zeros((4, 2, len(packet)))
        own = np.flatnonzero(np.diff(first))
        for it in own.tolist():
            part = slice(first[it], first[it + 1])
            order = np.argsort(at_us[part], kind="stable")
            for each in (at_us, packet, hop, wait_us, around_us):
                each[part] = each[part][order]
            for row, through in enumerate((None, self.through)):
                gates = self.table.rows[it].gates
                met = crossed(self.seen, self.edges_us, gates, self.came, through)
                first_even[row, part] = met.evenly(at_us[part] - around_us[part])
                even[row, part] = met.evenly(at_us[part] + around_us[part])
                # What left later may have crossed earlier, for it did not wait in a queue.
                before[row, part] = met.at_most(at_us[part] + wait_us[part])
                after[row, part] = met.at_least(at_us[part] - wait_us[part])
        back = (hop >= hops) & ~probe[packet]
        return Pairs(component, packet, at_us, back, before, first_even, even, after, first)

    def crossed(self, component: int, at_us: FloatArray) -> FloatArray:
        """Return how many packets of data had crossed a component by these times, and arrived."""
        gates = self.table.rows[component].gates
        return crossed(self.seen, self.edges_us, gates, self.came).evenly(at_us)

    # --- one more fault

    def best(self, only: int | None = None) -> Fault | None:
        """Return the fault, or the one of `only` a component, that explains most of what is left,
        if any is worth its prior.
        """
        self._look()
        if only is not None:
            self._fit([only])
            found = self.fitted(only)
            return found if found is not None and found.nats > 0 else None
        best, most = None, 0.0
        for it, at_most in self._ranked():
            if at_most <= most:
                break
            found = self.fitted(it)
            if found is not None and found.nats > most:
                best, most = found, found.nats
        return best

    def nets(self, least: float) -> dict[int, float]:
        """Return by how much each component is worth more than its prior, for what is left: those
        that are worth more than `least`, and some others.
        """
        self._look()
        found = {}
        for it, at_most in self._ranked():
            if at_most <= max(least, 0.0):
                break
            if (fit := self.fitted(it)) is not None:
                found[it] = fit.nats
        return found

    def _ranked(self) -> Iterator[tuple[int, float]]:
        """The components that may be worth most, by what losses and counts say, and how much at
        most, the best first. Only those are looked at whose bound is above what others reach.
        """
        counted = self._counted()
        bound = np.where(self._stale, self._bounds(), self._nats.max(axis=0)) + counted
        heap = [(-float(bound[it]), it) for it in np.flatnonzero(bound > 0).tolist()]
        heapify(heap)
        given = 0
        while heap and given < LOOKED_AT:
            most, it = heappop(heap)
            if self._stale[it]:
                self._fit([it])
                heappush(heap, (-float(self._nats[:, it].max() + counted[it]), it))
            else:
                given += 1
                yield it, -most

    def _bounds(self) -> FloatArray:
        """By component what it is worth at most: what chance and the faults do not explain yet, and
        what it was worth before there was any, since faults leave less to explain.
        """
        cheaper = self.table.nats - self._prior
        return np.asarray(np.minimum(self._left - self._prior, self._alone + cheaper))

    def _look(self) -> None:
        """Note which losses have another probability now, and which components met one of them."""
        pairs, prior = self.pairs, self.prior()
        changed = np.flatnonzero(~(np.abs(self._told - self.now) < 1e-9))
        now, draws = self.now[changed], self.draws[changed]
        explain(1 - np.exp(now), now, draws, changed, RATES, self._gains)
        self._gains[LEVEL == NARROW] *= ~self.seen.lost.probe
        self._told[changed] = now
        self._stale |= (prior != self._prior) & (np.diff(pairs.first) > 0)
        self._prior = prior
        touch(changed, self._of_loss, self._met_by, self._stale)
        each = np.append(-self._told * self.draws, np.zeros(len(self.seen.answered)))
        left = np.bincount(pairs.component, each[pairs.packet], len(self.table))
        self._left = np.asarray(left, np.float64)
        if not self._begun:
            self._begun = True
            self._fit(np.flatnonzero(self._left - prior + self._counted() > 0).tolist())
            self._alone = np.where(self._stale, np.inf, self._nats.max(axis=0))

    def _fit(self, which: list[int]) -> None:
        """Bring the best rate and the gain of some components up to date."""
        pairs = self.pairs
        stale = np.array([it for it in which if self._stale[it]], np.int64)
        best_rates(
            stale, pairs.first, pairs.packet, pairs.back, pairs.before, pairs.first_even,
            pairs.even, pairs.after, self._gains, THROUGH, LEVEL, self.table.is_total,
            self._prior, self._again, pairs.at_us, self._within_us, self._nats, self._rate,
            *self._space,
        )  # fmt: skip
        self._stale[stale] = False

    def prior(self) -> FloatArray:
        """Return the prior of one more fault of each component."""
        nats = self.table.nats.copy()
        own = [it.component for it in self.faults]
        nats[own] = self._again[own]
        return nats

    def runs(self, component: int, rate: int) -> list[tuple[int, int]]:
        """Return the first and last entries of the times at which a component was bad, if it lost
        so much, the number of a rate, by what is known now.
        """
        pairs, found = self.pairs, np.zeros((2, RUNS_MAX), np.int64)
        n = best_runs(
            component, rate, pairs.first, pairs.packet, pairs.back,
            pairs.before, pairs.first_even, pairs.even, pairs.after, self._gains, THROUGH, LEVEL,
            float(self._prior[component]), float(self._again[component]), pairs.at_us,
            self._within_us, found, *self._space,
        )  # fmt: skip
        return [(begin, end) for begin, end in found[:, :n].T[::-1].tolist()]

    def passed(
        self, row: int, begin: LongArray, end: LongArray, first: BoolArray, last: BoolArray
    ) -> FloatArray:
        """Return how many packets arrived from one entry to another, at least where a long time
        before the `first` or after the `last` it was well; evenly, if both are within a bin.
        """
        pairs = self.pairs
        long = pairs.at_us[end] - pairs.at_us[begin] >= self._within_us[begin]
        since = np.where(long & first, pairs.before[row, begin], pairs.first_even[row, begin])
        until = np.where(long & last, pairs.after[row, end], pairs.even[row, end])
        return np.asarray(np.maximum(until - since, 0), np.float64)

    def fitted(self, component: int) -> Fault | None:
        """Return the best fault of a component, with the rate that its losses have and with what
        counters say of it: something passes, or nothing does.
        """
        each = zip(
            self._nats[:, component].tolist(), self._rate[:, component].tolist(), strict=True
        )
        found = [self._fault(component, rate, nats) for nats, rate in each if nats > NEVER]
        return max((it for it in found if it is not None), key=lambda it: it.nats, default=None)

    def _fault(self, component: int, number: int, nats: float) -> Fault | None:
        """A fault of a component with this number of a rate, which explains so much."""
        pairs, n_lost = self.pairs, len(self.seen.lost)
        rate, level = float(RATES[number]), int(LEVEL[number])
        row = int(level >= OF_ALL)
        runs = [it for it in self.runs(component, number) if self._is_own(component, number, it)]
        if not runs:
            return None
        packets = np.concatenate([pairs.packet[b : e + 1] for b, e in runs])
        losses = packets[packets < n_lost]
        begin, end = np.array(runs).T
        pause = pairs.at_us[begin[1:]] - pairs.at_us[end[:-1]] >= self._within_us[end[:-1]]
        total = level in (DEAD, NARROW)
        around = row, begin, end, total & np.append(True, pause), total & np.append(pause, True)
        crossed = self.passed(*around)
        passed = float(crossed.sum())
        within = pairs.at_us[end] - pairs.at_us[begin] < self._within_us[begin]
        sometime = float(crossed[within].sum())
        if level == NARROW:
            losses = losses[~self.seen.lost.probe[losses]]
        else:
            passed += len(packets) - len(losses)
        weight = self.weight[losses]
        if weight.sum() < LOSSES_MIN:
            return None
        caused = rate / (rate + np.exp(self.now[losses]))
        mine, drawn = (float((it * caused).sum()) for it in (weight, self.draws[losses]))
        fit_draws = max(drawn / (drawn + passed + JEFFREYS), RATES.min())
        fit = max(rate_of(mine, passed - sometime + JEFFREYS, sometime), RATES.min())
        spans = tuple((float(pairs.at_us[b]), float(pairs.at_us[e])) for b, e in runs)
        moved = self._moved(component, losses, rate)
        nats += self.counters.nats(self.moved, moved)
        gain, said = self._gains[number], losses[self.seen.lost.ev[losses] < 0]
        told = self._told_of(losses)
        up = self._stayed_up(component, said) if len(told) else 0.0
        # It took no port down if these are as probable without it: of what others took down, too.
        if gain[told].sum() < up - chance.REPORTED_NATS:
            up, told = 0.0, told[:0]
        nats += float(gain[told].sum() - gain[said].sum()) - up
        price = float(self._again[component]) * (len(runs) - 1) + up
        found = Fault(
            component, spans, fit, fit_draws, level, nats, moved, int(weight.sum()), passed, price,
            len(told) > 0,
        )  # fmt: skip
        return found._replace(
            nats=nats - NESTED_NATS * sum(self._nested(found, it) for it in self.faults)
        )

    def _is_own(self, component: int, rate: int, run: tuple[int, int]) -> bool:
        """Whether a run is one of a component, and not only of some of its ports that went down."""
        packets = self.pairs.packet[run[0] : run[1] + 1]
        losses = packets[packets < len(self.seen.lost)]
        said = self.seen.lost.ev[losses] < 0
        speaks = float(self._gains[rate, losses].sum())
        return not said.all() or speaks >= self._stayed_up(component, losses)

    def _told_of(self, losses: IntArray) -> IntArray:
        """Those of some losses that are ports which went down, and of which both edges are here."""
        told = losses[self.seen.lost.ev[losses] < 0]
        port = (-1 - self.seen.lost.qp[told]) // 2
        _, of, n = np.unique(port, return_inverse=True, return_counts=True)
        return np.asarray(told[n[of.ravel()] == 2])

    def _stayed_up(self, component: int, said: IntArray) -> float:
        """How much the ports that stayed up speak against what took others down, if these said that
        they went down or came back meanwhile: of NICs, which know when, and those between switches,
        if they were read meanwhile, and never found down.
        """
        fabric, own = self.seen.fabric, np.array(self.table.rows[component].ports)
        at_us, down = self.seen.lost.sent_us[said], self.seen.down
        between = (fabric.port_nic[own] < 0) & (fabric.port_peer_nic[own] < 0)
        if len(said) and len(down):
            span_us = np.array([at_us.min(), at_us.max() + 2 * MOMENT_US])
            first, last = self.seen.bin_of(span_us).tolist()
            between &= (last == first) | down[first : last + 1, own].any(axis=0)
        up = np.setdiff1d(own[~between], self.seen.lost.routes[said, 0])
        return float(-2 * chance.REPORTED_NATS * len(up))

    def _nested(self, one: Fault, other: Fault) -> bool:
        """Whether two faults share links at one time, and ports do not tell one from the other."""
        around = self.seen.rtt_us
        at_once = any(
            since_us - around <= end and until_us + around >= begin
            for since_us, until_us in one.spans_us
            for begin, end in other.spans_us
        )
        same = one.component == other.component
        alike = one.told == other.told or same
        return at_once and alike and (same or self.table.shared(one.component, other.component))

    def _moved(self, component: int, losses: IntArray, rate: float) -> FloatArray:
        losses = losses[self.seen.lost.ev[losses] >= 0]  # and not what a NIC said of its own port
        # Only what nothing else had lost.
        alone = rate * (1 - np.exp(self.now[losses]))
        weight = alone / (alone + np.exp(self.now[losses])) * self.weight[losses]
        row = self.table.rows[component]
        routes = self.seen.lost.routes[losses]
        # A switch that loses most of its packets loses them inside: its first link tells where.
        inside = row.kind == SWITCH and not row.others
        dead = rate >= (HIGH_MIN if inside else TOTAL_MIN)
        down = rate >= HIGH_MIN or self._one_silent(row, losses)
        # Of several one may lose all of its part, or each a part.
        each = [
            self.counters.expected(row, routes, weight, one, down, self.moved)
            for one in sorted({dead, dead or bool(row.others)})
        ]
        return max(each, key=lambda it: self.counters.nats(self.moved, it))

    def _one_silent(self, row: Component, losses: IntArray) -> bool:
        """Whether one of several links that a component stands for may be down: it sends nothing
        when these losses leave.
        """
        if self.seen.silent is None or not row.others or row.kind == HALF:
            return False
        at = self.seen.bin_of(self.seen.lost.sent_us[losses])
        return bool(self.seen.silent[at][:, list(row.ports)].any())

    def add(self, fault: Fault) -> None:
        """Accept a fault."""
        self.set([*self.faults, fault])

    def set(self, faults: list[Fault]) -> None:
        """Take these faults for true, and no others."""
        self.faults = list(faults)
        now = self.chance.copy()
        for it in self.faults:
            for rows, part in ((self.losses(it), 1.0), self._unanswered(it)):
                now[rows] = np.log1p(-(1 - np.exp(now[rows])) * (1 - part * it.draws))
        self.now = now
        self.moved = self.counters.usual + sum(it.moved for it in self.faults)

    def losses(self, fault: Fault) -> IntArray:
        """Return the losses that a fault may have caused."""
        pairs, rtt_us = self.pairs, self.seen.rtt_us
        part = slice(pairs.first[fault.component], pairs.first[fault.component + 1])
        packets, at_us = pairs.packet[part], pairs.at_us[part]
        # A port that says that it was down knows when.
        told = np.append(self.seen.lost.ev < 0, np.zeros(len(self.seen.answered), np.bool_))
        near_us = rtt_us * ~told[packets]
        during = np.zeros(len(packets), np.bool_)
        for since_us, until_us in fault.spans_us:
            during |= (at_us >= since_us - FRONT * near_us) & (at_us <= until_us + AROUND * near_us)
        if fault.level < DEAD:
            during &= ~pairs.back[part]
        found: IntArray = packets[during & (packets < len(self.seen.lost))]
        said = found[self.seen.lost.ev[found] < 0]
        kept = self._told_of(found) if fault.told else said[:0]
        found = found[~np.isin(found, np.setdiff1d(said, kept))]
        return found[~self.seen.lost.probe[found]] if fault.level == NARROW else found

    def _unanswered(self, fault: Fault) -> tuple[LongArray, float]:
        """Return probes, or packets, whose answers may have met a fault, and the part of them that
        do: answers take any way back between their T0s.
        """
        lost, fabric = self.seen.lost, self.seen.fabric
        row = self.table.rows[fault.component]
        part = ways_back(fabric, row)
        if not part or fault.level == NARROW:
            return np.zeros(0, np.int64), 0.0
        during = np.zeros(len(lost), np.bool_)
        for since_us, until_us in fault.spans_us:
            during |= (lost.known_us >= since_us) & (lost.sent_us <= until_us)
        own = np.isin(lost.routes, row.ports).any(axis=1)
        same = np.isin(lost.routes[:, 0] % fabric.n_planes, planes(fabric, row))
        # Of a trimmed packet only an answer tells; where ports do, it is missing nowhere.
        hangs = lost.probe | (not self.seen.counted)
        return np.flatnonzero(during & hangs & same & ~own & (lost.ev >= 0)), part

    def worth(self) -> float:
        """Return the logarithm of the posterior of the faults, against none."""
        total = float(((self.now - self.chance) * self.draws).sum())
        usual = self.counters.usual
        total += self.counters.nats(usual, self.moved - usual)
        known = set()
        for at, it in enumerate(self.faults):
            total -= NESTED_NATS * sum(self._nested(it, other) for other in self.faults[:at])
            again = float(self._again[it.component])
            prior = again if it.component in known else self.table.nats[it.component]
            total += it.passed * np.log1p(-it.draws) - prior - it.price
            known.add(it.component)
        return total

    def search(self) -> None:
        """Add faults until no other is worth its prior; then exchange and merge them."""
        for _ in range(ROUNDS_MAX):
            fault = self.best()
            if fault is None:
                break
            self.add(fault)
        self._merge()
        for component in sorted({it.component for it in self.faults}):
            self._widen(component)

    def _widen(self, component: int) -> None:
        """Take a larger component for the faults of one if it is simpler and explains the same, but
        for what the model does not know of edges.
        """
        before, kept = self.worth(), self.faults
        nats = self.table.nats
        own = [it for it in kept if it.component == component]
        around = self.table.around(component) - {component}
        larger = [it for it in around if nats[it] <= nats[component]]
        for which in sorted(larger, key=lambda it: (-len(self.table.rows[it].ports), it)):
            self.set([it for it in kept if it.component != component])
            found = self.best(which)
            if found is not None:
                self.add(found)
                if self.worth() > before - EQUAL * sum(it.nats for it in own):
                    return
        self.set(kept)

    def _merge(self) -> None:
        """Try others in place of faults until nothing is better."""
        for _ in range(ROUNDS_MAX):
            if not any(self._instead(some, *which) for some, which in self._exchanges()):
                return

    def _exchanges(self) -> Iterator[tuple[list[Fault], tuple[int | None, ...]]]:
        """What is tried in place of some faults, one component after the other; None is the best.

        Each anew; one component for all that lie within it; two that share links, in both orders;
        and one that explains nearly as much as a fault, with one more.
        """
        kept = list(self.faults)
        yield from (([it], (None,)) for it in kept)
        around = [self.table.around(it.component) for it in kept]
        many = Counter(which for each in around for which in each)
        for which in sorted(it for it, n in many.items() if n >= 2):
            yield [it for it, each in zip(kept, around, strict=True) if which in each], (which,)
        for one, other in permutations(kept, 2):
            if self._nested(one, other) and one.component != other.component:
                yield [one, other], (one.component, other.component)
        for it in kept:
            yield from (([it], (which, None)) for which in self._near(it))

    def _near(self, fault: Fault) -> list[int]:
        """The components that explain nearly as much as a fault, the best first."""
        kept = self.faults
        self.set([it for it in kept if it is not fault])
        net = self.nets(fault.nats - NEAR_NATS)
        self.set(kept)
        near = [it for it in net if it != fault.component and net[it] >= fault.nats - NEAR_NATS]
        return sorted(near, key=lambda it: (-net[it], it))[:NEAR_MAX]

    def _instead(self, some: list[Fault], *components: int | None) -> bool:
        """Whether the best faults of components, or none, in place of some are worth more."""
        before, kept = self.worth(), self.faults
        self.set([it for it in kept if it not in some])
        for which in components:
            if (fault := self.best(which)) is not None:
                self.add(fault)
        if self.worth() > before + BETTER_NATS:
            return True
        self.set(kept)
        return False


def rate_of(lost: float, passed: float, sometime: float) -> float:
    """Return the most probable rate of a fault that lost some packets, if others passed, or arrived
    in a bin of which it lasted for a part: if that is f, each did so with 1 - f x rate.
    """
    total = lost + passed + sometime
    return 2 * lost / (total + math.sqrt(total * total - 4 * sometime * lost))


def _merged(seen: Observed) -> tuple[Observed, FloatArray, FloatArray, FloatArray]:
    """Return what is observed with the losses of one path that left and were missed at about one
    time as one, the mean of their chances, how many each is, and which part of a draw.
    """
    lost, nats = unanswered(seen), chance.of_losses(seen, seen.lost)
    if not len(lost):
        return seen, nats, np.ones(0), np.ones(0)
    # A host that stands still does so on all planes; where ports count, what it is late with shows.
    draws = chance.draws(lost, seen.fabric.n_planes if seen.counted else 1, seen.rtt_us)
    at = np.floor(lost.sent_us / (AT_ONCE * seen.rtt_us))
    missed = np.floor(lost.known_us / seen.rtt_us)
    own = np.where(lost.ev < 0, lost.qp, 0)
    keys = np.column_stack([at, missed, lost.probe, own, lost.routes, lost.back])
    _, first, of = np.unique(keys.astype(np.int64), axis=0, return_index=True, return_inverse=True)
    of, weight = of.ravel(), np.bincount(of.ravel()).astype(np.float64)
    mean = np.bincount(of, nats) / weight
    drawn = np.asarray(np.bincount(of, draws), np.float64)
    order = np.argsort(lost.sent_us[first], kind="stable")
    return replace(seen, lost=lost.take(first[order])), mean[order], weight[order], drawn[order]
