"""`benchmarks/stalls.py`: gaps, the row of a table, and faults that a lab carries out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.fabric import Fault, compile_faults
from openmrc.live.lab.health import healing
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from tests import benchmark

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def stalls() -> Any:
    return benchmark.load("stalls")


class FakeLab:
    """Takes faults as a lab does, and carries out none."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.failed: list[str] = []

    def fail(self, where: str, kind: str, **how: float) -> None:
        made: Any = Fault  # its fields by name
        fault = made(at_ps=0, kind=kind, where=where, **how)
        assert len(compile_faults([fault], self.fabric).events)
        self.failed.append(where)

    def heal(self, where: str) -> None:
        assert len(healing(self.fabric, where))


def test_the_longest_gap_counts_both_ends(stalls: Any) -> None:
    at_s = np.array([1.01, 1.02, 1.07])
    assert stalls.longest_gap_ms(at_s, 1.0, 1.1) == pytest.approx(50)
    assert stalls.longest_gap_ms(at_s, 0.9, 1.1) == pytest.approx(110)
    assert stalls.longest_gap_ms(at_s[:0], 1.0, 1.25) == pytest.approx(250)


def test_completions_are_remembered_in_a_ring(
    stalls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "RING", 4)
    writer = stalls.Completions(tmp_path / "ring", "w+")
    times = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(stalls.time, "monotonic", lambda: next(times))
    for n, bad in ((2, 0), (1, 3), (2, 0)):
        writer.add(n, bad)
    reader = stalls.Completions(tmp_path / "ring", "r")
    assert (reader.total, reader.paths_bad) == (5, 0)
    assert reader.between(1, 0.0, 9.0).tolist() == [1.0, 2.0, 3.0, 3.0]
    assert reader.between(3, 3.0, 9.0).tolist() == [3.0, 3.0]
    assert reader.between(1, 0.0, 3.0).tolist() == [1.0, 2.0]


def test_each_kind_is_a_fault_of_the_lab_and_can_be_healed(
    stalls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "AFTER_S", 0.0)  # flapping keeps on for so long
    scenario = tmp_path / "lab.toml"
    scenario.write_text(stalls.SCENARIO.format(planes=4, rate_mbps=100, switch="linux"))
    lab = FakeLab(lab_spec(load_lab(str(scenario), [])).fabric)
    rng = np.random.default_rng(1)
    n_failed = []
    for kind in stalls.KINDS.values():
        lab.failed.clear()
        healing_of = kind.begin(lab, rng, 2)
        if healing_of:
            lab.heal(healing_of)
        n_failed.append(len(lab.failed))
    assert n_failed == [0, 1, 1, 1, 1, 0, 1, 3]


def test_a_row_has_percentiles_shares_and_the_histogram(stalls: Any) -> None:
    found = [
        {"stall_ms": ms, "share": share} for ms, share in ((0.5, 1.0), (3.0, 0.9), (250.0, 0.5))
    ]
    cells = stalls.line("a kind", found).strip("| ").split(" | ")
    assert cells[:4] == ["a kind", "3", "3.0", "245.1"]
    assert cells[4:8] == ["250.0", "0.90", "0.51", "0.50"]
    assert cells[8:] == ["1", "0", "1", "0", "0", "0", "0", "0", "1"]
    assert len(stalls.head().splitlines()[0].split(" | ")) == len(cells)
