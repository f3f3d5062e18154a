"""The figures of a training job, by hand; and a job that is run, and dies."""

from __future__ import annotations

import json
import re
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from openmrc.report.files import write_results
from openmrc.report.steps import row, sentences
from openmrc.report.table import sentences as table_sentences
from openmrc.run.results import EXIT_UNFINISHED
from openmrc.run.simulation import simulate
from openmrc.run.tables import FIGURES, figure_table, step_table
from openmrc.run.training import Restarts, TrainingResult
from openmrc.scenario.scenario import load_scenario, parse_scenario
from openmrc.units import MS, US, S

ROOT = Path(__file__).resolve().parents[2]
RESTARTS = Restarts(1800 * S, 0, 600 * S, 24.0)


def job(
    died_ps: int | None = None, restarts: Restarts = RESTARTS, ended: int = 3
) -> TrainingResult:
    """Three steps of two ranks; compute is 10 ms of each, a perfect network makes it 12."""
    ends = np.array([[15, 16], [27, 26], [40, 39]]) * MS
    ends[ended:] = -1
    return TrainingResult(
        ends_ps=ends,
        compute_ends_ps=np.array([10, 20, 30]) * MS,
        network_ends_ps=np.array([12, 24, 36]) * MS,
        busy_ps=np.array([16, 16, 16]) * MS,
        died_ps=died_ps,
        restarts=restarts,
    )


def test_a_step_ends_with_its_last_rank() -> None:
    figures = job().summary()
    assert figures["steps"] == {"total": 3, "completed": 3}
    assert figures["ranks"] == 2
    assert {k: figures["step_us"][k] for k in ("min", "p50", "p100", "mean")} == {
        "min": 11_000,
        "p50": 13_000,
        "p100": 16_000,
        "mean": pytest.approx(13_333.333333),
    }
    assert figures["ideal_step_us"] == {"compute": 10_000, "network": 12_000}
    assert figures["lost_to_network"] == 0.25  # 30 of 40 ms are compute, or waiting for it
    assert figures["gpu_busy"] == 0.6  # 48 of 2 x 40 ms
    assert (figures["died"], figures["died_in_step"], figures["lost_s"]) == (False, None, None)


def test_a_job_that_died_has_the_steps_that_it_completed() -> None:
    figures = job(died_ps=31 * MS, ended=2).summary()
    assert figures["steps"] == {"total": 3, "completed": 2}
    assert figures["step_us"]["p100"] == 16_000
    assert (figures["died"], figures["died_in_step"], figures["died_us"]) == (True, 3, 31_000)
    assert figures["lost_s"] == 600.031
    early = job(died_ps=3 * MS, ended=0).summary()
    assert (early["died_in_step"], early["lost_to_network"], early["gpu_busy"]) == (1, None, None)
    assert early["step_us"]["p50"] is None
    assert early["a_day"]["goodput"] is None


def test_work_since_the_last_checkpoint_is_lost() -> None:
    often = Restarts(10 * MS, 0, 2 * MS, None)
    assert [often.lost_ps(ps * MS) for ps in (3, 10, 37)] == [5 * MS, 2 * MS, 9 * MS]


def test_what_counts_of_a_day_is_daly_s_formula() -> None:
    # A death an hour, checkpoints every half hour of work, ten minutes to start again.
    expected = 0.5 / (exp(1 / 6) * (exp(0.5) - 1))
    assert RESTARTS.useful(24.0) == pytest.approx(expected)
    assert job(died_ps=31 * MS).summary()["a_day"] == {
        "faults": 24.0,
        "deaths": 24.0,
        "useful": round(expected, 6),
        "goodput": round(0.75 * expected, 6),
    }
    assert job().summary()["a_day"] == {
        "faults": 24.0,
        "deaths": 0.0,
        "useful": 1.0,
        "goodput": 0.75,
    }


