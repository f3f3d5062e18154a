"""The round trips of a requester's answers, and how long each counts (row 7).

Originals and retransmissions are measured apart, since the latter overtake data. The time allowed
for an answer is the longest recent round trip of its kind, and a quarter. How long one is recent is
known within bounds: all of those of the last `SURE_RTTS` count, and none after `MOST_RTTS`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

SURE_RTTS, MOST_RTTS = 8, 24  # one whole period, and two with a turn that came late
ALLOWED = 1.25


class Trips:
    """What one queue pair has measured."""

    def __init__(self, rtt_ps: int) -> None:
        self._rtt_ps = self._least_ps = rtt_ps
        self._sure: tuple[list[tuple[int, int]], ...] = [], []  # by kind: when it ended, how long
        self._longest: deque[tuple[int, int]] = deque()  # of all seen, none longer after it

    def measured(self, again: bool, begun_ps: int, now_ps: int) -> None:
        """A SACK reflects the transmission that left then, and no other can be meant."""
        self._sure[again].append((now_ps, now_ps - begun_ps))
        self._least_ps = max(min(self._least_ps, now_ps - begun_ps), self._rtt_ps // 2)
        self.seen(begun_ps, now_ps)

    def seen(self, begun_ps: int, now_ps: int) -> None:
        """An answer shows that a packet has come, which may have been measured so."""
        rtt_ps = now_ps - begun_ps
        while self._longest and self._longest[-1][1] <= rtt_ps:
            self._longest.pop()
        self._longest.append((now_ps, rtt_ps))

    def longest(self, now_ps: int) -> int:
        """The longest round trip that may count, ps."""
        while self._longest and self._longest[0][0] < now_ps - MOST_RTTS * self._rtt_ps:
            self._longest.popleft()
        return max(self._rtt_ps, self._longest[0][1] if self._longest else 0)

    def is_overdue(self, again: bool, begun_ps: int, now_ps: int) -> bool:
        """Whether at any time until now an answer was overdue: the times to look at are this one,
        and those just before a longer round trip became known.
        """
        if now_ps - begun_ps < ALLOWED * self._least_ps:
            return False
        ended = [at for at, _ in self._sure[again] if begun_ps < at < now_ps]
        return any(at - begun_ps >= self._allowed(again, at) for at in (*ended, now_ps))

    def _allowed(self, again: bool, at_ps: int) -> float:
        """What surely was allowed just before a time."""
        since = at_ps - SURE_RTTS * self._least_ps
        known = self._sure[again]
        recent = known[bisect_left(known, (since, 0)) : bisect_left(known, (at_ps, 0))]
        return ALLOWED * max(self._least_ps, *(rtt for _, rtt in recent), 0)
