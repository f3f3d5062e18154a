"""A verdict on both sides of every boundary."""

from __future__ import annotations

import math

import pytest

from openmrc.paper.verdict import Bar, Check, Verdict, around, judge, relative


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([48.0], Verdict.HOLDS),
        ([47.999], Verdict.FAILS),
        ([52.0], Verdict.HOLDS),
        ([52.001], Verdict.FAILS),
        ([48.0, 50.0, 52.0], Verdict.HOLDS),
        ([47.9, 48.1, 48.2], Verdict.MEDIAN),
        ([47.9, 47.9, 48.2], Verdict.FAILS),
        ([47.9, 48.1], Verdict.MEDIAN),  # the median of two is their mean: 48.0
        ([47.8, 48.1], Verdict.FAILS),
        ([], Verdict.MISSING),
    ],
)
def test_half_within_two_points(values: list[float], verdict: Verdict) -> None:
    assert judge(values, around(50, 2)) is verdict


def test_what_never_came_is_outside_every_bar() -> None:
    assert judge([math.inf], Bar(low=1)) is Verdict.FAILS
    assert judge([math.inf, 2, 3], Bar(low=1)) is Verdict.MEDIAN
    assert judge([math.inf, math.inf, 3], Bar()) is Verdict.FAILS


def test_without_a_bar_a_value_is_only_reported() -> None:
    assert judge([3.0], None) is Verdict.REPORTED
    assert judge([], None) is Verdict.MISSING


def test_a_calibrated_value_is_no_result_whatever_its_bar() -> None:
    check = Check("share", "5.09 us", [3.8], "us", around(3.8, 1), calibrated=True)
    assert check.verdict is Verdict.CALIBRATED
    assert Check("share", "5.09 us", [], calibrated=True).verdict is Verdict.MISSING


def test_bars_say_what_they_hold() -> None:
    assert str(around(50, 2)) == "48 to 52"
    assert str(Bar(high=1000)) == "at most 1000"
    assert str(Bar(low=95)) == "at least 95"
    assert relative(200, 0.05) == Bar(190, 210)
    assert 190.0 in relative(200, 0.05)
    assert 189.99 not in relative(200, 0.05)
    with pytest.raises(ValueError, match="holds nothing"):
        Bar(2, 1)


def test_the_median_of_a_check() -> None:
    assert Check("x", "y", [3, 1, 2]).median == 2
    assert Check("x", "y", []).median is None
