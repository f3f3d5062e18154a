"""Bursts: many probes of one link at once, where what was lost does not say which link loses it.

A burst is ordered from the agents that can send probes across the link. Once all have reported what
they sent, those that receive it are asked what arrived: probes that were not sent yet are not lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from openmrc.ops import evidence
from openmrc.ops.evidence import Evidence
from openmrc.ops.mapper.agent import BurstReport
from openmrc.ops.schedule import BURST_MAX, TURNS, Schedule
from openmrc.units import MS

SUSPECTS_AT_ONCE = 8  # links that may get a burst together ...
BURSTS_AT_ONCE = 10  # ... with those that tell them from their switches
BURST_MIN = 25  # fewer probes of a link may lose nothing though it loses a tenth
ROUND = 400  # probes of the bursts that are ordered together: their senders have other work
HOLD_PS = 20 * MS  # waits for the results of bursts, before new losses are judged again
BURST_WAIT_PS = 100 * MS  # for agents to report on it


class Order(NamedTuple):
    """A burst, and the agents that send it."""

    burst: int
    port: int
    n: int
    to: frozenset[int] = frozenset()


class Count(NamedTuple):
    """A request to report which rows of this burst arrived."""

    burst: int
    to: frozenset[int] = frozenset()


@dataclass
class _Burst:
    port: int
    routes: np.ndarray  # [n, hops] directed ports
    src: np.ndarray  # [n] the NICs that send each probe ...
    dst: np.ndarray  # ... and receive it
    asked_ps: int
    senders: frozenset[int]
    receivers: frozenset[int]
    sent: set[int] = field(default_factory=set)  # agents that reported having sent
    counted: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # rows
    heard: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)  # rows, to who sent them
    counting: bool = False


class Bursts:
    """Those of one fabric. `is_dark` says which routes cross a port without carrier: what they lose
    is no evidence.
    """

    def __init__(
        self, schedule: Schedule, first: int, is_dark: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self.schedule, self._is_dark = schedule, is_dark
        self.out: dict[int, _Burst] = {}
        self.results: deque[tuple[int, Evidence]] = deque()  # when, and what
        self.news = False  # some that lost something have not been judged yet
        self._next = first
        self._probed: dict[int, tuple[int, int]] = {}  # by port: since when, in how many probes

    # --- orders

    def order(
        self, now_ps: int, ports: Sequence[int], named: Collection[int], there: Collection[int]
    ) -> list[Order]:
        """Order bursts for suspected ports that are not `named` already, from the agents that are
        `there`.
        """
        due = self._may_probe(now_ps, ports, named)[:SUSPECTS_AT_ONCE]
        beside = self._may_probe(now_ps, self.schedule.beside(due), named)
        due += beside[: BURSTS_AT_ONCE - len(due)]
        left = {port: self._left(now_ps, port) for port in due}
        n = min(ROUND // max(len(due), 1), *left.values()) if due else 0
        agents, found = frozenset(there), list[Order]()
        for port in due:
            number, self._next = self._next, self._next + 1
            routes = self.schedule.burst(port, n, number % TURNS)
            src, dst = self.schedule.ends(routes)
            senders = agents & frozenset(src.tolist())
            receivers = agents & frozenset(dst[dst != src].tolist())
            self.out[number] = _Burst(port, routes, src, dst, now_ps, senders, receivers)
            since_ps = now_ps if left[port] == BURST_MAX else self._probed[port][0]
            self._probed[port] = (since_ps, BURST_MAX - left[port] + n)
            found.append(Order(number, port, n, senders))
        return found

    def _left(self, now_ps: int, port: int) -> int:
        """How many probes a link may get in bursts until its period is over."""
        since_ps, n = self._probed.get(port, (now_ps, 0))
        return BURST_MAX - (n if now_ps - since_ps < self.schedule.period_ps else 0)

    def _may_probe(self, now_ps: int, ports: Sequence[int], named: Collection[int]) -> list[int]:
        return [
            port for port in ports if port not in named and self._left(now_ps, port) >= BURST_MIN
        ]

    def holds(self, now_ps: int) -> bool:
        """Whether results are about to come."""
        return any(now_ps - one.asked_ps < HOLD_PS for one in self.out.values())

    # --- results

    def hear(self, now_ps: int, nic: int, said: BurstReport) -> list[Count]:
        """Process what a sender reports; return whom to ask what arrived."""
        burst = self.out.get(said.burst)
        if burst is None or nic not in burst.senders:
            return []
        burst.sent.add(nic)
        burst.lost |= _own(said.lost, (burst.src == nic) & (burst.dst == nic))
        burst.unknown |= _own(said.unknown, burst.src == nic)
        if burst.sent != burst.senders:
            return []
        if burst.receivers and not burst.counting:
            burst.counting = True
            return [Count(said.burst, burst.receivers)]
        self._finish(now_ps, said.burst, False)
        return []

    def counted(self, now_ps: int, nic: int, said: BurstReport) -> None:
        """Process a receiver's count."""
        one = self.out.get(said.burst)
        if one is not None and nic in one.receivers:
            one.counted.add(nic)
            one.heard |= _own(said.heard, one.dst == nic)
            self._finish(now_ps, said.burst, False)

    def expire(self, now_ps: int) -> None:
        """Take what is known of bursts on which agents have not reported in time."""
        for number, burst in list(self.out.items()):
            if now_ps - burst.asked_ps > BURST_WAIT_PS:
                self._finish(now_ps, number, True)

    def since(self, from_ps: int, now_ps: int) -> list[Evidence]:
        """The results of a time, and what is known of bursts that are out."""
        found = [one for at_ps, one in self.results if at_ps >= from_ps]
        return found + [self._result(now_ps, one) for one in self.out.values() if one.sent]

    def forget(self, until_ps: int) -> None:
        """Drop older results."""
        while self.results and self.results[0][0] < until_ps:
            self.results.popleft()

    def _finish(self, now_ps: int, number: int, late: bool) -> None:
        burst = self.out[number]
        if not late and (burst.counted != burst.receivers or burst.sent != burst.senders):
            return
        del self.out[number]
        result = self._result(now_ps, burst)
        self.results.append((now_ps, result))
        self.news |= bool(result.lost.any())

    def _result(self, now_ps: int, burst: _Burst) -> Evidence:
        """What is known of a burst: of rows whose sender, and whose receiver, said so."""
        routes, src, dst = burst.routes, burst.src, burst.dst
        own = src == dst
        known = ~self._is_dark(routes)
        known &= _among(src, burst.sent) & (own | _among(dst, burst.counted))
        rows = np.arange(len(routes))
        known &= ~_among(rows, burst.unknown)
        lost = np.where(own, _among(rows, burst.lost), ~_among(rows, burst.heard))
        return evidence.of_burst(
            self.schedule.fabric,
            routes[known],
            lost[known].astype(np.int64),
            burst.asked_ps,
            now_ps,
        )


def _among(numbers: np.ndarray, which: Collection[int]) -> np.ndarray:
    """[n] Whether each of these is one of those."""
    there = np.zeros(max(int(numbers.max(initial=-1)), max(which, default=-1)) + 1, np.bool_)
    there[list(which)] = True
    found: np.ndarray = there[numbers]
    return found


def _own(rows: Iterable[int], own: np.ndarray) -> set[int]:
    """Those of a burst's rows of which an agent can know."""
    return {row for row in rows if row < len(own) and own[row]}
