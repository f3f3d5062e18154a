"""Intervals that double when there are too many of them."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.sim.watch.intervals import INTERVAL_PS, Intervals

SHAPES = {"lost": (2, "f4"), "queue_bytes": (2, "i4"), "health": (2, "u1"), "cwnd": (0, "f4")}


def filled(columns: int, n: int) -> Intervals:
    """Interval k holds k and 10 k everywhere."""
    found = Intervals(columns, SHAPES)
    for k in range(n):
        row = np.array([k, 10 * k])
        found.append({"lost": row, "queue_bytes": row, "health": row, "cwnd": k})
    return found


def test_the_last_free_interval_is_used_before_neighbours_are_joined() -> None:
    assert (filled(4, 3).n, filled(4, 3).interval_ps) == (3, INTERVAL_PS)
    assert (filled(4, 4).n, filled(4, 4).interval_ps) == (2, 2 * INTERVAL_PS)


def test_joining_adds_counts_and_keeps_the_worse_and_the_later() -> None:
    table = filled(4, 4).table(None)
    assert table["lost"].tolist() == [[1, 10], [5, 50]]
    assert table["queue_bytes"].tolist() == [[1, 10], [3, 30]]
    assert table["health"].tolist() == [[1, 10], [3, 30]]
    assert table["cwnd"].tolist() == [1, 3]


def test_the_interval_under_way_is_shown_and_not_kept() -> None:
    some = filled(8, 2)
    row = {"lost": 7, "queue_bytes": 7, "health": 7, "cwnd": 7}
    assert some.table(row)["lost"].tolist() == [[0, 0], [1, 10], [7, 7]]
    assert some.table(None)["lost"].tolist() == [[0, 0], [1, 10]]


@pytest.mark.parametrize(("asked", "most"), [(4, 4), (5, 4)])
def test_however_long_it_goes_on_there_are_no_more(asked: int, most: int) -> None:
    some = filled(asked, 0)
    while some.next_ps <= 1000 * INTERVAL_PS:  # one packet lost in each of the first intervals
        n = some.interval_ps // INTERVAL_PS
        some.append({"lost": n, "queue_bytes": 0, "health": 0, "cwnd": 0})
        assert some.n < most
    assert (some.n, some.interval_ps) == (3, 256 * INTERVAL_PS)
    assert some.table(None)["lost"].tolist() == [[256, 256]] * 3
