from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

from openmrc.errors import InputError, OpenMrcError
from openmrc.run.parquet import ROOM_BYTES
from openmrc.scenario.fabric import FABRICS
from openmrc.scenario.fault import FaultSection
from openmrc.scenario.scenario import Scenario, make_scenario
from openmrc.scenario.sections import StopSection
from openmrc.scenario.transports import TRANSPORTS
from openmrc.scenario.workloads import WORKLOADS
from openmrc.sweeps.dataset import SCHEMA, DataSet
from openmrc.sweeps.job import Job, Outcome, job_of, run_job
from openmrc.sweeps.plan import Run, plan

if TYPE_CHECKING:
    from tests.conftest import FakeWorld


@pytest.fixture
def runs(small: Scenario) -> list[Run]:
    return plan(small, {"seed": [1, 2, 3]})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))


def test_a_row_has_every_key_of_the_scenario_and_every_figure(
    fake_world: type[FakeWorld], tmp_path: Path
) -> None:
    fault = {"at": "1us", "kind": "link-loss", "where": "plane 0 t0 0 > t1 0", "rate": 0.25}
    scenario = make_scenario(
        {
            "name": "all",
            "fabric": {"nics": 4, "t0_down": 2, "link_delay": "2us", "queue": "90kB"},
            "transport": [{}, {"name": "slow", "paths": "single", "mpr": 256}],
            "workload": {"kind": "permutation", "size": "1kB"},
            "fault": [fault],
        }
    )
    (run,) = plan(scenario, {"seed": [7]})
    data = DataSet(tmp_path / "a[1]", flows=False)  # a name, and no pattern
    data.write(run, run_job(job_of(run, flows=False)))

    table = data.read([run])
    first, second = table.to_dicts()
    assert table.columns == list(SCHEMA)
    assert (first["run"], first["name"], first["seed"], first["error"]) == (run.key, "all", 7, None)
    keys = ("transport", "transport.paths", "transport.mpr")
    assert [first[key] for key in keys] == ["mrc", "mrc", None]
    assert [second[key] for key in keys] == ["slow", "single", 256]
    assert (first["fabric.kind"], first["fabric.tiers"]) == ("multiplane", None)
    assert (first["fabric.link_delay"], first["fabric.queue"]) == (2_000_000, 90_000)
    assert (first["workload.kind"], first["workload.size"]) == ("permutation", 1000)
    (said,) = first["fault"]
    assert {key: value for key, value in said.items() if value is not None} == (
        fault | {"at": 1_000_000}
    )
    assert said["for"] is None
    assert (first["flows.fct_us.p100"], second["flows.fct_us.p100"]) == (40.0, 120.0)
    assert (first["packets.trimmed"], second["packets.trimmed"]) == (1, 2)
    assert (first["goodput_gbps.total"], first["link_traversals_per_s"]) == (0.8, 8000)


def test_there_is_a_column_for_every_key_of_every_kind() -> None:
    sections: dict[str, list[type[msgspec.Struct]]] = {
        "fabric": [*FABRICS.values()],
        "workload": [*WORKLOADS.values()],
        "transport": [*TRANSPORTS.values()],
        "stop": [StopSection],
    }
    keys = {
        f"{place}.{field.encode_name}"
        for place, structs in sections.items()
        for struct in structs
        for field in msgspec.structs.fields(struct)
    }
    assert keys - set(SCHEMA) == {"transport.name"}  # that is the column `transport`
    faults = {field.encode_name for field in msgspec.structs.fields(FaultSection)}
    assert {field.name for field in SCHEMA["fault"].inner.fields} == faults


def test_kinds_that_share_a_key_share_its_type() -> None:
    """Else one column could not hold both."""
    from openmrc.sweeps.rows import _types

    for sections in (FABRICS, WORKLOADS):
        found: dict[str, type] = {}
        for section in sections.values():
            for key, kind in _types("", [section]).items():
                assert found.setdefault(key, kind) is kind, (section.kind, key)


