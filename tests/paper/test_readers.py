"""What experiments read off a run, from tables made up here."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from openmrc.paper import flaps, lossy, ports


@pytest.mark.parametrize(
    ("t_ms", "links"),
    [(0, 8), (2.9, 8), (3, 7), (20.9, 2), (21, 1), (23.9, 1), (24, 2), (41.9, 7), (42, 8), (47, 8)],
)
def test_links_go_one_by_one_and_come_back(t_ms: float, links: int) -> None:
    assert ports.links_up(t_ms) == links


def test_an_all_reduce_ends_when_the_last_rank_has_its_last_step() -> None:
    rounds = 2
    done = np.zeros((flaps.RANKS, rounds * flaps.STEPS))
    done[:, flaps.STEPS - 1] = 90.0
    done[7, flaps.STEPS - 1] = 100.0
    done[:, -1] = 250.0
    flows = pl.DataFrame({"flow": np.arange(done.size), "done_us": done.ravel()})
    assert flaps.times_us(flows.sample(fraction=1, shuffle=True, seed=1)).tolist() == [100.0, 150.0]


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
