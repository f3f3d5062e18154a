"""Balls into bins: against counting by hand, against drawing, and against the simulator."""

from __future__ import annotations

import itertools
import math
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.jit import interpreted
from openmrc.planning.collisions import (
    busy_paths,
    most_loaded,
    slowest_of_ring,
    used_share,
)

ROOT = Path(__file__).resolve().parents[2]
DRAWS = 40_000


def counted(flows: int, paths: int) -> dict[int, float]:
    """Every way to throw, one by one."""
    ways = itertools.product(range(paths), repeat=flows)
    found = Counter(max(Counter(way).values()) for way in ways)
    return {m: n / paths**flows for m, n in sorted(found.items())}


@pytest.mark.parametrize(
    ("flows", "paths"), [(1, 1), (5, 1), (1, 5), (2, 2), (3, 2), (4, 4), (6, 4), (7, 3), (5, 6)]
)
def test_the_most_loaded_path_is_as_counted(flows: int, paths: int) -> None:
    assert most_loaded(flows, paths) == pytest.approx(counted(flows, paths), abs=1e-11)


@pytest.mark.parametrize(
    ("flows", "paths", "throws"), [(8, 8, 1), (32, 32, 1), (64, 8, 1), (256, 256, 1), (8, 8, 5)]
)
def test_the_most_loaded_path_is_as_drawn(flows: int, paths: int, throws: int) -> None:
    rng = np.random.default_rng(5)
    loads = rng.multinomial(flows, [1 / paths] * paths, (DRAWS // throws, throws))
    drawn = np.bincount(loads.max(axis=(1, 2)))
    worked_out = most_loaded(flows, paths, throws)
    n = drawn.sum()
    for m, times in enumerate(drawn):
        p = worked_out.get(m, 0.0)
        assert abs(times / n - p) <= 4.5 * math.sqrt(max(p * (1 - p), 1 / n) / n)


@pytest.mark.parametrize(("flows", "paths"), [(8, 8), (100, 32), (3, 20)])
def test_the_busy_paths_are_as_drawn(flows: int, paths: int) -> None:
    rng = np.random.default_rng(6)
    loads = rng.multinomial(flows, [1 / paths] * paths, DRAWS)
    busy = (loads > 0).sum(axis=1)
    assert busy_paths(flows, paths) == pytest.approx(busy.mean(), abs=4.5 * busy.std() / 200)


def test_as_many_flows_as_paths_use_63_percent() -> None:
    assert used_share(100_000, 65_536) > used_share(65_536, 65_536)
    assert used_share(65_536, 65_536) == pytest.approx(1 - math.exp(-1), abs=1e-5)
    assert used_share(2, 2) == 0.75
    assert used_share(1, 7) == pytest.approx(1.0)
    assert used_share(7, 1) == 1.0


@given(st.integers(1, 400), st.integers(1, 100), st.integers(1, 1000))
def test_a_distribution_is_one(flows: int, paths: int, throws: int) -> None:
    loads = most_loaded(flows, paths, throws)
    assert sum(loads.values()) == pytest.approx(1, abs=1e-7)
    assert min(loads) >= -(-flows // paths)
    assert max(loads) <= flows


def mean_of(loads: dict[int, float]) -> float:
    return sum(m * p for m, p in loads.items())


# --- a ring across T0s


def test_a_ring_of_two_nics_a_t0_by_hand() -> None:
    """Both on one uplink half of the time: half the rate, twice the time."""
    slowest = slowest_of_ring(nics_per_t0=2, uplinks=2, qps=1, t0s=1)
    assert (slowest.time, slowest.share, slowest.used) == pytest.approx((1.5, 0.75, 0.75))
    # of two T0s both must be lucky
    assert slowest_of_ring(2, 2, 1, 2).time == pytest.approx(1 / 4 * 1 + 3 / 4 * 2)


def test_more_qps_help_and_more_t0s_hurt() -> None:
    times = [slowest_of_ring(32, 32, qps, 64).time for qps in (1, 2, 4, 16, 64)]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 1.2
    times = [slowest_of_ring(32, 32, 4, t0s).time for t0s in (1, 4, 64, 2048)]
    assert times == sorted(times)


def test_a_large_ring_is_exact_too() -> None:
    rng = np.random.default_rng(7)
    drawn = rng.multinomial(256 * 64, [1 / 256] * 256, 4000).max(axis=1)
    error = drawn.std() / math.sqrt(len(drawn))
    assert abs(mean_of(most_loaded(256 * 64, 256)) - drawn.mean()) < 4 * error
    assert sum(most_loaded(256 * 64, 256, 512).values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 8), "flows: 0: 1 to 1,000,000 is accepted"),
        ((1_000_001, 8), "flows: 1000001: 1 to 1,000,000"),
        ((8, 0), "paths: 0: 1 to 65,536 is accepted"),
        ((8, 65_537), "paths: 65537: 1 to 65,536"),
        ((8, 8, 0), "throws: 0: 1 or more is accepted"),
    ],
)
def test_what_cannot_be_thrown_is_refused(arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        most_loaded(*arguments)


def test_a_ring_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="qps: 0: 1 or more is accepted"):
        slowest_of_ring(8, 8, 0, 1)


# --- and the simulator


@pytest.mark.skipif(interpreted(), reason="a minute in plain Python")
def test_the_simulator_meets_what_was_worked_out() -> None:
    """The slowest part takes as long as the paths say that the simulator drew; and what it drew
    has, over seeds, the mean that was worked out, within three standard errors.
    """
    simulated = bench()["simulated"]
    for qps, size in ((1, "2MB"), (4, "8MB")):
        drawn, times = np.array(simulated("single", qps, size, seeds=16, nics_per_t0=4, t0s=4)).T
        assert np.all((times > 0.97 * drawn) & (times < 1.1 * drawn))
        assert len(set(drawn)) > 1
        loads = most_loaded(4 * qps, 4, throws=4)
        mean = mean_of(loads)
        deviation = math.sqrt(sum(p * (m - mean) ** 2 for m, p in loads.items()))
        assert abs(drawn.mean() - mean / qps) < 3 * deviation / qps / math.sqrt(len(drawn))
    sprayed = simulated("mrc", 1, "2MB", seeds=2, nics_per_t0=4, t0s=4)
    assert max(time for _, time in sprayed) < 1.1


@pytest.mark.skipif(interpreted(), reason="a minute in plain Python")
def test_the_benchmark_puts_both_side_by_side() -> None:
    rows = bench()["measure"](quick=True)
    assert [(r["paths"], r["qps"]) for r in rows] == [
        *(("single", q) for q in (1, 2, 4, 8)),
        ("oblivious", 1),
        ("mrc", 1),
    ]
    assert all(0.99 < r["least"] <= r["simulated"] <= r["most"] for r in rows)


def bench() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks/collisions.py"))
