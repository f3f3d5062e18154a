"""Readings of a run over time. Times in milliseconds, rates in Gb/s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

    from openmrc.paper.data import Data

    Timeline = pl.DataFrame  # of one run and transport

FloatArray = npt.NDArray[np.float64]
Series = tuple[FloatArray, FloatArray]  # beginnings of bins, ms, and a value of each

DIP = 0.95  # a dip is under this share of the steady value
US_PER_MS = 1e3
LINE_GBPS = 8 * 4096 / 4262 * 100  # payload of eight planes of 100 Gb/s: 768.8


def column(timeline: pl.DataFrame, name: str) -> Series:
    """Return the beginnings of the bins, ms, and a column of them.

    The last bin is left out: the run may have ended in the middle of it.
    """
    t_ms = timeline["t_us"].to_numpy()[:-1] / US_PER_MS
    return t_ms, timeline[name].to_numpy()[:-1].astype(np.float64)


def listed(values: Iterable[float]) -> list[float]:
    """Return values as a figure's file stores them: to five digits, more than a figure shows."""
    return [float(f"{value:.5g}") for value in values]


def goodputs(data: Data, tag: str) -> list[Series]:
    """Return Gb/s over time of each seed."""
    return [column(timeline, "goodput_gbps") for timeline in data.tables(tag, "timeline")]


def rebinned(t_ms: FloatArray, values: FloatArray, bins: int) -> Series:
    """Return at most about `bins` means of neighbours, for drawing."""
    k = max(1, len(values) // bins)
    n = len(values) // k * k
    return t_ms[:n:k], values[:n].reshape(-1, k).mean(axis=1)


def mean_between(t_ms: FloatArray, values: FloatArray, begin: float, end: float) -> float:
    """Return the mean of the bins that begin in [begin, end)."""
    return float(values[(t_ms >= begin) & (t_ms < end)].mean())


def dip_ms(t_ms: FloatArray, values: FloatArray, begin: float, end: float, steady: float) -> float:
    """Return how long, from `begin` to `end`, the bins stay under 95 % of `steady`, in ms."""
    low = (t_ms >= begin) & (t_ms < end) & (values < DIP * steady)
    return float(low.sum()) * float(t_ms[1] - t_ms[0])


def settled_ms(t_ms: FloatArray, values: FloatArray, begin: float, steady: float) -> float:
    """Return how long after `begin` the first bin at 95 % of `steady` begins; inf if none does."""
    good = (t_ms >= begin) & (values >= DIP * steady)
    return float(t_ms[good.argmax()] - begin) if good.any() else float("inf")


def staircase(
    runs: Iterable[Series], levels: Sequence[tuple[float, float]], settle_ms: float, full: float
) -> tuple[list[float], list[float]]:
    """Return of each run the largest deviation of a plateau from its level, in percent of `full`,
    and the longest dip below one, ms.

    A level is (when it begins, Gb/s), all of them equally long. A plateau is read from `settle_ms`
    after its event; none is needed to begin at 0, so no dip is there.
    """
    shares, dips = [], []
    step_ms = levels[1][0] - levels[0][0]
    for t_ms, gbps in runs:
        errors, longest = [], 0.0
        for begin, level in levels:
            end = begin + step_ms
            plateau = mean_between(t_ms, gbps, begin + settle_ms, end)
            errors.append(100 * (plateau - level) / full)
            if begin:
                longest = max(longest, dip_ms(t_ms, gbps, begin, end, level))
        shares.append(max(errors, key=abs))
        dips.append(longest)
    return shares, dips
