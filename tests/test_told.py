"""`benchmarks/estimate.py`: what is told of a run, beside what it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests import benchmark

SMALL = '[fabric]\nnics = 8\n[workload]\nkind = "permutation"\nsize = "64KiB"\n'


def loaded() -> Any:
    benchmark.load("eta")  # which it imports
    return benchmark.load("estimate")


def test_it_runs_what_it_tells_of(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    found = loaded().both(file)
    told, took = found["told"], found["took"]
    assert told.keys() == took.keys() == {"loop_s", "wall_s", "traversals", "memory"}
    assert 8 * 16 * 2 < took["traversals"] < 8 * 16 * 8
    assert 0 < took["loop_s"] < took["wall_s"]
    assert told["memory"] > 200e6
    assert took["memory"] > 50e6


def test_a_row_says_how_far_off_it_was() -> None:
    took = {"loop_s": 2.0, "wall_s": 4.0, "traversals": 5e6, "memory": 3e9}
    told = {"loop_s": 3.0, "wall_s": 4.0, "traversals": 4e6, "memory": 3.3e9}
    assert loaded().row("one", {"told": told, "took": took}) == (
        "| one | 2.00 s | 4.00 s | 5.0 M | 3.00 GB | +50% | +0% | -20% | +10% |"
    )


@pytest.mark.parametrize(
    ("loop_s", "told_s", "status"), [(1.0, 1.25, 0), (1.0, 1.26, 1), (0.4, 9.0, 0)]
)
def test_a_loop_that_takes_long_enough_is_judged(
    loop_s: float,
    told_s: float,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rest = {"wall_s": 9.0, "traversals": 1e6, "memory": 1e9}
    found = {"told": {"loop_s": told_s, **rest}, "took": {"loop_s": loop_s, **rest}}
    ours = loaded()
    monkeypatch.setattr(ours, "in_a_process", lambda _: found)
    (tmp_path / "one.toml").write_text(SMALL)
    monkeypatch.setattr(sys, "argv", ["estimate.py", str(tmp_path / "one.toml")])
    assert ours.main() == status
    assert "25% is the limit" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["estimate.py", "nowhere.toml"])
    with pytest.raises(SystemExit):
        loaded().main()
    assert "nowhere.toml: no such file" in capsys.readouterr().err
