"""Figures computed from times of messages, with perftest's definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

PEAK_MESSAGES = 10_000  # the peak is searched among this many first messages


@dataclass(frozen=True)
class Bandwidth:
    """A line of `write_bw`."""

    bytes: int  # of a message
    iterations: int  # messages completed, of all queue pairs
    bw_peak_gbps: float
    bw_average_gbps: float
    msg_rate_mpps: float

    def plus(self, other: Bandwidth) -> Bandwidth:
        """The sum of both directions."""
        added = ("iterations", "bw_peak_gbps", "bw_average_gbps", "msg_rate_mpps")
        both = {name: getattr(self, name) + getattr(other, name) for name in added}
        return replace(self, **both)


@dataclass(frozen=True)
class Latency:
    """A line of `write_lat`: half round trips, us. `t_typical` is the median."""

    bytes: int
    iterations: int
    t_min_us: float
    t_max_us: float
    t_typical_us: float
    t_avg_us: float
    t_stdev_us: float
    p99_us: float
    p999_us: float


def bandwidth(
    size: int, n: int, seconds: float, posted_ns: list[int], done_ns: list[int]
) -> Bandwidth:
    """Bandwidth of `n` messages in `seconds`; posting and completion times of the first
    PEAK_MESSAGES.
    """
    rate = n / seconds if seconds > 0 else 0.0
    average = rate * size * 8 / 1e9
    peak = peak_rate(posted_ns, done_ns) * size * 8 / 1e9
    return Bandwidth(size, n, max(peak, average), average, rate / 1e6)


def peak_rate(posted_ns: list[int], done_ns: list[int]) -> float:
    """Messages per second of the best stretch, from the posting of its first message to the
    completion of its last. 0.0 without messages.
    """
    n = min(len(posted_ns), len(done_ns))
    posted, done = np.array(posted_ns[:n], np.int64), np.array(done_ns[:n], np.int64)
    best = 0.0
    for length in range(1, n + 1):
        shortest = int((done[length - 1 :] - posted[: n - length + 1]).min())
        best = max(best, length / max(shortest, 1))
    return best * 1e9


def latency(size: int, round_trips_ns: list[int]) -> Latency | None:
    """Latency from half of these round trips; None if there are none. Percentiles are nearest
    rank.
    """
    if not round_trips_ns:
        return None
    half_us = np.sort(np.array(round_trips_ns, np.float64)) / 2000
    n = len(half_us)
    return Latency(
        bytes=size,
        iterations=n,
        t_min_us=float(half_us[0]),
        t_max_us=float(half_us[-1]),
        t_typical_us=_rank(half_us, 50.0),
        t_avg_us=float(half_us.mean()),
        t_stdev_us=float(half_us.std()),
        p99_us=_rank(half_us, 99.0),
        p999_us=_rank(half_us, 99.9),
    )


def _rank(ordered: np.ndarray[Any, Any], percent: float) -> float:
    at = int(np.ceil(round(percent * len(ordered) / 100, 6))) - 1
    return float(ordered[max(at, 0)])
