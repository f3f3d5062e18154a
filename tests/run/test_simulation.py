from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.run import simulation
from openmrc.run.figures import ROCE, distribution_us, flat, nearest_rank
from openmrc.run.results import peak_rss_mb
from openmrc.run.simulation import Step, simulate
from openmrc.scenario.scenario import Scenario, parse_scenario
from openmrc.sim.world import Progress
from openmrc.units import US

if TYPE_CHECKING:
    from tests.conftest import FakeWorld

TWO = """
name = "two"
[fabric]
nics = 4
[workload]
kind = "permutation"
size = "1kB"
[[transport]]
[[transport]]
paths = "single"
"""


@pytest.fixture
def two() -> Scenario:
    return parse_scenario(TWO)


@pytest.mark.parametrize(
    ("share", "rank"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
)
def test_a_percentile_is_the_nearest_rank(share: float, rank: int) -> None:
    values = np.random.default_rng(1).permutation(np.arange(1, 101))
    assert nearest_rank(values, share) == rank


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 1000))
def test_at_least_this_share_is_at_or_below_a_percentile(values: list[int], permille: int) -> None:
    found = nearest_rank(np.array(values), permille / 1000)
    assert sum(v <= found for v in values) * 1000 >= permille * len(values)
    assert sum(v < found for v in values) * 1000 < permille * len(values)


def test_a_distribution_in_microseconds() -> None:
    values = np.array([3 * US, 1 * US, 2_500_000, 10 * US])
    assert distribution_us(values) == {
        "min": 1.0,
        "p50": 2.5,
        "p99": 10.0,
        "p99.9": 10.0,
        "p100": 10.0,
        "mean": 4.125,
    }


def test_a_distribution_of_nothing_is_null() -> None:
    assert set(distribution_us(np.array([], np.int64)).values()) == {None}


def test_the_summary_is_the_documented_object(fake_world: type[FakeWorld], two: Scenario) -> None:
    summary = simulate(two).summary()

    assert list(summary) == [
        "scenario",
        "seed",
        "level",
        "openmrc",
        "run",
        "partial",
        "wall_s",
        "peak_rss_mb",
        "transports",
    ]
    assert (summary["scenario"], summary["seed"], summary["partial"]) == ("two", 1, False)
    # Four flows of 1000 B take 10, 20, 30 and 40 us.
    assert summary["transports"]["mrc"] == {
        "whole_us": 40.0,
        "sim_time_us": 40.0,
        "loop_s": 0.5,
        "link_traversals": 4000,
        "link_traversals_per_s": 8000,
        "flows": {
            "total": 4,
            "completed": 4,
            "failed": 0,
            "unfinished": 0,
            "fct_us": {
                "min": 10.0,
                "p50": 20.0,
                "p99": 40.0,
                "p99.9": 40.0,
                "p100": 40.0,
                "mean": 25.0,
            },
        },
        "goodput_gbps": {
            "min": 0.2,
            "mean": 0.417,
            "p100_flow": 0.2,
            "total": 0.8,
            "delivered": 0.821,  # the last byte is there 1 us before its acknowledgement
        },
        "ideal_us": 10.0,
        "slowdown_p100": 4.0,
        "packets": dict.fromkeys(
            (
                "data",
                "retransmitted",
                "trimmed",
                "dropped_queue",
                "dropped_fault",
                "dropped_corrupt",
                "ecn_marked",
                "sack",
                "nack",
                "probe",
                "duplicates",
            ),
            1,
        ),
        "paths": {"assumed_bad": 1, "revived": 1, "skips": 1},
        "qp_errors": [],
        "bytes_verified": 4000,
    }
    # The second transport is three times as slow.
    single = summary["transports"]["single"]
    assert (single["flows"]["fct_us"]["p100"], single["slowdown_p100"]) == (120.0, 12.0)


def test_tables_are_data_frames(fake_world: type[FakeWorld], two: Scenario) -> None:
    result = simulate(two)
    assert result.flows.select("transport", "flow", "fct_us", "delivered_us").rows() == [
        ("mrc", 0, 10.0, 9.0),
        ("mrc", 1, 20.0, 19.0),
        ("mrc", 2, 30.0, 29.0),
        ("mrc", 3, 40.0, 39.0),
        ("single", 0, 30.0, 29.0),
        ("single", 1, 60.0, 59.0),
        ("single", 2, 90.0, 89.0),
        ("single", 3, 120.0, 119.0),
    ]
    per_bin = result.timeline.group_by("transport", maintain_order=True).len().rows()
    assert per_bin == [("mrc", 4), ("single", 12)]
    assert result.timeline["goodput_gbps"].max() == 0.8
    rates = result.timeline.filter(transport="mrc")["flow_gbps"].to_list()
    assert rates == [[0.8] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4]
    assert result.timeline["job_gbps"].null_count() == 16


