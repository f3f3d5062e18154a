"""`benchmarks/eta.py`: what a progress bar would have said after a tenth of a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests import benchmark


def test_a_run_that_speeds_up_was_told_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    eta = benchmark.load("eta")
    now_s = [0.0]
    # time and share: even, then one that has done a twentieth after a tenth of its time
    runs = {"even": [(i, i / 20) for i in range(21)], "late": [(20, 0.0), (22, 0.05), (40, 1.0)]}

    def simulate(_: Any, progress: Callable[[Any], None]) -> None:
        for name, steps in runs.items():
            for at_s, share in steps:
                now_s[0] = at_s
                progress(SimpleNamespace(transport=name, share=share))

    monkeypatch.setattr(eta, "simulate", simulate)
    monkeypatch.setattr(eta.time, "process_time", lambda: now_s[0])
    told = eta.told(None)
    assert [(name, took_s) for name, took_s, _ in told] == [("even", 20), ("late", 20)]
    assert [said_s for *_, said_s in told] == pytest.approx([20, 40])
