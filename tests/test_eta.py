"""`benchmarks/eta.py`: what a progress bar would have said after a tenth of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.run.work import LATER
from tests import benchmark


def step(share: float, model_left_s: float | None = None, settled: float = 1.0) -> Any:
    return SimpleNamespace(share=share, model_left_s=model_left_s, settled=settled)


@pytest.mark.parametrize(
    ("at_s", "share", "told"),
    [
        (list(range(21)), [i / 20 for i in range(21)], 2 + LATER * 18),  # even
        ([0, 1, 2, 20], [0, 0.03, 0.05, 1], 2 + LATER * 47.5),  # late: 0.02 a second, 0.95 left
        ([0, 1, 2, 20], [0, 0.025, 0.05, 0.5], 2 + LATER * 18),  # an error ended it half way
        ([2, 11, 20], [0.1, 0.5, 1], None),  # one step in its first tenth
        ([0], [1], None),
    ],
)
def test_a_run_is_told_by_its_first_tenth(
    at_s: list[float], share: list[float], told: float | None
) -> None:
    found = benchmark.load("eta").told(at_s, [step(each) for each in share])
    assert found == (None if told is None else pytest.approx(told))


def test_a_model_tells_of_a_run_whose_first_tenth_is_one_step() -> None:
    steps = [step(0.1, 17.0, 0.0), step(0.5), step(1.0)]
    assert benchmark.load("eta").told([2, 11, 20], steps) == pytest.approx(19)


def test_of_several_rounds_each_step_counts_by_its_shortest_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eta = benchmark.load("eta")
    now_s = [0.0]
    rounds = iter([(5.0, 7.0, 10.0), (20.0, 21.0, 25.0)])

    def simulate(_: Any, progress: Callable[[Any], None], threads: int) -> None:
        for at_s, share in zip(next(rounds), (0.1, 0.5, 1.0), strict=True):
            now_s[0] = at_s
            spent = SimpleNamespace(wall_s=at_s / 10)
            progress(SimpleNamespace(transport="mrc", share=share, progress=spent))

    monkeypatch.setattr(eta, "simulate", simulate)
    monkeypatch.setattr(eta.time, "process_time", lambda: now_s[0])
    ((name, (at_s, steps)),) = eta.timed(None, 2).items()
    assert (name, at_s) == ("mrc", [0.5, 1.5, 4.5])  # the first step by its time in the loop
    assert [each.share for each in steps] == [0.1, 0.5, 1.0]
