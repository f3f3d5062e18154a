"""Readings of a run over time, on six bins of a tenth of a millisecond."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from openmrc.paper import series

T_MS: series.FloatArray = np.linspace(0, 0.5, 6)
GBPS: series.FloatArray = np.array([100.0, 100.0, 94.9, 95.0, 40.0, 100.0])


def test_the_last_bin_of_a_timeline_may_be_cut_short_and_is_left_out() -> None:
    timeline = pl.DataFrame({"t_us": [0.0, 10.0, 20.0], "lost": [1, 2, 3]})
    t_ms, lost = series.column(timeline, "lost")
    assert t_ms.tolist() == [0.0, 0.01]
    assert lost.tolist() == [1.0, 2.0]


def test_a_dip_is_the_bins_under_95_percent() -> None:
    assert math.isclose(series.dip_ms(T_MS, GBPS, 0.0, 0.6, 100), 0.2)
    assert math.isclose(series.dip_ms(T_MS, GBPS, 0.3, 0.4, 100), 0.0)


def test_settled_at_the_first_bin_of_95_percent() -> None:
    assert math.isclose(series.settled_ms(T_MS, GBPS, 0.19, 100), 0.11)
    assert series.settled_ms(T_MS, GBPS, 0.0, 200) == math.inf


def test_means_between_and_of_neighbours() -> None:
    assert series.mean_between(T_MS, GBPS, 0.0, 0.2) == 100
    t, mean = series.rebinned(T_MS, GBPS, 3)
    assert t.tolist() == [0.0, 0.2, 0.4]
    assert np.allclose(mean, [100, 94.95, 70])
    assert series.rebinned(T_MS, GBPS, 100)[1].tolist() == GBPS.tolist()
