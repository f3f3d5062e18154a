"""Which paths a requester has left, since they lost a packet, and may not take yet (rows 10, 11).

Only what is sure is said: of packets that go again while more waits to be sent, for then each was
judged lost. A path is back as soon as anything comes that was on it. A plane that may be silent, or
has few paths left, may take any of them again (row 12).
"""

from __future__ import annotations

from collections import deque

LOSSES = 3  # of a plane in a row: it may be silent
WAITS_RTTS = 0.25  # what was judged lost may wait for so long before it goes again
DELIVERIES = 64  # as many are kept
KEPT = 4  # a plane keeps one path of so many


class Left:
    """The paths of one queue pair."""

    def __init__(self, evs: int, rtt_ps: int) -> None:
        self._evs, self._rtt_ps = evs, rtt_ps
        self._left: dict[int, set[int]] = {}  # by plane
        self._out: dict[int, set[int]] = {}  # also those that may be back
        self._since_ps: dict[int, int] = {}  # by path: when it was left last, perhaps
        self._lost_on: dict[int, set[int]] = {}  # by sequence: paths
        self._losses: dict[int, deque[int]] = {}  # by plane: when the last ones went again
        self._newest_ps: dict[int, int] = {}  # by plane: when the newest of what was lost had left
        self._delivered_ps: dict[int, deque[int]] = {}  # by plane: when something newer had come
        self._probed_ps: dict[int, int] = {}  # by path: when it answered a probe
        self._is_sure = True

    def doubts(self) -> None:
        """A path may have been left, or recalled, that nobody knows of."""
        self._is_sure = False

    def loses(self, seq: int, ev: int, sent_ps: int, now_ps: int) -> None:
        """What left on a path then goes again, as it was judged lost."""
        plane = ev >> 16
        self._losses.setdefault(plane, deque(maxlen=LOSSES)).append(now_ps)
        self._newest_ps[plane] = max(self._newest_ps.get(plane, 0), sent_ps)
        self._lost_on.setdefault(seq, set()).add(ev)
        left, out = self._left.setdefault(plane, set()), self._out.setdefault(plane, set())
        out.add(ev)
        back_ps = self._probed_ps.get(ev, -1)  # since it was judged, perhaps
        if sent_ps > self._since_ps.get(ev, -1) and back_ps <= sent_ps + self._rtt_ps:
            left.add(ev)
        self._since_ps[ev] = now_ps
        if self._may_be_silent(plane, now_ps) or self._evs - len(out) <= max(self._evs // KEPT, 1):
            left.clear()

    def delivers(self, ev: int, sent_ps: int, now_ps: int) -> None:
        """What was sent once, then, on this path, is received; if late, after it was judged lost
        perhaps.
        """
        self.answers(ev)
        if sent_ps >= self._newest_ps.get(ev >> 16, 0):
            self._delivered_ps.setdefault(ev >> 16, deque(maxlen=DELIVERIES)).append(now_ps)
        if now_ps - sent_ps > self._rtt_ps:
            self._since_ps[ev] = now_ps

    def answered(self, ev: int, now_ps: int) -> None:
        """A path has answered a probe."""
        self._probed_ps[ev] = now_ps

    def answers(self, ev: int) -> None:
        """Something that was on a path has come."""
        self._left.get(ev >> 16, set()).discard(ev)

    def shows(self, seq: int, again_ps: int, now_ps: int, known: bool) -> None:
        """A packet that went again, last then, is received. It may be the lost one that came late,
        if it is `known` already, or comes too soon (row 7).
        """
        if known or now_ps - again_ps < self._rtt_ps // 2:
            for ev in self._lost_on.get(seq, ()):
                self.answers(ev)

    def most(self, plane: int) -> int:
        """How many paths of a plane may be left."""
        return len(self._out.get(plane, ()))

    def _may_be_silent(self, plane: int, now_ps: int) -> bool:
        """Whether as many losses may have been judged with nothing delivered in between."""
        sure_ps = now_ps - int(WAITS_RTTS * self._rtt_ps)
        known = (at for at in self._delivered_ps.get(plane, ()) if at <= sure_ps)
        losses = self._losses[plane]
        return len(losses) == LOSSES and losses[0] > max(known, default=-1)

    def takes(self, ev: int) -> dict[str, int]:
        """New data takes a path."""
        self._out.get(ev >> 16, set()).discard(ev)
        return {"left": int(ev in self._left.get(ev >> 16, ()))} if self._is_sure else {}
