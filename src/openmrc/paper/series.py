"""Readings of a run over time. Times in milliseconds, rates in Gb/s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

    Timeline = pl.DataFrame  # of one run and transport

FloatArray = npt.NDArray[np.float64]

DIP = 0.95  # reference 11, measures: a dip is under this share of the steady value
US_PER_MS = 1e3


def column(timeline: pl.DataFrame, name: str) -> tuple[FloatArray, FloatArray]:
    """Return the beginnings of the bins, ms, and a column of them.

    The last bin is left out: the run may have ended in the middle of it.
    """
    t_ms = timeline["t_us"].to_numpy()[:-1] / US_PER_MS
    return t_ms, timeline[name].to_numpy()[:-1].astype(np.float64)


def rebinned(t_ms: FloatArray, values: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
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
