"""Some of the scenarios of `examples/why`, asked as an operator would ask."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def oncall(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return runpy.run_path(str(BENCHMARKS / "oncall.py"))


@pytest.mark.parametrize(
    "name",
    [
        "port_down_and_back",
        "two_at_once",
        "two_within_a_breath",
        "drained_plane",
        "worn_laser",
        "half_a_line_card",
        "dropping_but_healthy",
        "gray_spine",
        "hashed_and_gray",
        "deaf_port_on_plain_ethernet",
    ],
)
def test_what_broke_is_named_with_its_time_and_nothing_else_is(
    oncall: dict[str, Any], name: str
) -> None:
    rows = oncall["ask"](name, None)
    assert all(row["right"] for row in rows), rows