@pytest.mark.parametrize("unfinished", [0, 4])
def test_the_figures_are_the_summary_with_their_place_as_name(
    fake_world: type[FakeWorld], two: Scenario, unfinished: int
) -> None:
    fake_world.unfinished = unfinished
    result = simulate(two)
    summary = result.summary()["transports"]
    rows = {row.pop("transport"): row for row in result.figures.to_dicts()}
    for row in rows.values():
        assert {row.pop(f"roce.{key}") for key in ROCE} == {None}  # of another kind of transport
    assert rows == {name: flat(summary[name]) for name in ("mrc", "single")}
    assert rows["mrc"]["flows.fct_us.p99.9"] == (None if unfinished else 40.0)


def test_a_result_of_nothing_has_empty_tables(fake_world: type[FakeWorld], two: Scenario) -> None:
    result = dataclasses.replace(simulate(two), transports=())
    assert (result.flows.height, result.timeline.height, result.figures.height) == (0, 0, 0)


def test_a_file_or_dicts_can_be_simulated_too(
    fake_world: type[FakeWorld], two: Scenario, tmp_path: Path
) -> None:
    (tmp_path / "two.toml").write_text(two.to_toml())
    tables = {"fabric": {"nics": 4}, "workload": {"kind": "permutation", "size": "1kB"}}
    for what in (tmp_path / "two.toml", str(tmp_path / "two.toml"), tables):
        assert simulate(what).summary()["transports"]["mrc"]["flows"]["total"] == 4


def test_each_transport_runs_with_its_own_choices_and_the_common_stop(
    fake_world: type[FakeWorld],
) -> None:
    simulate(parse_scenario(TWO, ["transport.single.pmtu=1024", "stop.time=5us"]))
    assert [world.transport.pmtu for world in fake_world.built] == [4096, 1024]
    assert [world.stop_ps for world in fake_world.built] == [5 * US, 5 * US]


def test_a_run_is_sampled_only_if_asked_and_as_the_scenario_says(
    fake_world: type[FakeWorld],
) -> None:
    scenario = parse_scenario(TWO, ["report.qp=2", "report.samples=100"])
    assert [run.samples for run in simulate(scenario).transports] == [None, None]
    assert [world.sampled for world in fake_world.built] == [None, None]
    simulate(scenario, sampled=True)
    assert [world.sampled for world in fake_world.built[2:]] == [(2, 100), (2, 100)]


def test_progress_names_the_transport(fake_world: type[FakeWorld], two: Scenario) -> None:
    steps: list[Any] = []
    simulate(two, steps.append)
    assert [(s.transport, s.index, s.count, s.progress.flows_done) for s in steps] == [
        ("mrc", 0, 2, 4),
        ("single", 1, 2, 4),
    ]


def test_when_all_is_done_the_status_is_0(fake_world: type[FakeWorld], two: Scenario) -> None:
    assert simulate(two).exit_status == 0


def test_unfinished_flows_are_status_1_unless_the_end_was_planned(
    fake_world: type[FakeWorld], two: Scenario
) -> None:
    fake_world.unfinished = 1
    assert simulate(two).exit_status == 1
    assert simulate(parse_scenario(TWO, ["stop.time=5us"])).exit_status == 0


def test_a_failed_flow_is_status_1_whatever_was_planned(fake_world: type[FakeWorld]) -> None:
    fake_world.failed = 1
    result = simulate(parse_scenario(TWO, ["stop.time=5us"]))
    assert result.exit_status == 1
    flows = result.summary()["transports"]["mrc"]["flows"]
    assert (flows["completed"], flows["failed"], flows["unfinished"]) == (3, 1, 0)
    assert result.transports[0].qp_errors == ["QP 0: retry exceeded"]


def test_where_nothing_completed_the_figures_are_null(
    fake_world: type[FakeWorld], two: Scenario
) -> None:
    fake_world.unfinished = 4
    mrc = simulate(two).summary()["transports"]["mrc"]
    assert set(mrc["flows"]["fct_us"].values()) == {None}
    assert set(mrc["goodput_gbps"].values()) == {None}
    assert mrc["slowdown_p100"] is None


def test_control_c_keeps_what_there_is(fake_world: type[FakeWorld], two: Scenario) -> None:
    fake_world.interrupt = True
    result = simulate(two)
    assert result.partial
    assert result.exit_status == 130
    assert list(result.summary()["transports"]) == ["mrc", "single"]


