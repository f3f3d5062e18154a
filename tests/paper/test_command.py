"""`mrc paper` from its options to its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from openmrc.cli.command import main
from openmrc.jit import interpreted
from openmrc.paper.catalogue import EXPERIMENTS
from openmrc.paper.command import chosen_of
from openmrc.paper.page import figure_name
from openmrc.paper.publish import run_missing

NAMES = [e.name for e in EXPERIMENTS]


def test_the_list_names_all_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["paper", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert list(tmp_path.iterdir()) == []


def test_a_name_in_any_case_and_in_the_order_of_the_page() -> None:
    assert chosen_of(["b7", "B6"], NAMES) == ["B7", "B6"]
    assert chosen_of([], NAMES) == NAMES


def test_an_unknown_name_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "B99"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mrc: paper B99: there is no such experiment; accepted: B1, ")
    assert said.count("\n") == 1


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
def test_the_reduced_set_runs_resumes_and_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # one alone, then all: what is there is not run again
    assert main(["paper", "B7", "--quick", "--json", "--out", str(tmp_path)]) == 0
    first = json.loads(capsys.readouterr().out)
    assert list(first["experiments"]) == ["B7"]
    assert [check["verdict"] for check in first["experiments"]["B7"]] == ["holds", "holds"]
    (kept,) = (tmp_path / "data/runs").iterdir()
    stamp = kept.stat().st_mtime_ns

    assert main(["paper", "--quick", "--out", str(tmp_path)]) == 0
    assert kept.stat().st_mtime_ns == stamp
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["experiments"]) == NAMES
    assert results["failures"] == {}
    page = (tmp_path / "README.md").read_text()
    for experiment in EXPERIMENTS:
        assert (tmp_path / figure_name(experiment)).read_bytes().startswith(b"\x89PNG")
        assert f"({figure_name(experiment)})" in page
    verdicts = {
        (name, check["what"]): check["verdict"]
        for name, checks in results["experiments"].items()
        for check in checks
    }
    assert [what for what, verdict in verdicts.items() if verdict == "does not hold"] == []
    assert list(verdicts.values()).count("holds") > 15  # none of those of collectives is judged

    run_missing(EXPERIMENTS, tmp_path / "data", quick=True, workers=1)  # nothing is missing
    assert kept.stat().st_mtime_ns == stamp
