"""The failures of a period: how many, where, and the same ones for fabrics that differ."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.day.failures import GPU, SHOCK, Failures, draw, kinds_of_day
from openmrc.day.rates import KNOWN
from openmrc.planning.assumptions import values_with
from openmrc.planning.sizing import Design, size

NO_FLAPS = ("fabric_flaps_per_day=0",)
SEVERAL = size(16_384, 8, 800 * 10**9, 51_200 * 10**9, 2)
ONE = size(16_384, 1, 800 * 10**9, 51_200 * 10**9)


def of(design: Design, days: float = 54, seed: int = 1, *overrides: str) -> Failures:
    """The failures of one fabric."""
    return draw([design], values_with(overrides, KNOWN), days, seed)[0]


def count(failures: Failures, name: str) -> int:
    """How many there are of a kind."""
    each = np.bincount(failures.kind, minlength=len(failures.kinds)).tolist()
    return sum(n for kind, n in zip(failures.kinds, each, strict=True) if kind.kind == name)


def test_as_many_fail_as_their_rates_say() -> None:
    found = of(SEVERAL)
    for kind in kinds_of_day(SEVERAL, values_with((), KNOWN)):
        expected = 54 * kind.things * kind.per_thing_day
        assert count(found, kind.kind) == pytest.approx(expected, abs=4 * expected**0.5 + 1)
    assert (np.diff(found.at_s) >= 0).all()
    assert found.at_s.max() < 54 * 86_400


def test_they_last_as_long_as_a_repair_on_average() -> None:
    found = of(SEVERAL)
    flaps = np.array([found.kinds[k].kind.endswith("flap") for k in found.kind])
    assert found.lasts_s[flaps].mean() == pytest.approx(60, rel=0.05)


def test_fabrics_that_are_alike_have_the_same_failures() -> None:
    alike = draw([SEVERAL, SEVERAL, ONE], values_with((), KNOWN), 7, 5)
    for first, second in zip(alike[0][1:], alike[1][1:], strict=True):
        assert np.array_equal(first, second)
    # hosts are the same in all, and so is what befalls them
    hosts = [each.at_s[[each.kinds[k].kind == GPU for k in each.kind]] for each in alike]
    assert len(hosts[0]) > 20
    assert hosts[0].tolist() == hosts[2].tolist()


def test_of_fabrics_that_differ_the_larger_has_all_that_the_smaller_has() -> None:
    larger, smaller = draw([SEVERAL, ONE], values_with(NO_FLAPS, KNOWN), 54, 3)
    links = [
        set(each.at_s[[each.kinds[k].kind == "link NIC-T0" for k in each.kind]].tolist())
        for each in (larger, smaller)
    ]
    assert links[1] < links[0]


def test_a_shock_comes_only_if_somebody_says_how_often() -> None:
    assert count(of(SEVERAL, 54, 1, *NO_FLAPS), SHOCK) == 0
    assert count(of(SEVERAL, 54, 1, "shocks_per_day=2", *NO_FLAPS), SHOCK) > 60


def test_another_seed_is_another_day() -> None:
    assert of(SEVERAL, 1, 1).at_s.tolist() != of(SEVERAL, 1, 2).at_s.tolist()