def test_without_deaths_only_writing_checkpoints_costs() -> None:
    writes = Restarts(1800 * S, 200 * S, 600 * S, 1.0)
    assert writes.useful(0.0) == 0.9
    assert writes.useful(1e-9) == pytest.approx(0.9)
    assert 0 < writes.useful(10.0) < writes.useful(1.0) < 0.9
    assert writes.useful(1e6) == 0.0  # 12 deaths a second: e^27,000 is no number
    unknown = Restarts(1800 * S, 0, 600 * S, None)
    assert set(job(restarts=unknown).summary()["a_day"].values()) == {None}


@pytest.mark.parametrize("died_ps", [None, 31 * MS])
def test_losing_a_share_of_time_is_first_half_an_interval_and_a_restart(
    died_ps: int | None,
) -> None:
    """For few deaths the formula is 1 - deaths x (checkpoint / 2 + restart)."""
    few = Restarts(1800 * S, 0, 600 * S, 0.1)
    useful = job(died_ps, few).summary()["a_day"]["useful"]
    first = 1 - (0.1 * (900 + 600) / 86_400 if died_ps else 0)
    assert useful == pytest.approx(first, abs=1e-5)


def test_the_row_of_a_transport() -> None:
    assert row("mrc", job()) == [
        "mrc", "3 of 3", "13.000", "16.000", "10.000", "12.000", "25.0", "60.0", "no",
    ]  # fmt: skip
    assert row("x", job(died_ps=3 * MS, ended=0)) == [
        "x", "0 of 3", "-", "-", "10.000", "12.000", "-", "-", "in step 1",
    ]  # fmt: skip


TEXT = """
name = "dies"
[fabric]
nics = 8
planes = 2
t0_down = 4
[workload]
kind = "training"
tp = 2
pp = 2
layers = 2
microbatches = 2
steps = 3
forward = "20us"
tp_size = "64kB"
pp_size = "32kB"
dp_size = "100kB"
bucket = "150kB"
faults_per_day = 2.5
[[transport]]
rto_exponent = 0
linear_cnt = 2
exp_cnt = 1
[[transport]]
name = "patient"
[[fault]]
at = "500us"
kind = "port-down"
where = "nic 5 plane *"
for = "700us"
"""


def test_a_job_that_is_cut_off_dies_or_waits(tmp_path: Path) -> None:
    result = simulate(parse_scenario(TEXT))
    dead, alive = result.transports
    assert dead.training is not None
    assert alive.training is not None
    assert dead.died
    assert not alive.died
    assert result.exit_status == EXIT_UNFINISHED
    assert alive.training.completed == 3
    step = dead.training.died_in_step
    assert step is not None
    assert dead.training.completed == step - 1
    assert 500 < dead.summary()["training"]["died_us"] < 1200
    assert dead.now_ps == dead.training.died_ps
    # the cut lasts 0.7 ms, and whoever lives through it has a step that is so much longer
    steps = np.sort(alive.training.step_ps)
    assert steps[-1] - steps[0] > 500 * US
    assert steps[0] >= np.diff(alive.training.network_ends_ps, prepend=0).min()
    assert not [line for line in table_sentences(result) if "UNFINISHED" in line]
    said = " ".join(sentences(dead))
    assert f"DIED: the job of mrc ended in step {step} of 3, after" in said
    assert "with the faults of 2.5 such runs a day the job dies 2.5 times a day" in said
    table = result.steps
    assert table.filter(pl.col("transport") == "patient")["end_us"].null_count() == 0
    assert table.filter(pl.col("transport") == "mrc")["end_us"].null_count() == 4 - step
    write_results(result, tmp_path)
    assert pl.read_parquet(tmp_path / "steps.parquet").equals(table)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["transports"]["mrc"]["training"] == dead.training.summary()
    page = (tmp_path / "report.html").read_text()
    assert f'<td data-label="job died">in step {step}</td>' in page
    figures = figure_table(dead)
    assert figures.columns == ["transport", *FIGURES]
    assert figures["training.died_in_step"].to_list() == [step]


