"""How crowded it was where and when a path lost packets."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from openmrc.ops import crowd


def links(*rows: tuple[float, int, int, int]) -> pl.DataFrame:
    """When a bin of 10 us began, a port, packets, and how many of them were trimmed."""
    frame = pl.DataFrame(rows, schema=["from_us", "port", "packets", "trimmed"], orient="row")
    return frame.with_columns(until_us=pl.col("from_us") + 10.0)


def test_the_most_crowded_link_of_a_path_counts() -> None:
    paths = pl.DataFrame({"from_us": [0.0, 0.0, 0.0]})
    routes = np.array([[1, 2, 3], [1, 3, -1], [4, 9, -1]], np.int32)
    found = crowd.trimmed(paths, routes, links((0.0, 1, 100, 10), (0.0, 2, 50, 30), (0.0, 3, 9, 0)))
    assert found == pytest.approx([0.6, 0.1, 0.0])


def test_it_counts_in_the_bin_of_the_loss_and_in_the_one_before() -> None:
    paths = pl.DataFrame({"from_us": [0.0, 10.0, 20.0, 30.0]})
    seen = links(*((10.0 * i, 0, 100, 50 if i == 1 else 0) for i in range(4)))
    found = crowd.trimmed(paths, np.zeros((4, 1), np.int32), seen)
    assert found == pytest.approx([0.0, 0.25, 0.25, 0.0])


def test_more_cannot_be_trimmed_than_all_and_nothing_is_known_without_packets() -> None:
    paths = pl.DataFrame({"from_us": [0.0]})
    assert crowd.trimmed(paths, np.zeros((1, 1), np.int32), links((0.0, 0, 2, 5))).tolist() == [1.0]
    assert crowd.trimmed(paths, np.zeros((1, 1), np.int32), links((0.0, 0, 2, 5))[:0]) == [0.0]


def test_full_queues_lose_no_more_than_some_times_what_was_lost_in_all() -> None:
    full = crowd.behind(links((0.0, 0, 1000, 1000), (0.0, 1, 1000, 500), (0.0, 2, 1000, 0)))
    assert full == pytest.approx(1250.0)
    assert crowd.lost_part(0, full, 4, 0.15) == pytest.approx(4 * 3 / 1250)
    assert crowd.lost_part(16, full, 4, 0.15) == pytest.approx(4 * (16 + 8 + 3) / 1250)
    assert crowd.lost_part(10_000, full, 4, 0.15) == 0.15


def drops(*rows: tuple[float, int, int, int]) -> pl.DataFrame:
    """The same of packets that a full queue dropped."""
    return links(*rows).rename({"trimmed": "dropped"})


def test_a_packet_passes_all_queues_of_its_path() -> None:
    paths = pl.DataFrame({"from_us": [0.0, 0.0]})
    routes = np.array([[1, 2], [3, -1]], np.int32)
    found = crowd.dropped(paths, routes, drops((0.0, 1, 100, 10), (0.0, 2, 50, 30), (0.0, 3, 9, 0)))
    assert found == pytest.approx([0.7, 0.0])


def test_losses_are_those_that_full_queues_dropped_before_they_are_others() -> None:
    """Port 7 dropped six: of the eight that two paths across it lost then, two are left."""
    paths = pl.DataFrame({"from_us": [0.0, 0.0, 0.0], "lost": [6, 2, 5]})
    routes = np.array([[1, 7], [2, 7], [3, 8]], np.int32)
    left = crowd.undropped(paths, routes, drops((0.0, 7, 100, 6), (0.0, 8, 100, 0)), 10.0)
    assert left == pytest.approx([1.5, 0.5, 5.0])


def test_what_a_queue_dropped_may_be_noticed_so_much_later() -> None:
    paths = pl.DataFrame({"from_us": [0.0, 10.0, 20.0, 30.0], "lost": [4] * 4})
    seen = drops(*((10.0 * i, 0, 100, 4 if i == 1 else 0) for i in range(4)))
    left = crowd.undropped(paths, np.zeros((4, 1), np.int32), seen, 10.0)
    assert left == pytest.approx([4.0, 0.0, 0.0, 4.0])


def test_a_path_shorter_than_others_lost_what_it_lost_in_the_first_bin_too() -> None:
    paths = pl.DataFrame({"from_us": [0.0, 0.0], "lost": [4, 4]})
    routes = np.array([[1, 7, 2], [1, 3, -1]], np.int32)
    left = crowd.undropped(paths, routes, drops((0.0, 7, 100, 4)), 10.0)
    assert left == pytest.approx([0.0, 4.0])