def test_a_run_is_here_once_it_is_written_whole(
    fake_world: type[FakeWorld], runs: list[Run], tmp_path: Path
) -> None:
    data = DataSet(tmp_path / "a/b", flows=True)
    assert not data.has(runs[0])
    data.write(runs[0], run_job(job_of(runs[0], flows=True)))
    key = runs[0].key
    assert names(tmp_path / "a/b") == [f"flows/{key}.parquet", f"runs/{key}.parquet"]
    assert [data.has(run) for run in runs] == [True, False, False]
    flows = pl.read_parquet(tmp_path / "a/b/flows")
    assert flows.select("run", "transport", "fct_us").rows() == [(key, "mrc", 10.0)]
    (tmp_path / f"a/b/flows/{key}.parquet").unlink()
    assert not data.has(runs[0])  # with its flows
    assert DataSet(tmp_path / "a/b", flows=False).has(runs[0])


def test_a_failure_is_a_row_until_the_run_succeeds(
    fake_world: type[FakeWorld], runs: list[Run], tmp_path: Path
) -> None:
    data = DataSet(tmp_path, flows=False)
    data.write(runs[1], Outcome(error="no memory"))
    assert names(tmp_path) == [f"runs/{runs[1].key}.failed.parquet"]
    assert not data.has(runs[1])
    data.write(runs[0], run_job(job_of(runs[0], flows=False)))
    table = data.read(runs)
    assert table.select("seed", "transport", "error", "flows.completed").rows() == [
        (1, "mrc", None, 1),
        (2, None, "no memory", None),
    ]
    assert pl.read_parquet(tmp_path / "runs").height == 2  # as anybody would read it
    data.write(runs[1], run_job(job_of(runs[1], flows=False)))
    assert data.read(runs)["error"].to_list() == [None, None]
    assert pl.read_parquet(tmp_path / "runs").height == 2


def test_a_full_disk_leaves_no_half_part(
    fake_world: type[FakeWorld], runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        path.touch()
        raise OSError(28, "No space left on device")

    outcome = run_job(job_of(runs[0], flows=False))
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        OpenMrcError, match=r"parquet: cannot be written \(No space left on device\); "
    ):
        DataSet(tmp_path, flows=False).write(runs[0], outcome)
    assert names(tmp_path) == []


@pytest.mark.parametrize("how", ["fifo", "endless", "noise", "cut", "column", "type", "bomb"])
def test_what_is_no_part_of_a_data_set_is_refused_by_its_name(
    how: str, fake_world: type[FakeWorld], runs: list[Run], tmp_path: Path
) -> None:
    data = DataSet(tmp_path, flows=True)
    for run in runs[:2]:
        data.write(run, run_job(job_of(run, flows=True)))
    part = tmp_path / f"runs/{runs[1].key}.parquet"
    frame, content = pl.read_parquet(part), part.read_bytes()
    flows = tmp_path / f"flows/{runs[1].key}.parquet"
    for file in (part, flows):
        file.unlink()
    if how == "fifo":
        os.mkfifo(part)
        os.mkfifo(flows)
    elif how == "endless":
        part.symlink_to("/dev/zero")
        flows.symlink_to("/dev/zero")
    elif how in ("noise", "cut"):
        part.write_bytes(bytes(range(256)) if how == "noise" else content[:-9])
        flows.write_bytes(part.read_bytes())
    else:
        bomb = pl.col("transport").str.pad_end(ROOM_BYTES + 2**20, "x")
        changed = {"column": pl.exclude("seed"), "type": pl.col("seed").cast(pl.String)}
        chosen = frame.with_columns(bomb) if how == "bomb" else frame.select(changed[how])
        chosen.write_parquet(part)
        chosen.write_parquet(flows)
    again = DataSet(tmp_path, flows=True)
    with pytest.raises(InputError, match=part.name):
        again.read(runs)
    if how not in ("column", "type"):  # of any columns
        with pytest.raises(InputError, match=flows.name):
            again.table(runs[1], "flows")


def test_what_goes_wrong_in_a_run_is_its_outcome(
    fake_world: type[FakeWorld], runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(runs[0], flows=False)
    assert run_job(job).error == ""
    other = Job(job.key, job.toml, job.source, "0123", flows=False)
    assert run_job(other).error == f"the code here is {job.code}, not 0123; install the same"
    wrong = Job(job.key, job.toml.replace('dst = "auto"', "dst = 9"), "x.toml", job.code, False)
    assert run_job(wrong).error.startswith("x.toml: workload.dst: nic 9 does not exist; ")

    def broken(self: object, progress: object = None) -> None:
        raise MemoryError("Unable to allocate\n9 GiB")

    monkeypatch.setattr(fake_world, "run", broken)
    error = run_job(job).error
    assert error.startswith("MemoryError: Unable to allocate 9 GiB (at test_dataset.py:")
