"""How often a healthy place would be named."""

from __future__ import annotations

import math

import pytest

from openmrc.ops import alarms
from openmrc.units import MS, S


def test_a_tail_is_the_sum_of_its_terms() -> None:
    assert alarms.tail(3, 0.5, 2) == pytest.approx(0.5)
    assert alarms.tail(10, 0.1, 1) == pytest.approx(1 - 0.9**10)


@pytest.mark.parametrize("packets", [10, 100, 10_000, 10_000_000])
@pytest.mark.parametrize("background", [1e-9, 1e-7, 1e-4])
def test_chance_is_below_chernoffs_bound(packets: int, background: float) -> None:
    found = alarms.alarm(packets, background, 35.0)
    assert 0 <= found.chance <= math.exp(-35)
    assert found.losses > packets * background


def test_one_loss_less_is_not_named() -> None:
    found = alarms.alarm(10_000, 1e-7, 35.0)
    assert found.losses == 5  # 5 x (log(5e-4 / 1e-7)) - 5 = 37.6, and of four 29.8


def test_a_million_hours_of_links_name_none_that_is_healthy() -> None:
    # Ten probes a millisecond; windows of 10 ms and of 1 s.
    for packets, window_ps in ((100, 10 * MS), (10_000, 1 * S)):
        windows = 1e6 * alarms.windows_an_hour(window_ps)
        assert windows * alarms.alarm(packets, 1e-7, 35.0).chance < 1e-3


def test_what_was_not_seen_among_so_many_is_rarer_than_three_of_them() -> None:
    assert alarms.background_at_most(10**6, 0) == pytest.approx(3e-6, rel=0.01)
    assert alarms.background_at_most(1000, 3) == pytest.approx(7.75e-3, rel=0.01)
