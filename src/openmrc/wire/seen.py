"""The PSNs or other numbers of packets that a capture has, as runs of consecutive ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

RUNS_MAX = 32_768  # of one QP; the largest window has 32,640 PSNs (MRC 1.5)


class Seen:
    """The set of integers seen, as runs of consecutive ones, and their number.

    Beyond `RUNS_MAX` runs the lowest hole is dropped, but its integers stay counted as not seen.
    """

    def __init__(self) -> None:
        self.total = 0
        self._bounds: list[int] = []  # first, end, first, end ... ascending; ends are excluded

    @property
    def lowest(self) -> int:
        """The lowest number; 0 of none."""
        return self._bounds[0] if self._bounds else 0

    @property
    def end(self) -> int:
        """What follows the highest number; 0 of none."""
        return self._bounds[-1] if self._bounds else 0

    def add(self, x: int) -> bool:
        """Record `x`; False if it was seen before."""
        bounds = self._bounds
        i = bisect_right(bounds, x)
        if i % 2:  # between a first and its end
            return False
        joins_before = i > 0 and bounds[i - 1] == x
        joins_after = i < len(bounds) and bounds[i] == x + 1
        if joins_before and joins_after:
            del bounds[i - 1 : i + 1]
        elif joins_before:
            bounds[i - 1] = x + 1
        elif joins_after:
            bounds[i] = x
        else:
            bounds[i:i] = (x, x + 1)
            if len(bounds) > 2 * RUNS_MAX:
                del bounds[1:3]
        self.total += 1
        return True

    def join(self, other: Seen, ahead: int) -> int:
        """Record what `other` has, each number `ahead` higher; return how many were seen before."""
        both = self.common(other, ahead)
        runs = [*_pairs(self._bounds), *((a + ahead, b + ahead) for a, b in _pairs(other._bounds))]
        bounds: list[int] = []
        for first, end in sorted(runs):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], end)
            else:
                bounds += (first, end)
        excess = max(len(bounds) // 2 - RUNS_MAX, 0)
        del bounds[1 : 1 + 2 * excess]
        self._bounds = bounds
        self.total += other.total - both
        return both

    def common(self, other: Seen, ahead: int = 0) -> int:
        """How many numbers both have, if those of `other` are `ahead` higher."""
        runs = ((a + ahead, b + ahead) for a, b in _pairs(other._bounds))
        return sum(self.within(first, end) for first, end in runs)

    def within(self, first: int, end: int) -> int:
        """How many numbers from `first` on and below `end` were seen."""
        i = max(bisect_right(self._bounds, first) - 1, 0) // 2 * 2
        n = 0
        while i < len(self._bounds) and self._bounds[i] < end:
            n += max(min(self._bounds[i + 1], end) - max(self._bounds[i], first), 0)
            i += 2
        return n

    def __contains__(self, x: int) -> bool:
        return bisect_right(self._bounds, x) % 2 == 1

    def holes(self, lowest: int, highest: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of each range between the two, both included, that was not seen."""
        at = lowest
        for first, end in _pairs(self._bounds):
            if first > at:
                yield at, first - 1
            at = end
        if at <= highest:
            yield at, highest


def _pairs(bounds: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(bounds[::2], bounds[1::2], strict=True)


def unwrap(value: int, near: int, bits: int) -> int:
    """Return the integer nearest to `near` whose low `bits` bits are `value`."""
    half = 1 << bits - 1
    return near + ((value - near + half) & (2 * half - 1)) - half
