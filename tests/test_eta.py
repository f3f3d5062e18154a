"""`benchmarks/eta.py`: what a progress bar would have said after a tenth of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests import benchmark


@pytest.mark.parametrize(
    ("at_s", "share", "told"),
    [
        (list(range(21)), [i / 20 for i in range(21)], 20),  # even
        ([0, 1, 2, 20], [0, 0.03, 0.05, 1], 49.5),  # late: 0.02 a second, 0.95 left
        ([0, 1, 2, 20], [0, 0.025, 0.05, 0.5], 20),  # an error ended it half way
        ([0, 2, 20], [0, 0.1, 1], None),  # one step in its first tenth
        ([0], [1], None),
    ],
)
def test_a_run_is_told_by_its_first_tenth(
    at_s: list[float], share: list[float], told: float | None
) -> None:
    found = benchmark.load("eta").told(at_s, share)
    assert found == (None if told is None else pytest.approx(told))


def test_of_several_rounds_each_step_counts_by_its_shortest_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eta = benchmark.load("eta")
    now_s = [0.0]
    rounds = iter([(5.0, 7.0, 10.0), (20.0, 21.0, 25.0)])

    def simulate(_: Any, progress: Callable[[Any], None], threads: int) -> None:
        for at_s, share in zip(next(rounds), (0.0, 0.5, 1.0), strict=True):
            now_s[0] = at_s
            progress(SimpleNamespace(transport="mrc", share=share))

    monkeypatch.setattr(eta, "simulate", simulate)
    monkeypatch.setattr(eta.time, "process_time", lambda: now_s[0])
    assert eta.timed(None, 2) == {"mrc": ([0.0, 1.0, 4.0], [0.0, 0.5, 1.0])}
