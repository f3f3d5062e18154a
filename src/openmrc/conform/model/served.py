"""Which paths a requester surely takes, and how long each waits for its turn (rows 7, 11, 13).

A path serves that has lost nothing, or of which the only loss was none: its packet came late, or a
probe that left since was answered. Whatever the order of a plane's paths is, and though it is drawn
anew and a mark costs a turn, few rounds pass until such a path has its turn.
"""

from __future__ import annotations

from collections import Counter, deque

ROUNDS = 4  # the last of one order and the first of the next, and a turn lost in each

LOSSES = 3  # of a plane within a round trip


class Served:
    """The paths of one queue pair."""

    def __init__(self, evs: int, rtt_ps: int) -> None:
        self._rounds = ROUNDS * evs  # packets
        self._rtt_ps = rtt_ps
        self._losses: dict[int, deque[int]] = {}  # by plane: when the last few were lost
        self._paths: dict[int, set[int]] = {}  # by plane: what has carried anything
        self._passed: Counter[int] = Counter()  # by path: new packets of its plane since its last
        self._out: set[int] = set()  # paths that may be out of service
        self._left_ps: dict[int, int] = {}  # by path: when it was out for the first time
        self._again: set[int] = set()  # paths that may have been more than once
        self._asked: dict[int, tuple[int, int]] = {}  # by path: its last probe, and when it left
        self._is_sure = True

    def doubts(self) -> None:
        """From now on it is not known which paths serve."""
        self._is_sure = False

    def loses(self, ev: int, sent_ps: int, now_ps: int) -> None:
        """What left on a path then was judged lost; or a peer calls the path bad for long."""
        if sent_ps > self._left_ps.setdefault(ev, now_ps):
            self._again.add(ev)
        self._out.add(ev)
        losses = self._losses.setdefault(ev >> 16, deque(maxlen=LOSSES))
        losses.append(now_ps)
        if len(losses) == LOSSES and now_ps - losses[0] < self._rtt_ps:  # the plane may be silent
            self._out |= self._paths.get(ev >> 16, set())
            self._again |= self._out

    def asks(self, ev: int, number: int, now_ps: int) -> None:
        """A probe leaves on a path."""
        self._asked[ev] = number, now_ps

    def answered(self, ev: int, number: int) -> None:
        """A probe was answered: one that left since the first loss brings its path back."""
        asked, at_ps = self._asked.get(ev, (-1, 0))
        if number == asked and at_ps > self._left_ps.get(ev, at_ps):
            self._back(ev)

    def came_late(self, ev: int) -> None:
        """What was judged lost on a path has come."""
        self._back(ev)

    def takes(self, ev: int, again: bool) -> dict[str, int]:
        """A packet takes a path; for how many new ones of its plane the longest has waited."""
        plane = ev >> 16
        paths = self._paths.setdefault(plane, set())
        paths.add(ev)
        self._passed.update(() if again else paths)
        self._passed[ev] = 0
        waited = [self._passed[one] for one in paths - self._out]
        if not (self._is_sure and waited):
            return {}
        return {"passed_over": max(waited), "rounds": self._rounds}

    def _back(self, ev: int) -> None:
        if ev in self._out - self._again:
            self._out.remove(ev)
            self._passed[ev] = 0
