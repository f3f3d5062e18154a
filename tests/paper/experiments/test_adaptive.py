"""What A1 to A4 read off their runs, from tables made up here."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from openmrc.paper.experiments import adaptive
from openmrc.paper.verdict import Verdict


def test_the_rate_is_back_after_the_last_bin_that_is_low() -> None:
    """100 Gb/s until the loss at 1 ms; 75 are enough, and 68, not 67."""
    t_ms = np.arange(0.0, 5.0, 0.5)
    gbps = np.array([100.0, 100, 20, 75, 67, 68, 75, 75, 75, 75])
    assert adaptive.back_ms(t_ms, gbps, 1.0) == 1.5
    assert adaptive.back_ms(t_ms, np.where(t_ms < 1, 100, 75.0), 1.0) == 0.0


def flows() -> pl.DataFrame:
    """Two of the bulk, 1 MB each in 20 and 40 us from one NIC, a probe, and a step."""
    return pl.DataFrame(
        {
            "job": ["bulk", "bulk", "probe", "training"],
            "src": [0, 0, 1, 2],
            "bytes": [1_000_000, 1_000_000, 2000, 500],
            "start_us": [0.0, 0.0, 3.0, 5.0],
            "delivered_us": [17.0, 38.0, 9.5, 2500.0],
            "done_us": [20.0, 40.0, 12.0, 2502.0],
            "fct_us": [20.0, 40.0, 9.0, 2497.0],
        }
    )


def test_rates_are_of_the_bulk_and_latencies_of_probes() -> None:
    assert adaptive.rates_gbps(flows()).tolist() == [400.0, 200.0]
    assert adaptive.latencies_us(flows()).tolist() == [6.5]
    assert adaptive.step_ms(flows()) == 2.502


def test_flows_without_a_job_are_all_bulk() -> None:
    alone = flows().with_columns(job=pl.lit(None, pl.String))
    assert len(adaptive.rates_gbps(alone)) == 4


def test_a_load_is_what_the_first_half_of_the_bulk_took() -> None:
    """1 MB of a NIC in 20 us are all of 400 Gb/s."""
    even = flows().head(1)
    assert adaptive.load_share(even) == pytest.approx(100.0)


def test_switches_that_balance_have_the_bar_and_mrc_stands_beside() -> None:
    of, beside = adaptive.beside("rate", (100.0, "100"), {"adaptive": [91.0], "mrc": [50.0]}, "%")
    assert (of.verdict, beside.verdict) == (Verdict.HOLDS, Verdict.REPORTED)
    assert of.published.endswith("second hand")
    missed, _ = adaptive.beside("rate", (100.0, "100"), {"adaptive": [89.0], "mrc": [50.0]}, "%")
    assert missed.verdict is Verdict.FAILS
