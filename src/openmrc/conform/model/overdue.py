"""When the oldest packet that is missing must go again, or be asked about (rows 7, 8).

An answer is overdue a round trip after its packet, the longest yet, and a quarter for what differs.
Then the packet is lost if something is known received that left later. Retransmissions overtake
data, so that these speak against each other only. Where nothing speaks, a probe asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QUARTER = 1.25  # row 7
LOST_RTTS = 0.25  # until the window has room for what goes again
ASKED_RTTS = 1  # until it is the turn of a probe
ASKS = 3  # in a row and in vain, before the time between them doubles, so often (row 8)
BATCH = 16  # packets that one SACK may cover (row 5)


@dataclass
class Copy:
    """The last transmission of a packet."""

    at_ps: int
    stamp: int
    again: bool
    refused: bool = False


class Overdue:
    """The oldest missing packet of one queue pair."""

    def __init__(self, rtt_ps: int, rto_ps: int) -> None:
        self._rtt_ps = self._longest_ps = rtt_ps
        self._last: dict[int, Copy] = {}
        self._evidence_ps = [-1, -1]  # by whether it went again: when what is received left
        self._since_ps = [0, 0]  # and since when that is known
        self._asked_ps, self._asks = -1, 0
        self._una, self._una_ps, self._rto_ps = -1, 0, rto_ps

    def sends(self, seq: int, p: Mapping[str, int], at_ps: int) -> None:
        """A packet leaves."""
        self._last[seq] = Copy(at_ps, p["tx_timestamp"], bool(p["rtx"]))

    def refused(self, seq: int) -> None:
        """A NACK has come: the packet waits for the window alone."""
        if copy := self._last.get(seq):
            copy.refused = True

    def asks(self, at_ps: int) -> None:
        """A probe leaves, perhaps beside others."""
        self._asks += at_ps > self._asked_ps
        self._asked_ps = at_ps

    def shown(self, seqs: set[int], now_ps: int) -> None:
        """Packets are known received; of those that left once it is clear which copy was."""
        for seq in seqs:
            copy = self._last.get(seq)
            if copy and not copy.again:
                self._came(copy, now_ps)

    def reflected(self, seq: int, stamp: int, now_ps: int) -> None:
        """A SACK reflects a packet, and this stamp."""
        copy = self._last.get(seq)
        if copy and copy.stamp == stamp:
            self._came(copy, now_ps)

    def _came(self, copy: Copy, now_ps: int) -> None:
        self._asks = 0
        self._longest_ps = max(self._longest_ps, now_ps - copy.at_ps)
        if copy.at_ps > self._evidence_ps[copy.again]:
            self._evidence_ps[copy.again], self._since_ps[copy.again] = copy.at_ps, now_ps

    def late(self, una: int, new: int, now_ps: int) -> dict[str, int]:
        """Of the oldest missing packet: whether it should have gone again by now, because what left
        later is received; and whether a probe should have asked.
        """
        copy = self._last[una]
        if una != self._una:
            self._una, self._una_ps = una, max(now_ps, copy.at_ps)
        if copy.refused:
            return {}
        covered = [self._last[seq] for seq in range(una, min(una + BATCH, new))]
        left_ps = copy.at_ps if copy.again else max(one.at_ps for one in covered)
        due_ps = left_ps + int(QUARTER * self._longest_ps)
        right: dict[str, int] = {}
        speaks = [k for k in range(1 + copy.again) if self._evidence_ps[k] > copy.at_ps]
        if speaks:
            since_ps = max(due_ps, min(self._since_ps[k] for k in speaks))
            right["lost"] = int(now_ps > since_ps + LOST_RTTS * self._longest_ps)
        if not copy.again and now_ps < self._una_ps + self._rto_ps:  # else epochs pace the probes
            since_ps = max(due_ps, self._asked_ps)
            doubled = min(max(self._asks - ASKS, 0), ASKS)
            right["unasked"] = int(now_ps > since_ps + (ASKED_RTTS * self._longest_ps << doubled))
        return right
