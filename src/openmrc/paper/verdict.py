"""The comparison of a measured value with a published one: pure functions of values and a bar."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How a measurement compares with its bar, in the words of the page."""

    HOLDS = "holds"
    MEDIAN = "holds in the median"
    FAILS = "does not hold"
    CALIBRATED = "calibrated"
    REPORTED = "reported"
    MISSING = "no result"


@dataclass(frozen=True)
class Bar:
    """The interval in which a value agrees; both ends are included."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"a bar from {self.low} to {self.high} holds nothing")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"at least {self.low:.4g}"
        if self.low == -math.inf:
            return f"at most {self.high:.4g}"
        return f"{self.low:.4g} to {self.high:.4g}"


def around(value: float, tolerance: float) -> Bar:
    """Return the bar `value` +- `tolerance`, in the unit of the value."""
    return Bar(value - tolerance, value + tolerance)


def relative(value: float, share: float) -> Bar:
    """Return the bar `value` +- `share` of it."""
    return around(value, abs(value) * share)


@dataclass(frozen=True)
class Check:
    """One row of the table: the measured values, one for each seed, beside the published one.

    `bar` is None if nothing was published to compare with. A calibrated value was fitted to the
    published one, and is not a result.
    """

    what: str
    published: str
    values: Sequence[float]
    unit: str = ""
    bar: Bar | None = None
    calibrated: bool = False

    @property
    def verdict(self) -> Verdict:
        """How the values compare with the bar."""
        if self.calibrated and self.values:
            return Verdict.CALIBRATED
        return judge(self.values, self.bar)

    @property
    def median(self) -> float | None:
        """The median over the seeds; None without a value."""
        return statistics.median(self.values) if self.values else None


def judge(values: Sequence[float], bar: Bar | None) -> Verdict:
    """Return the verdict on one value for each seed.

    A value that is not finite, such as the time of an event that never happened, is outside every
    bar.
    """
    if not values:
        return Verdict.MISSING
    if bar is None:
        return Verdict.REPORTED
    inside = [math.isfinite(value) and value in bar for value in values]
    if all(inside):
        return Verdict.HOLDS
    median = statistics.median(values)
    return Verdict.MEDIAN if math.isfinite(median) and median in bar else Verdict.FAILS
