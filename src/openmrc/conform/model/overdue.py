"""When the oldest packet that is missing must go again, or be asked about (rows 7, 8).

An answer is overdue a round trip after its packet, the longest that may count (`trips`), and a
quarter for what differs.
Then the packet is lost if something is known received that left later. Retransmissions overtake
data, so that these speak against each other only. Where nothing speaks, a probe asks, and after an
RTO of silence nothing has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmrc.conform.model.trips import ALLOWED, Trips

LOST_RTTS = 0.25  # until the window has room for what goes again
ASKED_RTTS = 1.5  # until it is the turn of a probe: what an answer to the last one may take
ASKS = 3  # with no progress, before the time between them doubles, so often (row 8)
BATCH = 16  # packets that one SACK may cover (row 5)


@dataclass
class Copy:
    """The last transmission of a packet."""

    at_ps: int
    stamp: int
    again: bool
    refused: bool = False  # or it has tried a path (row 11), and goes again at once


class Overdue:
    """The oldest missing packet of one queue pair."""

    def __init__(self, trips: Trips, rto_ps: int, trimming: bool) -> None:
        self._trips, self._trimming = trips, trimming
        self._last: dict[int, Copy] = {}
        self._left_ps: dict[tuple[int, int], int] = {}  # by sequence and stamp
        self._evidence_ps = [-1, -1]  # by whether it went again: when what is received left
        self._since_ps = [0, 0]  # and since when that is known
        self._asked_ps, self._asks = -1, 0
        self._probes: dict[int, int] = {}  # by id: when it left
        self._answered_ps = -1  # when the newest probe left that was answered
        self._heard_ps = self._silent_ps = 0  # the last answer; the last end of an RTO of silence
        self._una, self._una_ps, self._rto_ps = -1, 0, rto_ps
        self._refusals = False  # which may begin an epoch of their own
        self._full_ps = -1  # when the window may have been full last
        self.dry_ps = 0  # until then nothing waited to be sent

    def sends(self, seq: int, p: Mapping[str, int], at_ps: int) -> dict[str, int]:
        """A packet leaves; if again, whether anything spoke of the loss of its last copy."""
        before = self._last.get(seq)
        trial = bool(self._trimming and p["no_trim"])
        self._last[seq] = Copy(at_ps, p["tx_timestamp"], bool(p["rtx"]), trial)
        self._left_ps[seq, p["tx_timestamp"]] = at_ps
        if before is None or before.refused or before.at_ps < self.dry_ps:
            return {}
        newest = max(self._answered_ps, *self._evidence_ps[: 1 + before.again])
        silent = self.is_silent(at_ps) or self._silent_ps > before.at_ps
        return {"spoken": int(silent or max(newest, at_ps - self._rto_ps + 1) > before.at_ps)}

    def is_silent(self, at_ps: int) -> bool:
        """Whether nothing was heard for an RTO."""
        return at_ps - self._heard_ps >= self._rto_ps

    def hears(self, at_ps: int) -> None:
        """The peer has sent something."""
        if self.is_silent(at_ps):
            self._silent_ps = at_ps
        self._heard_ps = at_ps

    def answered(self, number: int) -> None:
        """A probe has been answered."""
        self._answered_ps = max(self._answered_ps, self._probes.get(number, -1))

    def refused(self, seq: int) -> None:
        """A NACK has come: the packet waits for the window alone."""
        self._refusals = True
        if copy := self._last.get(seq):
            copy.refused = True

    def asks(self, number: int, at_ps: int) -> None:
        """A probe leaves, perhaps beside others."""
        self._probes[number] = at_ps
        self._asks += at_ps > self._asked_ps
        self._asked_ps = at_ps

    def shown(self, seqs: set[int], now_ps: int) -> None:
        """Packets are known received; of those that left once it is clear which copy was."""
        for seq in seqs:
            copy = self._last.get(seq)
            if copy and not copy.again:
                self._came(copy, now_ps)

    def reflected(self, seq: int, stamp: int, measures: bool, now_ps: int) -> None:
        """A SACK reflects a packet, and this stamp; whether surely a round trip is measured."""
        copy, left_ps = self._last.get(seq), self._left_ps.get((seq, stamp))
        if left_ps is not None:
            self._trips.seen(left_ps, now_ps)
        if copy and copy.stamp == stamp:
            if measures:
                self._trips.measured(copy.again, copy.at_ps, now_ps)
            self._came(copy, now_ps)

    def _came(self, copy: Copy, now_ps: int) -> None:
        self._trips.seen(copy.at_ps, now_ps)
        if copy.at_ps > self._evidence_ps[copy.again]:
            self._evidence_ps[copy.again], self._since_ps[copy.again] = copy.at_ps, now_ps

    def late(self, missing: Sequence[int], new: int, room: bool, now_ps: int) -> dict[str, int]:
        """Of the first packets that are missing: whether any should have gone again by now, because
        what left later is received, and surely there is `room`; and of the oldest, whether a probe
        should have asked, or the first RTO should have sent it again.
        """
        self._full_ps = self._full_ps if room else now_ps
        una, longest_ps = missing[0], self._trips.longest(now_ps)
        copy = self._last[una]
        if una != self._una:
            self._una, self._una_ps, self._asks = una, max(now_ps, copy.at_ps), 0
        lost = [self._is_late(seq, new, longest_ps, now_ps) for seq in missing]
        right = {"lost": int(1 in lost)} if {0, 1} & {*lost} else {}
        rto_ps = self._una_ps + self._rto_ps
        if copy.refused:
            return right
        if not self._refusals and copy.at_ps < rto_ps:
            silent_ps = max(copy.at_ps + self._rto_ps, rto_ps)
            right["silent"] = int(now_ps > silent_ps + LOST_RTTS * longest_ps)
        if not copy.again and now_ps < rto_ps:  # else epochs pace the probes
            since_ps = max(self._due_ps(una, new, longest_ps), self._asked_ps)
            doubled = min(max(self._asks - ASKS, 0), ASKS)
            right["unasked"] = int(now_ps > since_ps + (int(ASKED_RTTS * longest_ps) << doubled))
        return right

    def _due_ps(self, seq: int, new: int, longest_ps: int) -> int:
        """When an answer to a packet is overdue."""
        copy = self._last[seq]
        covered = [self._last[one] for one in range(seq, min(seq + BATCH, new))]
        left_ps = copy.at_ps if copy.again else max(one.at_ps for one in covered)
        return left_ps + int(ALLOWED * longest_ps)

    def _is_late(self, seq: int, new: int, longest_ps: int, now_ps: int) -> int | None:
        """Whether a missing packet should have gone again; None if nothing speaks of it."""
        copy = self._last[seq]
        speaks = [k for k in range(1 + copy.again) if self._evidence_ps[k] > copy.at_ps]
        if copy.refused or not speaks:
            return None
        since_ps = min(self._since_ps[k] for k in speaks)
        since_ps = max(self._due_ps(seq, new, longest_ps), since_ps, self._full_ps)
        return int(now_ps > since_ps + LOST_RTTS * longest_ps)
