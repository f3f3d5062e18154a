"""What went into switches and did not come out, as ports count, and what arrived damaged.

What the ports towards a switch sent, less what it sent itself and dropped because its queues were
full, is missing there: a link into it lost it, or the switch did, or one of its ports that were
down. That is exact but for what is under way when counters are read. Nobody knows what a NIC did
not send, or did not get. Damaged packets are missing nowhere: the NIC that gets them counts them.

Each count is that of all faults together, and of few packets besides. Of what senders judge lost
some is only late, and what is lost may have been an answer, of which they judge nothing: a count
may be half of what was expected, or three times as much, and is Poisson beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from openmrc.fabric.model import BoolArray, IntArray, LongArray
from openmrc.ops.diagnose.components import PLANE, SWITCH, TIER, Component
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets

SPARE = 1.0  # packets that are missing where nothing is broken: some are between two readings
DAMAGED = 0.05  # packets that arrive damaged where nothing is broken
LEAST, MOST = 0.5, 3.0  # times what is expected
MORE_NATS = 10.0  # by which more than that is held against faults: something else may have been
SENT_MIN = 0.5  # of what its senders put on its paths: a port that is up sends so much
MOST_OF = 0.5  # of what a place lost is counted in one way or another


@dataclass(frozen=True, eq=False)
class Counters:
    """Packets missing at each switch, followed by damaged ones by the port towards a NIC."""

    seen: Observed
    counts: FloatArray  # [switches + ports]
    usual: FloatArray  # as many as there may be without a fault
    under_way: FloatArray  # of these, what may have been between two ports at the end, or not

    def expected(
        self,
        row: Component,
        routes: IntArray,
        bins: LongArray,
        weight: FloatArray,
        dead: bool,
        so_far: FloatArray,
    ) -> FloatArray:
        """Return which counts [switches + ports] a component moves that lost packets on these
        routes in these bins, each with the probability `weight`: of two that it may move the one of
        which more is left, if others move `so_far`.
        """
        fabric, n = self.seen.fabric, self.seen.fabric.n_switches
        found = np.zeros(len(self.counts))
        if not len(routes):
            return found
        left = np.append(np.maximum(self.counts - so_far, 0), 0)  # the last is that of no count
        last = n + routes[np.arange(len(routes)), (routes >= 0).sum(axis=1) - 1]
        if left[np.unique(last)].sum() >= MOST_OF * weight.sum():
            np.add.at(found, last, weight)
            return found + self._damaged_answers(row, left[:-1] - found, float(weight.sum()))
        mine = np.isin(routes, row.ports) & (routes >= 0)
        if dead:  # the first of its links loses all
            mine &= np.cumsum(mine, axis=1) == 1
        nowhere = len(self.counts)
        far = np.where(mine, fabric.port_peer_switch[routes], -1)
        # A switch misses what a port of its own that is down does not send.
        quiet = (SENT_MIN * self.seen.sent > self.seen.out) | unsent(self.seen)
        # One of several; or what a switch that is down does to its neighbours.
        quiet |= bool(row.others) or row.kind in (SWITCH, TIER, PLANE)
        own = np.where(mine & dead & quiet[bins[:, None], routes], fabric.port_switch[routes], -1)
        far, own = (np.where(it < 0, nowhere, it) for it in (far, own))
        each = mine * (weight / np.maximum(mine.sum(axis=1), 1))[:, None]
        enough = left[own] >= MOST_OF * np.bincount(own.ravel(), each.ravel(), nowhere + 1)[own]
        at = np.where((left[own] > left[far]) & enough, own, far)
        return found + np.bincount(at.ravel(), each.ravel(), nowhere + 1)[:-1]

    def _damaged_answers(self, row: Component, left: FloatArray, lost: float) -> FloatArray:
        """Which counts of damaged packets are of answers: a NIC that damages what it sends damages
        them as often as the data of which so many packets were lost.
        """
        fabric = self.seen.fabric
        own = np.array([it for it in row.ports if fabric.port_nic[it] >= 0], np.int64)
        sent, got = (self.seen.sent[:, it].sum() for it in (own, fabric.port_reverse[own]))
        found = np.maximum(left, 0)
        found[: fabric.n_switches] = 0
        found[fabric.n_switches + fabric.port_reverse[own]] = 0
        most = MOST * lost * got / max(float(sent), 1)
        return np.asarray(found * min(most / max(float(found.sum()), 1e-9), 1.0))

    def nats(self, so_far: FloatArray, more: FloatArray) -> float:
        """Return how much the counts speak for faults that move them by `more`."""
        return float((self._log(so_far + more) - self._log(so_far)).sum())

    def at_most(self, rows: Sequence[Component]) -> FloatArray:
        """Return how much the counts may speak for each component, if no other fault moves them."""
        fabric, n = self.seen.fabric, self.seen.fabric.n_switches
        gain = self._log(self.usual + self.counts) - self._log(self.usual)
        ports = np.concatenate([row.ports for row in rows])
        of = np.repeat(np.arange(len(rows)), [len(row.ports) for row in rows])
        switch = np.append(fabric.port_peer_switch[ports], fabric.port_switch[ports])
        each = np.unique(np.append(of, of)[switch >= 0] * n + switch[switch >= 0])
        # What is damaged on its way, or answers, any NIC may count.
        own = np.bincount(each // n, gain[each % n], len(rows))
        return np.asarray(own + float(gain[n:].sum()), np.float64)

    def surely_through(self) -> FloatArray:
        """Return [bins, ports] how many packets of any sort crossed each link to a switch for
        certain: what its port sent, unless that is missing there in the whole run; and each link of
        a NIC: answers to what crossed its other direction.
        """
        far = self.seen.fabric.port_peer_switch
        gone = np.where(far >= 0, self.counts[far], np.inf)
        found = np.maximum(self.seen.out - gone, 0)
        fabric = self.seen.fabric
        own = np.arange(fabric.n_nics * fabric.n_planes)
        for port, back in ((own, fabric.port_reverse[own]), (fabric.port_reverse[own], own)):
            found[:, port] = np.maximum(found[:, port], self.seen.answers[:, back])
        return np.asarray(found)

    def _log(self, mean: FloatArray) -> FloatArray:
        """The logarithms of the probabilities of the counts, but for what does not depend on the
        means.
        """
        counts = np.maximum(self.counts, 1e-9)
        near = np.clip(counts, LEAST * (mean - self.under_way), MOST * mean)
        found = counts * np.log(near / counts) - (near - counts)
        more = counts > near
        found[more] = np.maximum(found[more], -MORE_NATS)
        return np.asarray(found)


def counters(seen: Observed) -> Counters:
    """Return what is missing in a whole run."""
    fabric = seen.fabric
    out, dropped = seen.out.sum(axis=0), seen.dropped.sum(axis=0)
    into, own, n = fabric.port_peer_switch, fabric.port_switch, fabric.n_switches
    came = np.bincount(into[into >= 0], out[into >= 0], n)
    left = np.bincount(own[own >= 0], (out + dropped)[own >= 0], n)
    counts = np.append(np.maximum(came - left, 0), seen.damaged.sum(axis=0))
    under_way = np.append(
        np.bincount(into[into >= 0], _last(seen)[into >= 0], n), np.zeros(fabric.n_ports)
    )
    spare = np.append(np.full(n, SPARE), np.full(fabric.n_ports, DAMAGED))
    usual = np.asarray(spare + under_way, np.float64)
    return Counters(seen, counts, usual, np.asarray(under_way, np.float64))


def unanswered(seen: Observed) -> Packets:
    """Return what was lost, without the ways back of what the last port on its way did not send:
    nobody answered that.
    """
    lost = seen.lost
    last = lost.routes[np.arange(len(lost)), (lost.routes >= 0).sum(axis=1) - 1]
    gone = unsent(seen)[last]
    return replace(lost, back=np.where(gone[:, None], -1, lost.back).astype(np.int32))


def unsent(seen: Observed) -> BoolArray:
    """Return which ports did not send what was lost on its way across them."""
    routes = seen.lost.routes[~seen.lost.probe]
    gone = np.bincount(routes[routes >= 0], minlength=seen.fabric.n_ports)
    sent, out = seen.sent.sum(axis=0), seen.out.sum(axis=0)
    return np.asarray((out < sent - MOST_OF * gone) & (gone > 0))


def _last(seen: Observed) -> FloatArray:
    """[ports] packets that each sent within a round trip of the end: they may be under way."""
    if seen.over:
        return np.zeros(seen.fabric.n_ports)
    width = np.diff(seen.edges_us)
    after = np.clip((seen.edges_us[1:] - seen.edges_us[-1] + seen.rtt_us) / width, 0, 1)
    return np.asarray(after @ seen.out)
