"""Goodput and outages of curves made by hand."""

from __future__ import annotations

import pytest

from openmrc.bench.lab.curve import WINDOW_NS, goodput_bps, outage_ns
from openmrc.bench.lab.rounds import Delivered, Times, delivered
from openmrc.errors import InputError

MS = 1_000_000
BYTES_A_MS = 1000  # 8 Mb/s


def steady(from_ms: int, to_ms: int, share: float = 1.0, so_far: int = 0) -> list[tuple[int, int]]:
    """A point each millisecond."""
    return [
        (ms * MS, so_far + round((ms - from_ms) * BYTES_A_MS * share))
        for ms in range(from_ms, to_ms + 1)
    ]


def test_goodput_is_straight_between_two_points() -> None:
    assert goodput_bps([(0, 0), (1000 * MS, 1_000_000)], 0, 1000 * MS) == 8e6
    assert goodput_bps([(0, 0), (1000 * MS, 1_000_000)], 100 * MS, 350 * MS) == 8e6
    assert goodput_bps(steady(0, 100), 0, 200 * MS) == 4e6  # nothing came after its end
    with pytest.raises(InputError, match="no time"):
        goodput_bps([], 0, 1)
    with pytest.raises(InputError, match="no time"):
        goodput_bps(steady(0, 10), 5, 5)


def test_an_outage_ends_where_a_good_window_begins() -> None:
    """Nothing for 60 ms, then three quarters: back from there on, to 5 ms."""
    curve = [*steady(0, 100), (160 * MS, 100000), *steady(160, 400, 0.75, 100000)[1:]]
    assert outage_ns(curve, 100 * MS, 400 * MS, 8e6) == 60 * MS
    assert outage_ns(curve, 90 * MS, 400 * MS, 8e6) == 70 * MS
    assert outage_ns(curve, 200 * MS, 400 * MS, 8e6) == 0


def test_less_than_seven_tenths_never_ends_it() -> None:
    curve = steady(0, 100) + steady(100, 1000, 0.69, 100_000)[1:]
    assert outage_ns(curve, 100 * MS, 1000 * MS, 8e6) is None
    assert outage_ns(curve, 100 * MS, 100 * MS + WINDOW_NS - 1, 8e6) is None  # no whole window


def test_one_stream() -> None:
    times = Times(warm=0.1, healthy=0.2, after=0.3)
    assert times.total == pytest.approx(0.6)
    curve = [*steady(0, 300), (400 * MS, 300000), *steady(400, 700, 1.0, 300000)[1:]]
    assert delivered(curve, 0, None, times) == Delivered(8e6)
    assert delivered(curve, 0, 300 * MS, times) == Delivered(8e6, True, 95.0)  # 14 of 20 ms, and 1
    assert delivered(curve[:350], 0, 300 * MS, times) == Delivered(8e6, True, 95.0)
    assert delivered(curve[:301], 0, 300 * MS, times) == Delivered(8e6, True, None)
