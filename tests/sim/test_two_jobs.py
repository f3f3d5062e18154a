"""The shipped scenario of two jobs, made small: what the second one costs the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import load_scenario

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/two_jobs.toml"
SMALL = (
    "fabric.nics=32",
    "fabric.t0_down=8",
    "workload.training.size=1MB",
    "workload.training.compute=10us",
    "workload.noise.size=16MB",
    "stop.time=3ms",
)


def jobs_beside(noise_from: str) -> dict[str, dict[str, Any]]:
    """The jobs of each transport; the second one is there from then on."""
    result = simulate(load_scenario(EXAMPLE, (*SMALL, f"workload.noise.start={noise_from}")))
    transports = result.summary()["transports"]
    assert [run["packets"]["dropped_fault"] for run in transports.values()] == [0, 0]
    return {name: run["jobs"] for name, run in transports.items()}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """The second job starts after the end; the queue pairs and their paths are the same."""
    return jobs_beside("1s")


@pytest.fixture(scope="module")
def beside() -> dict[str, dict[str, Any]]:
    return jobs_beside("0us")


def p100_us(job: dict[str, Any]) -> float:
    value: float = job["flows"]["fct_us"]["p100"]
    return value


def test_both_jobs_are_counted_by_themselves(
    alone: dict[str, dict[str, Any]], beside: dict[str, dict[str, Any]]
) -> None:
    for jobs in (*alone.values(), *beside.values()):
        assert list(jobs) == ["training", "noise"]
        assert jobs["training"]["flows"]["completed"] == 4 * 30 * 16
        assert jobs["training"]["flows"]["unfinished"] == 0
    for jobs in alone.values():
        assert jobs["noise"]["flows"]["total"] == jobs["noise"]["flows"]["unfinished"] == 16 * 15
        assert jobs["noise"]["flows"]["fct_us"]["p100"] is None
        assert jobs["noise"]["time_us"] is None
    for jobs in beside.values():
        assert jobs["noise"]["flows"]["completed"] == 16 * 15


def test_under_mrc_a_job_hardly_notices_the_other(
    alone: dict[str, dict[str, Any]], beside: dict[str, dict[str, Any]]
) -> None:
    before, after = alone["mrc"]["training"], beside["mrc"]["training"]
    assert p100_us(before) < p100_us(after) < 1.25 * p100_us(before)
    assert before["time_us"] < after["time_us"] < 1.05 * before["time_us"]


def test_on_one_hashed_path_its_slowest_message_takes_several_times_as_long(
    alone: dict[str, dict[str, Any]], beside: dict[str, dict[str, Any]]
) -> None:
    before, after = (jobs["one hashed path"]["training"] for jobs in (alone, beside))
    assert p100_us(after) > 2 * p100_us(before)
    assert after["time_us"] > 1.05 * before["time_us"]
