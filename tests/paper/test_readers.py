"""What experiments read off a run, from tables made up here."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from openmrc.paper.experiments import flaps, lossy, ports
from openmrc.scenario.scenario import make_scenario


@pytest.mark.parametrize(
    ("t_ms", "links"),
    [(0, 8), (2.9, 8), (3, 7), (20.9, 2), (21, 1), (23.9, 1), (24, 2), (41.9, 7), (42, 8), (47, 8)],
)
def test_links_go_one_by_one_and_come_back(t_ms: float, links: int) -> None:
    assert ports.links_up(t_ms) == links


def test_flaps_are_the_links_that_went_down_before_the_end() -> None:
    tables = {
        "fabric": {"nics": 8, "planes": 2, "t0_down": 4},
        "workload": {"kind": "permutation", "size": "1MB"},
        "fault": [
            {"at": at, "kind": "link-down", "where": "plane 1 t0 0 - t1 *", "for": "1us"}
            for at in ("10us", "50us")
        ],
    }
    scenario = make_scenario(tables)
    assert [flaps.flaps_until(scenario, end_us) for end_us in (10, 20, 51)] == [0, 4, 8]


def test_a_flap_costs_what_the_steps_took_longer() -> None:
    calm, shaken = np.full(4, 100.0), np.array([100.0, 130.0, 99.0, 131.0])
    assert flaps.per_flap_us(calm, shaken, 3) == 20.0
    assert flaps.per_flap_us(calm, shaken, 0) == 60.0


@pytest.mark.parametrize("tag", ["flapping", "brief"])
def test_the_flaps_come_at_the_published_rate_a_thousandfold(tag: str) -> None:
    """14 in 60 ms, over several seeds, whatever they last."""
    (case,) = (case for case in flaps.B2.cases if case.tag == tag)
    counts = [flaps.flaps_until(run.scenario, 60e3) for run in case.runs(quick=False)]
    assert 0.7 * 14 < sum(counts) / len(counts) < 1.3 * 14


def paths(left_at_us: float | None) -> pl.DataFrame:
    """Path A in intervals of 4 us around the 1000th, and path B beside it."""
    t_us = np.arange(900.0, 1100.0, 4.0)
    bad = np.zeros(len(t_us), bool) if left_at_us is None else t_us >= left_at_us
    one = {"t_us": t_us, "used": np.full(len(t_us), 10), "state": np.where(bad, 4, 1)}
    a = pl.DataFrame({"path": [lossy.EV_A] * len(t_us)} | one)
    return pl.concat([a.with_columns(path=pl.lit(lossy.EV_B), state=pl.lit(1, pl.Int64)), a])


def test_path_a_is_left_at_the_end_of_the_interval_in_which_it_was() -> None:
    assert lossy.swap_us(paths(1012.0)) == 16.0
    assert lossy.swap_us(paths(None)) == math.inf
    assert lossy.in_use(paths(None))
    assert not lossy.in_use(paths(None).with_columns(used=pl.lit(0)))
