"""`benchmarks/p100.py`: every row is a scenario, and the table says what the runs say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from openmrc.scenario.scenario import parse_scenario
from tests import benchmark

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def p100() -> Any:
    benchmark.load("p100_drawn")  # which it imports
    return benchmark.load("p100")


def test_every_row_is_a_scenario_alone_and_with_baselines(p100: Any) -> None:
    for name, row in p100.ROWS.items():
        alone = parse_scenario(row.text([]), ["seed=3"], name=name)
        assert [each.name for each in alone.transports] == ["mrc"]
        beside = parse_scenario(row.text(p100.BASELINES), [], name=name)
        names = ["mrc", "oblivious", "reps", "single", "roce", "roce 8 QPs"]
        names += ["roce converged", "roce 8 converged", "adaptive", "adaptive converged", "spray"]
        assert [each.name for each in beside.transports] == names
        checks = [getattr(each, "check_paths", False) for each in beside.transports]
        assert checks == [name.startswith("checked")] + 10 * [False]


def test_the_page_runs_rows_that_exist(p100: Any) -> None:
    page = (ROOT / "docs/p100.md").read_text(encoding="utf-8")
    commands = re.findall(r"`benchmarks/p100.py (--row .*?)`", page)
    named = [row for line in commands for row in re.findall(r'"([^"]+)"', line)]
    assert len(commands) == 8
    assert set(named) <= set(p100.ROWS)


def test_what_is_drawn_is_a_scenario_and_a_function_of_its_number(p100: Any) -> None:
    words = set()
    for number in range(1, 41):
        one = p100.drawn(number)
        assert p100.drawn(number) == one
        scenario = parse_scenario(one.text, [f"seed={number}"], name=one.words)
        assert len(scenario.transports) == 5
        scenario.build()
        words.add(one.words)
    assert len(words) == 40


def test_how_often_mrc_is_like_the_best(p100: Any) -> None:
    rows = [
        {"mrc": mrc, "mrc checked": checked, "reps": 10.0, "roce 8 converged": told}
        for mrc, checked, told in (
            (10.0, 9.0, 20.0), (10.3, 10.0, 11.0), (10.0, 5.1, 5.0), (10.5, 10.5, 10.0),
            (14.0, 10.0, 7.5),
        )
    ]  # fmt: skip
    assert p100.summary(rows).splitlines() == [
        "MRC beside those that are not told: the least or within 3% of it in 3 of 5, more than 1.3 "
        "times it in 1; at most 1.40 times",
        "MRC that tried its paths, beside all: the least or within 3% of it in 3 of 5, more than "
        "1.3 times it in 1; at most 1.33 times",
    ]


def test_the_least_of_each_row_is_bold(p100: Any) -> None:
    rest = {"/ideal": 1.5, "RTO": 1200}
    table = {
        "dead 1MB": {
            "mrc": {"p50": 30.04, "p99": 38.0, "p99.9": 41.0, "p100": 43.0} | rest,
            "single": {"p50": 29.0, "p99": 90.0, "p99.9": 138.0, "p100": 139.0} | rest,
        }
    }
    lines = p100.markdown(table).splitlines()
    assert lines[2:] == [
        "| dead 1MB | mrc | 30.0 | **38.0** | **41.0** | **43.0** | 1.500 | 1,200 |",
        "| dead 1MB | single | **29.0** | 90.0 | 138.0 | 139.0 | 1.500 | 1,200 |",
    ]