def test_control_c_before_there_is_anything_is_raised(
    fake_world: type[FakeWorld], two: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("openmrc.run.simulation._compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        simulate(two)


def test_all_is_checked_before_the_first_run(fake_world: type[FakeWorld]) -> None:
    fault = '[[fault]]\nat = "1us"\nkind = "link-down"\nwhere = "plane 9 t0 0 - t1 0"\n'
    with pytest.raises(InputError):
        simulate(parse_scenario(TWO + fault))
    assert fake_world.built == []


def test_peak_memory_is_of_this_program_not_of_its_parent() -> None:
    block = np.ones(60_000_000, np.int8)
    assert peak_rss_mb() > block.nbytes / 1e6
    code = "from openmrc.run.results import peak_rss_mb; print(peak_rss_mb())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert 5 < float(child.stdout) < peak_rss_mb() - block.nbytes / 2e6


def test_every_job_has_flows_and_a_time_of_its_own(fake_world: type[FakeWorld]) -> None:
    job = '[[workload.job]]\nname = "{}"\nkind = "incast"\nn = {}\n'
    text = '[workload]\nkind = "jobs"\n' + job.format("small", 2) + job.format("large", 3)
    run = simulate(parse_scenario(text)).transports[0].summary()
    assert list(run)[-1] == "jobs"
    assert list(run["jobs"]) == ["small", "large"]
    # flow i takes 10 (i + 1) us, and all start at 0
    small, large = run["jobs"].values()
    assert small["flows"]["total"] == small["flows"]["completed"] == 2
    assert small["flows"]["fct_us"]["p100"] == small["time_us"] == 20.0
    assert large["flows"]["fct_us"]["min"] == 30.0
    assert large["flows"]["fct_us"]["p50"] == 40.0
    assert large["flows"]["fct_us"]["p100"] == large["time_us"] == 50.0

    fake_world.built.clear()
    fake_world.failed = 1
    small, large = simulate(parse_scenario(text)).transports[0].summary()["jobs"].values()
    assert small["time_us"] == 20.0
    assert (large["flows"]["failed"], large["flows"]["unfinished"]) == (1, 0)
    assert large["time_us"] is None
    assert large["flows"]["fct_us"]["p100"] == 40.0


def test_without_jobs_there_is_no_word_of_them(fake_world: type[FakeWorld], two: Scenario) -> None:
    assert "jobs" not in simulate(two).transports[0].summary()


def test_a_port_that_comes_back_to_queue_pairs_in_error_does_not_stop_the_clock() -> None:
    """Their timers would be due at once, again and again, and time would stand still."""
    scenario = parse_scenario("""
        transport = [{ name = "impatient", rto_exponent = 5, linear_cnt = 1, exp_cnt = 1 }]
        fabric = { nics = 32, planes = 4, port_rate = "100Gbps", t0_down = 8, t0_up = 4 }
        workload = { kind = "permutation", size = "32MiB", channels = 2 }
        stop = { time = "200us" }

        [[fault]]
        kind = "link-construction"
        where = "plane * t0 * - t1 *"
        at = "0us"
        mtbf = "300us"
        mttr = "60us"
        until = "2ms"
        [[fault]]
        kind = "transceiver-down"
        where = "plane 1 t0 0 transceiver 0"
        at = "15us"
        for = "150us"
        [[fault]]
        kind = "switch-silent"
        where = "plane * t1 *"
        at = "5us"
    """)
    [found] = simulate(scenario).transports
    assert found.now_ps == 200 * US
    assert found.n_failed == 52


@pytest.mark.parametrize(
    ("now_ps", "placed_bytes", "stop", "share"),
    [
        (5, 25, None, 0.25),
        (5, 25, 10, 0.5),
        (2, 25, 10, 0.25),
        (20, 25, 10, 1.0),
        (5, 0, None, 0.0),
    ],
)
def test_the_share_that_is_done_is_what_is_placed_or_the_time_that_is_over(
    now_ps: int, placed_bytes: int, stop: int | None, share: float
) -> None:
    traffic = SimpleNamespace(msg_total_bytes=np.array([60, 40]))
    world: Any = SimpleNamespace(traffic=traffic, bytes_verified=placed_bytes, stop_ps=stop)
    steps: list[Step] = []
    simulation._reporter(steps.append, "mrc", 0, 1, world)(Progress(now_ps, 1, 2, 9, 0.1))
    assert [step.share for step in steps] == [share]
