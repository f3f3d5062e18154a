"""The transmissions of a requester's packets: why one goes again, and how evenly paths carry them
(rows 7, 8, 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from openmrc.conform.model.left import Left
from openmrc.conform.model.served import Served
from openmrc.conform.model.skips import Skips
from openmrc.conform.model.trips import Trips
from openmrc.engine import packet as pk

TOGETHER_RTTS = 1  # copies of what took one path leave within this time
LATELY_RTTS = 2


@dataclass
class Copy:
    """The last transmission of a packet."""

    at_ps: int
    stamp: int
    ev: int
    plane: int
    trial: bool  # not trimmable though others are: it tries a path (row 11)
    first: bool
    refused: bool = False


class Copies:
    """The transmissions of one queue pair."""

    def __init__(
        self, planes: int, evs: int, rtt_ps: int, rto_ps: int, trimming: bool, trips: Trips
    ) -> None:
        self._left, self._skips, self._served = Left(evs, rtt_ps), Skips(evs), Served(evs, rtt_ps)
        self._rtt_ps, self._rto_ps, self._trimming = rtt_ps, rto_ps, trimming
        self._trips = trips
        self._last: dict[int, Copy] = {}
        self._missing: set[int] = set()  # sequences that were sent and not shown received
        self._lost: list[Copy] = []  # what went again because it was overdue
        self._lost_first: dict[int, Copy] = {}  # of what went again once, as it was judged lost
        self._delivered: dict[int, tuple[int, int]] = {}  # by plane: when it left, and was known
        self._proven: dict[int, Copy] = {}  # by plane: of what has come, the copy that left last
        self._bad: set[int] = set()  # paths that lost something, or were marked
        self._by_plane: Counter[int] = Counter(dict.fromkeys(range(planes), 0))
        self._by_ev: dict[int, Counter[int]] = {}
        self.planes_calm = self.evs_calm = True
        self._refusals = False
        self._short = 0, 0  # of the last message of one packet: its plane, and the step to it
        self._steps = 0  # such messages that made the same step

    @property
    def is_calm(self) -> bool:
        """Whether no path can have been called bad yet."""
        return not self._bad and not self._refusals

    def refused(self, seq: int, ev: int, reason: int, now_ps: int) -> None:
        """A NACK has come."""
        copy = self._last.get(seq)
        flies = copy and seq in self._missing and not copy.refused and copy.ev == ev
        if copy and flies and reason == pk.NACK_TRIMMED and now_ps - copy.at_ps <= self._rtt_ps:
            self._skips.marks(ev)
        self.planes_calm = self.evs_calm = False  # what goes again takes a port at any time
        self._refusals = True
        if copy:
            copy.refused = copy.refused or copy.ev == ev

    def reflected(
        self, ev: int, m: int, seq: int, stamp: int, known: bool, of_data: bool, now_ps: int
    ) -> None:
        """A SACK has come, of a packet on this path, of a sequence (-1: of a probe) that was
        `known` received before; and surely of one that is received.
        """
        copy = self._last.get(seq)
        if copy and of_data and (copy.ev, copy.stamp) == (ev, stamp):
            self._delivered[ev >> 16] = copy.at_ps, now_ps
        marked = m != pk.M_NONE
        self._left.answers(ev)
        lost = self._lost_first.get(seq)
        if lost and of_data and (lost.ev, lost.stamp) == (ev, stamp):
            self._served.came_late(ev)
        if m > pk.M_SKIP_ONCE:
            self._left.doubts()
            self._served.loses(ev, now_ps, now_ps)
        elif marked and of_data:
            self._skips.marks(ev)
        if known and seq in self._last:
            self._left.shows(seq, self._last[seq].at_ps, now_ps, known=True)
        self.evs_calm = self.evs_calm and not marked
        if marked:
            self._bad.add(ev)

    def asks(self, ev: int, number: int, now_ps: int) -> None:
        """A probe leaves."""
        self._served.asks(ev, number, now_ps)

    def answered(self, ev: int, number: int, now_ps: int) -> None:
        """A probe has been answered."""
        self._left.answered(ev, now_ps)
        self._served.answered(ev, number)

    def came(self, seqs: set[int], now_ps: int) -> None:
        """Packets are known received; those that were sent once say which path delivers."""
        self._missing -= seqs
        for seq in sorted(seqs & self._last.keys()):
            copy = self._last[seq]
            if copy.first:
                self._left.delivers(copy.ev, copy.at_ps, now_ps)
            else:
                self._left.shows(seq, copy.at_ps, now_ps, known=False)
            known = self._proven.get(copy.plane)
            if copy.first and (known is None or copy.at_ps > known.at_ps):
                self._proven[copy.plane] = copy

    def sends(
        self, seq: int, p: Mapping[str, int], now_ps: int, up: int, waits: bool
    ) -> dict[str, int]:
        """A packet leaves while more `waits`, or none; what is known of its reason and its path."""
        right: dict[str, int] = {}
        before = self._last.get(seq)
        if before is not None and p["rtx"]:
            right = self._again(before, p, now_ps, up)
            if not waits:
                self._left.doubts()
                self._served.doubts()
            elif not (before.refused or before.trial) and up >> before.plane & 1:
                self._left.loses(seq, before.ev, before.at_ps, now_ps)
                self._served.loses(before.ev, before.at_ps, now_ps)
                if before.first:
                    self._lost_first[seq] = before
            if not before.first:
                self._lost_first.pop(seq, None)
        self._by_plane[p["plane"]] += 1
        if self.planes_calm:
            counts = self._by_plane
            right["plane_lead"] = counts[p["plane"]] - min(counts.values())
        evs = self._by_ev.setdefault(p["plane"], Counter())
        if not p["rtx"]:
            evs[p["ev"]] += 1
            if self.evs_calm and self.planes_calm:
                right["ev_lead"] = evs[p["ev"]] - min(evs.values())
        right |= self._served.takes(p["ev"], bool(p["rtx"]))
        trial = bool(p["no_trim"] and self._trimming)
        right |= self._skips.takes(p["ev"], bool(p["rtx"] or trial), self._left.most(p["plane"]))
        if not p["rtx"] and self._trimming and not trial:
            right |= self._left.takes(p["ev"])
        self._last[seq] = Copy(
            now_ps, p["tx_timestamp"], p["ev"], p["plane"], trial, before is None
        )
        self._missing.add(seq)
        return right

    def begins(self, plane: int) -> dict[str, int]:
        """A message of one packet leaves alone: how many made the same step between planes."""
        planes = len(self._by_plane)
        before, step_before = self._short
        step = (plane - before) % planes
        self._steps = self._steps + 1 if step == step_before else 0
        self._short = plane, step
        return {"same_steps": self._steps}

    def _again(self, before: Copy, p: Mapping[str, int], now_ps: int, up: int) -> dict[str, int]:
        """Why a packet goes again, and whether on another plane than the one that lost it."""
        if before.refused or before.trial:
            return {"reason": 1}
        self.planes_calm = self.evs_calm = False
        overdue = now_ps - before.at_ps >= self._rto_ps or self._trips.is_overdue(
            not before.first, before.at_ps, now_ps
        )
        since = now_ps - TOGETHER_RTTS * self._rtt_ps
        beside = any(one.plane == before.plane and one.at_ps >= since for one in self._lost)
        down = not up >> before.plane & 1
        if overdue:
            self._lost.append(replace(before, at_ps=now_ps))
        right = {"reason": int(overdue or beside or down)}
        others = [k for k in self._delivered if k != before.plane and up >> k & 1]
        if any(self._delivers(k, now_ps) for k in others):
            right["same_plane"] = int(p["plane"] == before.plane)
        self._bad.add(before.ev)
        proven = self._proven.get(p["plane"])
        good = proven and proven.ev not in self._bad and not self._may_be_lost(proven.ev, now_ps)
        if overdue and proven and good and not self._refusals:
            right["ev"] = proven.ev
        return right

    def _delivers(self, plane: int, now_ps: int) -> bool:
        """Whether a plane has surely delivered lately, with nothing lost there since."""
        sent_ps, known_ps = self._delivered[plane]
        lost_ps = max((one.at_ps for one in self._lost if one.plane == plane), default=-1)
        may_be_lost = any(
            self._last[seq].plane == plane and self._last[seq].at_ps <= now_ps - self._rtt_ps
            for seq in self._missing
        )
        lately = known_ps > now_ps - LATELY_RTTS * self._rtt_ps
        return lately and sent_ps > lost_ps and not may_be_lost

    def _may_be_lost(self, ev: int, now_ps: int) -> bool:
        """Whether another packet on this path may have been judged lost by now, and waits."""
        since_ps = now_ps - self._rtt_ps
        return any(
            copy.ev == ev and copy.at_ps <= since_ps
            for copy in (self._last[seq] for seq in self._missing)
        )
