"""The earliest time of each entry of a workload in which series, single messages and computations
release each other, such as a training step.

These are bounds, as in `ideal`: each message is alone in the network, but everything that a NIC
must receive before it continues occupies its ports for at least the sum of the transmission times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import LongArray
from openmrc.traffic.releases import mixed_waves
from openmrc.traffic.traffic import Traffic

NO_HOP = 1 << 40  # a lag that no series is long enough for
FAR = np.int64(1 << 61)  # later than everything


class Cost(NamedTuple):
    """Columns per message, in picoseconds."""

    send: LongArray  # transmission of all its packets on the first link, in sequence
    receive: LongArray  # the same on the last link
    arrive: LongArray  # from its posting until its last byte is placed, alone in the network
    lead: LongArray  # of any of its packets: latency, and transmission before the last link
    trail: LongArray  # of any of its packets: latency, and transmission after the first link
    behind: LongArray  # of the last one, right behind a whole one of the same message, the same
    ack: LongArray  # from the arrival until the sender has the acknowledgement


def no_cost(traffic: Traffic) -> Cost:
    """The cost of messages in a network without delays."""
    return Cost(*(np.zeros(traffic.n_msgs, np.int64) for _ in Cost._fields))


def earliest_ps(traffic: Traffic, cost: Cost, n_planes: int) -> tuple[LongArray, LongArray]:
    """Return when each entry can be posted or begin, and when its last message can (the same for an
    entry that happens once); int64 [entries] each, ps.

    An entry that needs only some of its releases counts as waiting for its start alone: too early
    is still a bound.
    """
    giving, released = traffic.edges
    counts, n = traffic.counts, traffic.n_entries
    many = counts > 1
    given = np.zeros(n, np.int64)
    np.add.at(given, released, np.where(many[released], 1, counts[giving]))
    needs_all = many | (traffic.deps == given)
    none = np.zeros(traffic.n_calcs, np.int64)
    wait = np.concatenate([traffic.msg_compute_ps, none])
    arrive = np.concatenate([cost.arrive, traffic.calc_ps])
    ack, lead = np.concatenate([cost.ack, none]), np.concatenate([cost.lead, none])
    work = np.concatenate([cost.receive * traffic.msg_count, none])
    posted = np.concatenate([traffic.msg_start_ps, traffic.calc_start_ps])
    last = posted.copy()
    outer = ~(many[giving] & many[released]) & needs_all[released]
    by_arrival = np.arange(len(giving)) < len(traffic.recv_next)
    into = _Edges(giving, outer, n)
    joins = _Joins(traffic, outer & by_arrival)
    after = arrive[giving] + np.where(by_arrival, 0, ack[giving])  # of each release, its delay
    back = _Hops(traffic, after, wait)
    for wave in mixed_waves(giving, released, np.where(needs_all, traffic.deps, 0), counts):
        posted[wave] = np.maximum(posted[wave], joins.ready(wave, n_planes) + wait[wave])
        last[wave] = posted[wave]
        series = wave[many[wave]]
        if len(series):
            last[series] = back.last_ps(series, posted, counts)
        edge = into.of(wave)
        ready = last[giving[edge]] + after[edge]
        np.maximum.at(posted, released[edge], ready + wait[released[edge]])
        edge = edge[joins.counted[edge]]
        joins.add(released[edge], posted[giving[edge]] + lead[giving[edge]], work[giving[edge]])
    return posted, last


class _Edges:
    """Releases, indexed by the entry that gives them."""

    def __init__(
        self, giving: npt.NDArray[np.integer], which: npt.NDArray[np.bool_], n: int
    ) -> None:
        chosen = np.flatnonzero(which)
        self._edge = chosen[np.argsort(giving[chosen], kind="stable")]
        self._first = np.searchsorted(giving[self._edge], np.arange(n + 1))

    def of(self, entries: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        counts = self._first[entries + 1] - self._first[entries]
        begin = np.repeat(self._first[entries] - (np.cumsum(counts) - counts), counts)
        return self._edge[begin + np.arange(len(begin))]


class _Joins:
    """Entries that wait for several arrivals at one NIC: its ports must carry all of them."""

    def __init__(self, traffic: Traffic, which: npt.NDArray[np.bool_]) -> None:
        giving, released = traffic.edges
        n = traffic.n_entries
        which = which & (giving < traffic.n_msgs)
        nic = traffic.msg_dst[giving[which]]
        least, most = np.full(n, np.iinfo(np.int32).max), np.full(n, -1)
        np.minimum.at(least, released[which], nic)
        np.maximum.at(most, released[which], nic)
        self.counted = which & (least == most)[released]
        self._first = np.full(n, FAR)
        self._work = np.zeros(n, np.int64)

    def add(
        self, entries: npt.NDArray[np.integer], first_ps: LongArray, work_ps: LongArray
    ) -> None:
        """Add an arrival for each entry: the earliest time of its first byte, and how long it
        occupies the ports.
        """
        np.minimum.at(self._first, entries, first_ps)
        np.add.at(self._work, entries, work_ps)

    def ready(self, entries: npt.NDArray[np.intp], n_planes: int) -> LongArray:
        """The earliest time at which everything has arrived; far in the past for entries that wait
        for nothing.
        """
        first = self._first[entries]
        ready: LongArray = np.where(first == FAR, -FAR, first + self._work[entries] // n_planes)
        return ready


class _Hops:
    """A hop from each series back to the entry that releases it: which one, how many messages
    behind, and after how long.
    """

    def __init__(self, traffic: Traffic, after: LongArray, wait: LongArray) -> None:
        giving, released = traffic.edges
        n = traffic.n_entries
        many = traffic.counts > 1
        inner = many[giving] & many[released]
        to = released[inner]
        self._by, self._lag, self._time = np.full(n, n), np.full(n, NO_HOP), np.zeros(n, np.int64)
        self._by[to] = giving[inner]
        self._lag[to] = 1 - traffic.deps[to]
        self._time[to] = after[inner] + wait[to]
        self._local = np.zeros(n + 1, np.int64)  # positions within the series of a wave

    def last_ps(
        self, series: npt.NDArray[np.intp], posted: LongArray, counts: npt.NDArray[np.integer]
    ) -> LongArray:
        """When the last message of each of these series, which are those of one wave, can be
        posted, ps.

        Message k waits for message k - lag of another, that for one of a third, and so on, round a
        ring; the longest chain counts. Tables of 1, 2, 4 ... hops at once find it in as many steps
        as the series has binary digits.
        """
        n = len(series)
        self._local[series] = np.arange(n)
        self._local[-1] = n  # where all chains end
        hop = np.append(self._local[self._by[series]], n)
        lag, time = np.append(self._lag[series], NO_HOP), np.append(self._time[series], 0)
        best = np.append(posted[series], -FAR)  # over the entries within so many hops
        k = counts[series].astype(np.int64) - 1
        tables = [(hop, lag, time, best)]
        while (k >= lag[:n]).any():
            onward = lag[hop]
            best = np.maximum(best, time + best[hop])
            lag, time, hop = np.minimum(lag + onward, NO_HOP), time + time[hop], hop[hop]
            tables.append((hop, lag, time, best))
        here, total, latest = np.arange(n), np.zeros(n, np.int64), np.full(n, -FAR)
        for hop, lag, time, best in reversed(tables):
            able = k >= lag[here]
            latest = np.where(able, np.maximum(latest, total + best[here]), latest)
            total += np.where(able, time[here], 0)
            k = np.where(able, k - lag[here], k)
            here = np.where(able, hop[here], here)
        found: LongArray = np.maximum(latest, total + np.append(posted[series], -FAR)[here])
        return found
