"""What is missing in switches and on links, as ports count, and what arrived damaged.

What came into a switch, less what it sent itself and dropped because its queues were full, is
missing there: the switch lost it, or one of its ports that were down. That is exact but for what is
under way when counters are read. What a port sent and the one at the other end did not get is
missing on the link. Nobody knows what a NIC did not send. Damaged packets are missing nowhere: the
NIC that gets them counts them.

Each count is that of all faults together, and of few packets besides. Of what senders judge lost
some is only late, and what is lost may have been an answer, of which they judge nothing: a count
may be half of what was expected, or three times as much, and is Poisson beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from openmrc.fabric.model import BoolArray, Fabric, IntArray, LongArray
from openmrc.ops.diagnose.chance import FLOOR
from openmrc.ops.diagnose.components import Component
from openmrc.ops.diagnose.missing import Missing, missing
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets

SPARE = 1.0  # packets that are missing where nothing is broken: some are between two readings
LEAST, MOST = 0.5, 3.0  # times what is expected
MOST_OF = 0.5  # of what a place lost is counted in one way or another


@dataclass(frozen=True, eq=False)
class Counters:
    """Packets missing in each switch, followed by those missing on the link of each port, and by
    damaged ones by the port towards a NIC.
    """

    seen: Observed
    counts: FloatArray  # [switches + 2 ports]
    usual: FloatArray  # as many as there may be without a fault
    missing: Missing
    round_trip: FloatArray  # [ports] so many packets does each send in one, at most

    def expected(
        self,
        row: Component,
        routes: IntArray,
        weight: FloatArray,
        dead: bool,
        down: bool,
        so_far: FloatArray,
    ) -> FloatArray:
        """Return which counts [switches + 2 ports] a component moves that lost packets on these
        routes, each with the probability `weight`: of two that it may move the one of which more is
        left, if others move `so_far`.
        """
        fabric, n = self.seen.fabric, self.seen.fabric.n_switches
        damaged = n + fabric.n_ports
        found = np.zeros(len(self.counts))
        mine = np.isin(routes, row.ports) & (routes >= 0)
        crosses = mine.any(axis=1)  # of the others the answer was lost
        mine, routes, weight = mine[crosses], routes[crosses], weight[crosses]
        if not len(routes):
            return found
        left = np.append(np.maximum(self.counts - so_far, 0), 0)  # the last is that of no count
        last = damaged + routes[np.arange(len(routes)), (routes >= 0).sum(axis=1) - 1]
        # What lets nothing through damages nothing.
        if not dead and left[np.unique(last)].sum() >= MOST_OF * weight.sum():
            np.add.at(found, last, weight)
            return found + self._damaged_answers(row, left[:-1] - found, float(weight.sum()))
        if dead:  # the first of its links loses all
            mine &= np.cumsum(mine, axis=1) == 1
        each = mine * (weight / np.maximum(mine.sum(axis=1), 1))[:, None]
        nowhere = len(self.counts)
        far = np.where(mine, n + routes, nowhere)
        # What a link does not miss its port did not send if it was down: its switch misses it, and
        # of a NIC nobody knows.
        switch = fabric.port_switch[routes]
        own = np.where(mine & down, np.where(switch >= 0, switch, nowhere), far)
        moved = np.bincount(far.ravel(), each.ravel(), nowhere + 1)
        there = np.minimum(left / np.maximum(moved, 1e-9), 1)
        rest = each * (1 - there[far])
        left[nowhere] = np.inf
        enough = left >= MOST_OF * np.bincount(own.ravel(), rest.ravel(), nowhere + 1)
        own = np.where(enough[own], own, far)
        for at, part in ((far, each - rest), (own, rest)):
            found += np.bincount(at.ravel(), part.ravel(), nowhere + 1)[:-1]
        if dead:  # and what was on its other links as it died
            own = np.array(row.ports)
            on_way = np.minimum(self.round_trip[own], left[n + own])
            found[n + own] = np.maximum(found[n + own], on_way)
        return found

    def _damaged_answers(self, row: Component, left: FloatArray, lost: float) -> FloatArray:
        """Which counts of damaged packets are of answers: what damages what crosses it damages them
        as often as the data of which so many packets were lost.
        """
        fabric, own = self.seen.fabric, np.array(row.ports)
        sent, got = (self.seen.sent[:, it].sum() for it in (own, fabric.port_reverse[own]))
        at = fabric.n_switches + fabric.n_ports + last_ports(fabric, own)
        found = np.zeros(len(left))
        found[at] = np.maximum(left[at], 0)
        most = MOST * lost * got / max(float(sent), 1)
        return np.asarray(found * min(most / max(float(found.sum()), 1e-9), 1.0))

    def nats(self, so_far: FloatArray, more: FloatArray) -> float:
        """Return how much the counts speak for faults that move them by `more`: nothing, where none
        were read.
        """
        if not self.seen.counted:
            return 0.0
        return float((self._log(so_far + more) - self._log(so_far)).sum())

    def moved_by(self, rows: Sequence[Component]) -> tuple[LongArray, LongArray]:
        """Return pairs of a component and a count that it may move by itself: of its links, and of
        the switches at their ends.
        """
        fabric, n = self.seen.fabric, len(self.counts)
        ports = np.concatenate([row.ports for row in rows])
        of = np.repeat(np.arange(len(rows)), [len(row.ports) for row in rows])
        each = (fabric.port_peer_switch[ports], fabric.port_switch[ports])
        keys = [of[it >= 0] * n + it[it >= 0] for it in each]
        found = np.unique(np.concatenate([*keys, of * n + fabric.n_switches + ports]))
        return found // n, found % n

    def at_most(self, so_far: FloatArray, of: LongArray, count: LongArray, n: int) -> FloatArray:
        """Return how much the counts may speak for each of `n` components that may move these, if
        others move `so_far`.
        """
        if not self.seen.counted:
            return np.zeros(n)
        gain = -self._log(so_far)
        damaged = gain[self.seen.fabric.n_switches + self.seen.fabric.n_ports :].sum()
        # What is damaged on its way, or answers, any NIC may count.
        return np.asarray(np.bincount(of, gain[count], n) + float(damaged), np.float64)

    def surely_through(self) -> FloatArray:
        """Return [bins, ports] how many packets of any sort crossed each link to a switch for
        certain: what its port sent, unless that is missing there in the whole run; and each link of
        a NIC: answers to what crossed its other direction.
        """
        seen, fabric = self.seen, self.seen.fabric
        far = fabric.port_peer_switch
        inside = np.where(far >= 0, self.counts[far], np.inf)
        # What is under way at the end of a tick may be missing in the next.
        part = np.minimum(seen.rtt_us / np.maximum(np.diff(seen.edges_us), 1e-9), 1)[:, None]
        later = np.minimum(np.pad(seen.gone[1:], ((0, 1), (0, 0))), seen.out * part)
        found = np.maximum(seen.out - seen.gone - later - inside, 0)
        own = np.arange(fabric.n_nics * fabric.n_planes)
        for port, back in ((own, fabric.port_reverse[own]), (fabric.port_reverse[own], own)):
            sure = seen.answers[:, back]
            if seen.counted:
                sure = np.minimum(sure, (seen.out - seen.gone)[:, port])
            found[:, port] = np.maximum(found[:, port], sure)
        return np.asarray(found)

    def passed(self, row: Component, spans_us: Sequence[tuple[float, float]]) -> float | None:
        """Return how many packets of all sorts came through a component, as ports count, for each
        packet of data that was sent across it, in the ticks that lie within these spans; None: none
        was, or nobody counted.
        """
        seen, links = self.seen, list(row.gates)
        if not seen.counted:
            return None
        rtt_us, begin, end = self.seen.rtt_us, seen.edges_us[:-1], seen.edges_us[1:]
        within = np.zeros(len(begin), np.bool_)
        for since_us, until_us in spans_us:
            within |= (begin >= since_us + rtt_us) & (end <= until_us - rtt_us)
        went = seen.out - seen.gone - seen.damaged
        far = np.unique(seen.fabric.port_peer_switch[links])
        through = went[:, links].sum(axis=1)
        if len(row.ports) > len(links):  # and came out of the switches in it
            through -= self.missing.inside[:, far[far >= 0]].sum(axis=1)
        sent = float(seen.sent[within][:, links].sum())
        return float(np.maximum(through[within], 0).sum()) / sent if sent else None

    def _log(self, mean: FloatArray) -> FloatArray:
        """The logarithms of the probabilities of the counts, but for what does not depend on the
        means.
        """
        counts = np.maximum(self.counts, 1e-9)
        near = np.clip(counts, LEAST * (mean - self.usual), MOST * mean)
        found = counts * np.log(near / counts) - (near - counts)
        fewer = counts < near  # what a fault lost is counted as surely as it is not late
        found[fewer] = (near - counts)[fewer] * np.log(FLOOR)
        more = counts > near
        n = self.seen.fabric.n_switches
        more[n : n + self.seen.fabric.n_ports] = False  # it is known on which link
        # Where nobody knows where it was lost, something else lost the rest: one more event.
        found[more] = np.maximum(found[more], np.log(FLOOR))
        return np.asarray(found)


def counters(seen: Observed) -> Counters:
    """Return what is missing in a whole run."""
    fabric, n = seen.fabric, seen.fabric.n_switches
    here, into = missing(seen), fabric.port_peer_switch
    each = here.inside.sum(axis=0), here.links.sum(axis=0), seen.damaged.sum(axis=0)
    ways = np.bincount(into[into >= 0], _last(seen)[into >= 0], n)
    # On a link, and of damaged ones, as many as senders lose by chance.
    astray = FLOOR * np.maximum(seen.out.sum(axis=0), 1)
    usual = np.concatenate([SPARE + ways, astray, astray])
    round_trip = (seen.out / np.diff(seen.edges_us)[:, None]).max(axis=0) * seen.rtt_us
    return Counters(seen, np.concatenate(each), usual, here, round_trip)


def unanswered(seen: Observed) -> Packets:
    """Return what was lost, without the ways back of answers that were not lost there: nobody
    answered what the last port on its way did not send; and of what is missing neither on a link
    nor in a switch at its ends, while its port sends, nothing was lost on it.
    """
    if not seen.counted:
        return seen.lost
    lost, (links, inside) = seen.lost, missing(seen)
    last = lost.routes[np.arange(len(lost)), (lost.routes >= 0).sum(axis=1) - 1]
    begin, end = seen.bin_of(lost.sent_us)[:, None], seen.bin_of(lost.known_us)[:, None] + 1

    def meanwhile(each: FloatArray, column: IntArray) -> FloatArray:
        upto = np.pad(np.cumsum(each, axis=0), ((1, 0), (0, 1)))  # the last column is of nothing
        return np.asarray(upto[end, column] - upto[begin, column])

    may = (meanwhile(links, lost.back) > 0) | (meanwhile(seen.out, lost.back) == 0)
    for it in (seen.fabric.port_switch, seen.fabric.port_peer_switch):
        may |= meanwhile(inside, it[lost.back]) > 0
    kept = may & ~unsent(seen)[last][:, None]
    return replace(lost, back=np.where(kept, lost.back, -1).astype(np.int32))


def unsent(seen: Observed) -> BoolArray:
    """Return which ports did not send what was lost on its way across them."""
    routes = seen.lost.routes[~seen.lost.probe]
    gone = np.bincount(routes[routes >= 0], minlength=seen.fabric.n_ports)
    sent, out = seen.sent.sum(axis=0), seen.out.sum(axis=0)
    return np.asarray((out < sent - MOST_OF * gone) & (gone > 0))


def last_ports(fabric: Fabric, ports: LongArray) -> LongArray:
    """Return the ports towards NICs that are the last of what crosses some ports: on the same plane
    those below where a port goes down, and all others where it goes up.
    """
    nics, plane = np.arange(fabric.n_nics), ports % fabric.n_planes
    own, far = fabric.port_switch[ports], fabric.port_peer_switch[ports]
    plane = np.where(own >= 0, fabric.sw_plane[own], plane)
    down = (own >= 0) & ((far < 0) | (fabric.sw_tier[far] < fabric.sw_tier[own]))
    below = np.where(down, far, own)
    nic = np.where(down, fabric.port_peer_nic[ports], fabric.port_nic[ports])
    first = np.where(below >= 0, fabric.sw_lo[below], nic)[:, None]
    end = np.where(below >= 0, fabric.sw_hi[below], nic + 1)[:, None]
    there = ((nics >= first) & (nics < end)) == down[:, None]
    return np.unique(fabric.port_reverse[nics * fabric.n_planes + plane[:, None]][there])


def _last(seen: Observed) -> FloatArray:
    """[ports] packets that each sent within a round trip of the end: they may be under way."""
    if seen.over:
        return np.zeros(seen.fabric.n_ports)
    width = np.diff(seen.edges_us)
    after = np.clip((seen.edges_us[1:] - seen.edges_us[-1] + seen.rtt_us) / width, 0, 1)
    return np.asarray(after @ seen.out)
