"""The window of a requester by NSCC (MRC 4.6, 4.8, 4.9): how many bytes may be in flight, by the
answers that it has had, and by what it sends again as lost while more waits to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openmrc.conform.model.cutting import OVERHEAD

PS_BITS = 8 * 10**12  # bytes a second, from bits a second and ps
A_UNIT_BYTES = 150_000
LONG_AGO = -(1 << 60)


@dataclass
class Copy:
    """A transmission of a packet."""

    at_ps: int
    stamp: int
    ev: int
    nominal: int
    again: bool
    flies: bool = True
    cut: int = 0  # bytes that the window lost because the copy before this one was lost


class Window:
    """The window of one queue pair."""

    def __init__(self, rate_bps: int, rtt_ps: int, pmtu: int, trimming: bool) -> None:
        self._t, self._base = rtt_ps, rtt_ps
        self._trimming, self._pmtu, self.packet = trimming, pmtu, pmtu + OVERHEAD
        self.bytes = 0.0
        self.usable(rate_bps)
        self.bytes = self.largest
        self.flying = 0
        self._last: dict[int, Copy] = {}  # by sequence
        self.unsure = 0  # what is lost, and waits, may be a short packet: all count as whole ones
        self._taken = 0  # bytes, for the packet that leaves next
        self._known: dict[int, int] = {}  # of what is received: the units of who said so
        self._sum = self._achieved = self._ignored = self._to_ignore = self._since = 0.0
        self._average = self._calm = 0.0
        self._fast = self._alarm = False
        self._period_ends, self._adjusted, self._cut = 0, LONG_AGO, LONG_AGO
        self._cuts_from, self._least = LONG_AGO, 0.0  # losses of a round trip take at most half
        self._spared = 0.0  # before the receiver's penalties; 0 while there are none
        self._lost_plane: int | None = -1  # None: nobody knows
        self._answer_at: int | None = None
        self._quiet = LONG_AGO, LONG_AGO
        self._shortest = -LONG_AGO  # round trip

    def usable(self, rate_bps: int) -> None:
        """The rate of the planes that are up: every constant follows from it and from T."""
        t, bdp = float(self._t), rate_bps * self._t / PS_BITS
        self.largest = max(1.5 * bdp, 32.0 * self.packet)
        a = bdp / A_UNIT_BYTES
        self._target = int(0.75 * t if self._trimming else t)
        self._alpha = 4.0 * self._pmtu * a * (self._target / t) / self._target
        self._fi, self._eta, self._fi_scale = 5.0 * self._pmtu * a, 0.15 * self._pmtu * a, 0.25 * a
        self._clamp()

    @property
    def spare(self) -> float:
        """Half a packet is held back where the window is nearer to one packet than to two."""
        return 0.5 * self.packet if self.bytes < 1.5 * self.packet else 0.0

    @property
    def has_room(self) -> bool:
        """Whether a packet may surely leave."""
        return self.flying < self.bytes - self.spare - self.unsure - 1

    def sends(self, seq: int, p: Mapping[str, int], at_ps: int, first: bool) -> None:
        """A packet leaves, the `first` one that is outstanding."""
        if first:
            self._answer_at = None
        nominal, stamp, again = p["length"] + OVERHEAD, p["tx_timestamp"], bool(p["rtx"])
        self._last[seq] = Copy(at_ps, stamp, p["ev"], nominal, again, cut=self._taken)
        self.flying += nominal
        self._taken = 0

    def lost(self, seq: int, several: bool, now_ps: int) -> bool:
        """A packet in flight is about to go again: it was judged lost (row 7). False if the window
        is not known any more, because not all losses of a round trip can have cut it.
        """
        copy = self._last[seq]
        self.refused(seq)
        plane, before = copy.ev >> 16, self._lost_plane
        self._lost_plane = plane
        if several and before in (plane, None):
            return before is not None  # a plane that loses alone is broken
        if now_ps - self._cuts_from > self._base:
            self._cuts_from, self._least = now_ps, max(self.bytes / 2, self.packet)
        self._taken = self.unsure = self.packet
        self.bytes -= self.packet
        return self.bytes > self._least

    def flying_copy(self, seq: int) -> Copy | None:
        """The last copy of a packet, if it is in flight."""
        copy = self._last.get(seq)
        return copy if copy and copy.flies else None

    def may_have_lost(self) -> None:
        """A packet was judged lost, perhaps, and came before it could go again: that cut is undone,
        but on which plane the last one was lost is not known.
        """
        self._lost_plane = None

    def answers(self, seq: int, ev: int) -> bool:
        """Whether a NACK that reflects this EV speaks of the copy in flight."""
        copy = self._last.get(seq)
        return copy is not None and copy.flies and (not copy.again or copy.ev == ev)

    def acked(self, seqs: set[int], units: int, now_ps: int) -> None:
        """An answer that knows of so many bytes showed these received for the first time."""
        for seq in seqs:
            copy = self._last.get(seq)
            if copy and copy.flies and now_ps - copy.at_ps < min(self._base, self._shortest) // 2:
                self._give_back(copy)
            self.refused(seq)
            self._known[seq] = units

    def _give_back(self, copy: Copy) -> None:
        """A false alarm: the copy before this one was not lost (row 7)."""
        self.bytes, copy.cut = min(self.bytes + copy.cut, self.largest), 0

    def hears(self, now_ps: int) -> None:
        """An answer has come: a long time without is no queue."""
        if self._answer_at is not None:
            gap = (self._base + self._average) * (1.0 + 2.0 * 16_384 / self.bytes)
            if now_ps - self._answer_at > gap:
                self._quiet = self._answer_at, now_ps
        self._answer_at = now_ps

    def trimmed(self, seq: int, now_ps: int) -> None:
        """A packet was trimmed in the fabric: MRC 4.9."""
        self._ignored += self.packet
        self._achieved += OVERHEAD
        self._average += (self._t - self._average) / 80
        self._alarm = True
        if not self._adapts(now_ps, self._average, True, False):
            self.bytes = max(self.bytes - self.packet, self.packet)
        self.refused(seq)

    def refused(self, seq: int) -> None:
        """A packet is not in flight any more, and not received."""
        copy = self._last.get(seq)
        if copy and copy.flies:
            copy.flies = False
            self.flying -= copy.nominal

    def sample(self, seq: int, p: Mapping[str, int], units: int, now_ps: int) -> int | None:
        """The round trip that a SACK measures; None if it measures none, as that of a second copy,
        or of a packet of which only the header came.
        """
        copy, place = self._last.get(seq), p.get("ack_psn_offset", 0) - p.get("sack_offset", 0)
        header = p.get("ack_psn_offset", 0) > 0 and 0 <= place < 64
        header = header and not p.get("sack_bitmap", 0) >> place & 1
        second = units - self._known.get(seq, units) > 0
        if copy is None or header or p.get("pr"):
            return None
        rtt, latest = now_ps - copy.at_ps, not copy.again or p["tx_timestamp"] == copy.stamp
        if second or not latest:
            self._give_back(copy)
            return None
        self._shortest = min(self._shortest, rtt)
        begun, ended = self._quiet
        quiet = max(ended - max(now_ps - rtt, begun), 0)
        return max(rtt - quiet, min(rtt, self._base))

    def on_sack(
        self,
        new: int,
        rtt: int | None,
        marked: bool,
        now_ps: int,
        penalty: int = 0,
        restores: bool = False,
    ) -> None:
        """Steps 1 to 6 of MRC 4.6, and what the receiver asks for."""
        self._achieved += new
        self._ignored += new
        self._since += new
        delay = self._average
        if rtt is not None and rtt < self._base:
            self._base, delay = max(rtt, self._t // 2), 0.0
        elif rtt is not None:
            delay = float(rtt - self._base)
        marked = marked or delay > self._t
        if rtt is not None:
            calm = not marked and delay > self._target
            self._average += (1.0 / 80.0) * ((0.25 * self._base if calm else delay) - self._average)
        self._obey(new, penalty, restores)
        if self._adapts(now_ps, delay, False, marked):
            return
        if not marked:
            self._grow(new, delay)
        elif delay >= self._target:
            self._shrink(now_ps)
        self._clamp()
        due = now_ps - self._adjusted > self._t
        if self._since > 8 * self.packet or due:
            self.bytes += self._sum / self.bytes + (self._eta if due else 0.0)
            self._adjusted = now_ps if due else self._adjusted
            self._sum = self._since = 0.0
        self._clamp()

    def _obey(self, new: int, penalty: int, restores: bool) -> None:
        """MRC 4.8: 64 in every SACK of a round trip halves the window; the one from before the
        first penalty comes back if the receiver says so.
        """
        if restores:
            self.bytes = max(self.bytes, self._spared)
        if not penalty:
            self._spared = 0.0
            return
        self._spared = self._spared or self.bytes
        self.bytes = max(self.bytes - new * penalty / 128, self.packet)
        self._fast, self._calm = False, 0.0

    def _grow(self, new: int, delay: float) -> None:
        if delay >= self._target:
            self._sum += self._fi * new
            return
        short = delay < self._t / 12.0
        self._calm = self._calm + new if short else 0.0
        self._fast = short and (self._fast or self._calm > self.bytes)
        if self._fast:
            self.bytes += self._fi_scale * new
        else:
            self._sum += self._alpha * new * (self._target - delay)

    def _shrink(self, now_ps: int) -> None:
        self._fast, self._calm = False, 0.0
        if self._average > self._target and now_ps - self._cut > self._base:
            overshoot = (self._average - self._target) / self._average
            self.bytes *= max(1.0 - 0.8 * overshoot, 0.5)
            self._cut = now_ps

    def _adapts(self, now_ps: int, delay: float, lost: bool, marked: bool) -> bool:
        """Quick adapt: whether it takes the signal."""
        taken = self._ignored < self._to_ignore and (marked or lost)
        if not taken and now_ps > self._period_ends:
            alarmed = self._alarm or delay > 4 * self._target
            if self._period_ends and alarmed and self._achieved < self.largest / 8:
                self.bytes = max(self._achieved, self.packet)
                self._to_ignore, self._ignored = float(self.flying), 0.0
                self._alarm, taken = False, True
            self._achieved = 0.0
            self._period_ends = now_ps + self._base + self._target
        if taken:
            self._sum = self._since = 0.0
        return taken

    def _clamp(self) -> None:
        self.bytes = min(max(self.bytes, self.packet), self.largest)
