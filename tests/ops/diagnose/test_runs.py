"""The times at which a component was bad, as the best path through two states."""

from __future__ import annotations

import numpy as np

from openmrc.ops.diagnose.runs import DEAD, OF_ALL, OF_DATA, best_rates, best_runs

RATES = np.array([0.98, 0.5, 0.1])
AGAIN = 5.0


def best(lost: list[bool], prior: float = 10.0) -> tuple[float, float, list[list[int]]]:
    """One packet a us crosses a component, and is lost or arrives: what that is worth, the rate,
    and the first and last packets of each bad time.
    """
    at_us = np.flatnonzero(lost).astype(np.float64)
    n = len(at_us)
    arrived = np.cumsum(~np.array(lost)).astype(np.float64)
    crossed = arrived[at_us.astype(np.int64)]
    before = even = after = np.stack([crossed, crossed])
    gains = np.log1p(-(1 - 1e-5) * (1 - RATES))[:, None] - np.log(np.full(n, 1e-5))
    through, level = np.log1p(-RATES), np.array([DEAD, OF_ALL, OF_DATA])
    nats, rates = np.zeros((2, 1)), np.zeros((2, 1), np.int64)
    first, packet, back = np.array([0, n]), np.arange(n), np.zeros(n, np.bool_)
    own = np.array([prior]), np.array([AGAIN])
    space = *np.zeros((2, 3)), *np.zeros((2, 3, n), np.int64)
    best_rates(
        np.array([0]), first, packet, back, before, even, even, after, gains, through, level,
        np.zeros(1, np.bool_), *own, at_us, np.zeros(n), nats, rates, *space,
    )  # fmt: skip
    best, rate = float(nats.max()), int(rates[np.argmax(nats), 0])
    runs = np.zeros((2, 8), np.int64)
    found = best_runs(
        0, rate, first, packet, back, before, even, even, after, gains, through, level,
        prior, AGAIN, at_us, np.zeros(n), runs, *space,
    )  # fmt: skip
    return best, float(RATES[rate]), runs[:, :found].T[::-1].tolist()


def test_what_loses_all_for_a_time_is_one_run_of_the_largest_rate() -> None:
    nats, rate, runs = best([False] * 50 + [True] * 20 + [False] * 50)
    assert (rate, runs) == (0.98, [[0, 19]])
    assert nats > 200


def test_what_loses_a_part_is_one_run_of_about_that_rate() -> None:
    _, rate, runs = best(([True] + [False] * 9) * 12)
    assert (rate, runs) == (0.1, [[0, 11]])


def test_what_fails_twice_is_two_runs() -> None:
    _, rate, runs = best([True] * 10 + [False] * 40 + [True] * 10)
    assert (rate, runs) == (0.98, [[0, 9], [10, 19]])