def test_a_job_over_roce_dies_with_its_last_timer_or_waits_for_one() -> None:
    head = TEXT[: TEXT.index("[[transport]]")]
    faults = TEXT[TEXT.index("[[fault]]") :]
    two = [
        f'[[transport]]\nkind = "roce"\nname = "{name}"\nqps = 2\nrto = "{rto}"\n'
        'retry_cnt = 3\nconvergence = "instant"\n'
        for name, rto in (("dead", "100us"), ("alive", "400us"))
    ]
    dead, alive = simulate(parse_scenario("\n".join([head, *two, faults]))).transports
    assert dead.training is not None
    assert alive.training is not None
    # the fourth timer ends it: 0.4 ms after the last packet before the cut, or the first into it
    assert dead.died
    assert dead.training.died_ps is not None
    assert 800 * US < dead.training.died_ps < 1200 * US
    assert dead.training.died_ps == dead.now_ps
    assert "retry counter exceeded" in dead.qp_errors[0]
    # the second of 0.4 ms is after the repair, at 1.2 ms, and what is left of its step follows it
    assert not alive.died
    assert alive.training.completed == 3
    ends = np.cumsum(alive.training.step_ps)
    stalled = int(np.argmax(alive.training.step_ps))
    assert 1200 * US < ends[stalled] < (500 + 2 * 400 + 300) * US
    assert (np.delete(alive.training.step_ps, stalled) < 350 * US).all()
    assert alive.bytes_verified == alive.flows["bytes"].sum()


def test_another_workload_has_no_steps() -> None:
    text = '[fabric]\nnics = 4\nt0_down = 2\n[workload]\nkind = "permutation"\nsize = "10kB"'
    result = simulate(parse_scenario(text))
    (run,) = result.transports
    assert "training" not in run.summary()
    assert step_table(run).height == result.steps.height == 0
    assert not [name for name in result.figures.columns if name.startswith("training")]


def test_sizes_come_from_the_model_where_they_are_not_stated() -> None:
    scenario = parse_scenario(TEXT).replace({"workload.ep": 2, "workload.pp": 1})
    section: Any = scenario.workload
    sizes = section.sizes(section.groups(8))
    assert (sizes.tp, sizes.pp, sizes.dp) == (64_000, 32_000, 100_000)
    assert sizes.ep == 1024 * 1 * 1024 * 2 * 2 // 2
    assert sizes.expert == 8 * 1024**2 * 4 * 8 // (2 * 2)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "workload.dp",
            3,
            "scenario: workload.dp: tp 2 x ep 1 x pp 2 x dp 3 = 12, but there are 8 ranks; the"
            " sizes must multiply to them",
        ),
        ("workload.ranks", 16, "scenario: workload.ranks: 16 ranks on 8 NICs; at most 8"),
        (
            "workload.checkpoint",
            "0s",
            "replace: workload.checkpoint: 0 between two checkpoints; write the time that is",
        ),
        (
            "workload.tp_collective",
            "ring",
            "replace: workload.tp_collective: 'ring' is refused; accepted: all-reduce,"
            " reduce-scatter",
        ),
    ],
)
def test_bad_keys_are_refused_with_their_place(key: str, value: object, message: str) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011
        parse_scenario(TEXT).replace({key: value}).build()
    assert str(refused.value) == message


def test_what_is_written_out_loads_as_equal() -> None:
    scenario = load_scenario(ROOT / "examples/training.toml")
    assert parse_scenario(scenario.to_toml(), base=ROOT) == scenario


def test_the_scenario_of_the_page_can_be_built() -> None:
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    _, traffic, _ = parse_scenario(text).build()
    assert traffic.step_ends is not None
    assert traffic.step_ends.shape == (3, 16)


def test_every_figure_and_column_is_on_the_page() -> None:
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    names = [name.removeprefix("training.") for name in FIGURES if name.startswith("training.")]
    said = {name.partition(".")[0] if "." in name else name for name in names} - {"ranks"}
    assert [name for name in said if f"`{name}" not in page] == []
    text = '[fabric]\nnics = 4\nt0_down = 2\n[workload]\nkind = "permutation"\nsize = "10kB"'
    columns = simulate(parse_scenario(text)).steps.columns
    assert [name for name in columns if f"`{name}`" not in page and name != "transport"] == []
