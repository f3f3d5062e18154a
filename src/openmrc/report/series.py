"""Curves with no more points than a reader can see."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from openmrc.run.figures import PERCENTILES, rank_of
from openmrc.run.outcome import TransportResult


def goodput(
    run: TransportResult, end_ps: int, points_max: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (bin starts in ps, Gb/s), neighbouring bins joined down to `points_max` for `end_ps`.

    The last point closes the line at zero, after the last bin in which something arrived.
    """
    placed = run.timeline["goodput_bytes"][: last_bin_ps(run) // run.bin_ps]
    join = max(1, math.ceil(end_ps / run.bin_ps / points_max))
    padded = np.pad(placed, (0, -len(placed) % join)).reshape(-1, join).sum(axis=1)
    width_ps = join * run.bin_ps
    gbps: NDArray[np.float64] = np.append(padded * 8e3 / width_ps, 0.0)
    starts_ps = np.arange(len(gbps), dtype=np.float64) * width_ps
    return starts_ps, gbps


def last_bin_ps(run: TransportResult) -> int:
    """Return the end of the last bin in which something arrived; of the first if nothing did."""
    filled = np.flatnonzero(run.timeline["goodput_bytes"])
    return (int(filled[-1]) + 1) * run.bin_ps if len(filled) else run.bin_ps


def cumulative(
    values: NDArray[np.int64], points_max: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (values, ranks) of the distribution: so many of `values` are at most that.

    At most `points_max` (16 or more) points: a third of them follows the tail, where a job waits,
    and the first, the last and the percentiles of the summary are always among them.
    """
    n = len(values)
    if n > points_max:
        kept = [rank_of(n, share) for share in (0.0, *PERCENTILES.values())]
        room = points_max - len(kept)
        tail = n - np.geomspace(1, n, room // 3)
        even = np.linspace(1, n, room - room // 3)
        ranks = np.unique(np.concatenate([kept, np.rint(tail), np.rint(even)]).astype(np.int64))
        ranks = ranks[ranks >= 1]
    else:
        ranks = np.arange(1, n + 1)
    return np.sort(values)[ranks - 1], ranks
