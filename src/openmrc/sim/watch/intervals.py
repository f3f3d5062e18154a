"""Values over intervals of time, with a bounded number of intervals however long a run is.

When the intervals are used up, neighbours are merged and the interval doubles. Merging adds counts,
and keeps the longer of two queues, the worse of two states and the later of two windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

INTERVAL_PS = 1_000_000  # at the start: a fraction of any round trip

Array = npt.NDArray[Any]


def _sum(earlier: Array, later: Array) -> Array:
    found: Array = earlier + later
    return found


def _later(earlier: Array, later: Array) -> Array:
    return later


# How two neighbouring intervals become one.
_JOIN: dict[str, Callable[[Array, Array], Array]] = {
    "sent_bytes": _sum,
    "lost": _sum,
    "trimmed": _sum,
    "used": _sum,
    "queue_bytes": np.maximum,
    "health": np.maximum,
    "unhealthy": np.maximum,
    "silent": np.maximum,
    "state": np.maximum,
}  # anything else: the later value


class Intervals:
    """Rows of values, one for each interval from time 0; when full, half as many twice as wide."""

    def __init__(self, columns: int, shapes: Mapping[str, tuple[int, str]]) -> None:
        """`columns`: the maximum number of intervals, rounded down to an even number.

        `shapes`: width (0 for a single number) and dtype of each kind of value.
        """
        self.interval_ps = INTERVAL_PS
        self.n = 0
        self._columns = columns - columns % 2
        self._values = {
            name: np.zeros((self._columns, *((width,) if width else ())), dtype)
            for name, (width, dtype) in shapes.items()
        }

    @property
    def next_ps(self) -> int:
        """End of the current interval."""
        return (self.n + 1) * self.interval_ps

    def append(self, values: Mapping[str, Any]) -> None:
        """End the current interval with these values, by name."""
        for name, kept in self._values.items():
            kept[self.n] = values[name]
        self.n += 1
        if self.n == self._columns:
            self._halve()

    def _halve(self) -> None:
        half = self._columns // 2
        for name, kept in self._values.items():
            kept[:half] = _JOIN.get(name, _later)(kept[0::2], kept[1::2])
            kept[half:] = 0
        self.n = half
        self.interval_ps *= 2

    def table(self, last: Mapping[str, Any] | None) -> dict[str, Array]:
        """All intervals so far, [intervals, width]; `last` is the value of the unfinished one."""
        found = {}
        for name, kept in self._values.items():
            rows = np.empty((self.n + (last is not None), *kept.shape[1:]), kept.dtype)
            rows[: self.n] = kept[: self.n]
            if last is not None:
                rows[self.n] = last[name]
            found[name] = rows
        return found
