"""Results directories as they are read: of one run, and checked, whoever wrote them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.ops import records
from openmrc.ops.harm import ranked
from openmrc.ops.mapper.page.data import of_run
from openmrc.ops.why import why
from openmrc.report import compare
from openmrc.report.files import write_results
from openmrc.report.result import Result, simulate
from openmrc.run.columns import TABLES, read_table
from openmrc.run.parquet import ROOM_BYTES, ROWS_MAX
from openmrc.run.saved import FILES, IDENTITY
from openmrc.scenario.scenario import make_scenario

LOSSY = {"at": "1us", "kind": "link-loss", "where": "nic 1 plane 0", "rate": 0.5}
FABRIC = {"nics": 4, "planes": 2, "t0_down": 2, "port_rate": "100Gbps"}
TRAINS = {"kind": "training", "tp": 1, "pp": 1, "ep": 1, "layers": 1, "microbatches": 1, "steps": 2}


def run(**changes: Any) -> Result:
    tables = {
        "fabric": FABRIC,
        "workload": {"kind": "permutation", "size": "200kB"},
        "fault": [LOSSY],
        **changes,
    }
    return simulate(make_scenario(tables), sampled=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with every table that is read, none of them empty."""
    found = run(workload=TRAINS | {"dp_size": "200kB", "bucket": "100kB"})
    folder = tmp_path_factory.mktemp("trained") / "out"
    found.save(folder)
    assert all(len(pl.read_parquet(folder / f"{name}.parquet")) for name in TABLES)
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "copy")


def read(folder: Path) -> None:
    """All that reads results."""
    found = records.read(folder)
    for record in found:
        ranked(record, why(record))
        if record.steps is not None:
            why(record, step=2)
    of_run(folder, found[0])
    saved = [compare.read_saved(str(folder))] * 2
    compare.html(saved)


def rewrite(file: Path, table: pl.DataFrame) -> None:
    table.write_parquet(file, metadata={IDENTITY: pl.read_parquet_metadata(file)[IDENTITY]})


# --- of one run


def test_a_run_has_the_identity_of_what_came_out(trained: Path) -> None:
    first, again, other = run(), run(), run(seed=2)
    assert first.identity == again.identity != other.identity
    assert replace(first, partial=True).identity != first.identity
    assert replace(first, wall_s=9.0).identity == first.identity
    assert first.summary()["run"] == first.identity


def test_every_file_says_of_which_run_it_is(trained: Path) -> None:
    identity = json.loads((trained / "summary.json").read_text())["run"]
    assert (trained / "scenario.toml").read_text().startswith(f"# run {identity}\n")
    page = (trained / "report.html").read_text()
    assert f'<meta name="openmrc-run" content="{identity}">' in page
    for file in trained.glob("*.parquet"):
        assert pl.read_parquet_metadata(file)[IDENTITY] == identity


def test_a_run_leaves_no_table_of_an_earlier_one_and_all_else(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    (copy / "goodput.png").write_bytes(b"of the demo")
    (copy / "table.parquet").write_bytes(b"mine")
    simulate(make_scenario({"fabric": FABRIC, "workload": {"kind": "permutation"}})).save(copy)
    assert sorted(path.name for path in copy.iterdir()) == [
        "flows.parquet", "notes.txt", "report.html", "scenario.toml", "summary.json",
        "table.parquet", "timeline.parquet",
    ]  # fmt: skip
    with pytest.raises(InputError, match="--step: the run has no steps"):
        why(records.read(copy)[0], step=2)


def test_the_name_of_a_directory_is_no_pattern(trained: Path, tmp_path: Path) -> None:
    read(Path(shutil.copytree(trained, tmp_path / "r[1]")))


@pytest.mark.parametrize("after", range(len(FILES)))
def test_an_interruption_while_files_are_replaced_leaves_no_mixture(
    after: int, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[Path] = []

    def move(self: Path, target: Path) -> Path:
        if len(moved) == after:
            raise KeyboardInterrupt
        moved.append(target)
        os.replace(self, target)
        return target

    result = run()
    monkeypatch.setattr(Path, "replace", move)
    try:
        write_results(result, copy)
    except KeyboardInterrupt:
        with pytest.raises(InputError, match=r"has no summary\.json"):
            read(copy)
    else:
        read(copy)


@pytest.mark.parametrize("name", [f"{name}.parquet" for name in ("timeline", *TABLES)])
def test_a_table_of_another_run_is_named(name: str, copy: Path, tmp_path: Path) -> None:
    run(seed=2, workload=TRAINS).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, copy)
    with pytest.raises(InputError, match=rf"copy/{name}: is of run \w+, summary.json is of run"):
        records.read(copy)


def test_a_scenario_and_a_summary_of_another_run_are_named(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    run(seed=2).save(other)
    shutil.copy(other / "scenario.toml", copy)
    for reader in (records.read, lambda folder: compare.read_saved(str(folder))):
        with pytest.raises(InputError, match=r"copy/scenario\.toml: is of run \w+, summary\.json"):
            reader(copy)
    shutil.copy(copy / "summary.json", other)
    with pytest.raises(InputError, match="is of run"):
        records.read(other)


def test_a_table_that_names_no_run_is_refused_and_so_are_older_results(copy: Path) -> None:
    table = pl.read_parquet(copy / "paths.parquet")
    table.write_parquet(copy / "paths.parquet")
    with pytest.raises(InputError, match=r"paths\.parquet: does not say of which run it is"):
        read(copy)
    summary = json.loads((copy / "summary.json").read_text())
    del summary["run"]
    (copy / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(InputError, match=r"an older openmrc wrote it; run it again \(mrc run"):
        read(copy)


def test_a_time_after_the_end_is_refused(trained: Path) -> None:
    (record,) = records.read(trained)
    why(record, since_us=record.end_us)
    with pytest.raises(InputError, match=r"--since 10s: mrc ended after .*; name an earlier time"):
        why(record, since_us=1e7)


# --- checked


def test_the_columns_are_those_that_a_run_writes(trained: Path) -> None:
    for name, columns in TABLES.items():
        assert list(columns) == pl.read_parquet(trained / f"{name}.parquet").columns
    read(trained)


@pytest.mark.parametrize(
    ("table", "column", "value", "accepted"),
    [
        ("paths", "src", -1, "0 to 3"),
        ("paths", "src", 4, "0 to 3"),
        ("paths", "dst", 2**40, "0 to 3"),
        ("paths", "ev", 2**32, "0 to 4294967295"),
        ("paths", "lost", -1, "0 to"),
        ("paths", "first_us", float("nan"), "0 to"),
        ("paths", "last_us", -1.0, "0 to"),
        ("paths", "until_us", 0.0, "more than from_us"),
        ("events", "dst", 4, "0 to 3"),
        ("events", "event", "\x1b[2J", "avoided, congested"),
        ("events", "t_us", float("inf"), "0 to"),
        ("counts", "port", 10**6, "0 to"),
        ("counts", "packets", None, "0 to"),
        ("flows", "transport", "nobody", "mrc"),
        ("flows", "done_us", 1e300, "from start_us"),
        ("steps", "step", 0, "1 to"),
    ],
)
def test_a_value_that_no_run_writes_is_refused_with_its_row_and_column(
    table: str, column: str, value: Any, accepted: str, copy: Path
) -> None:
    file = copy / f"{table}.parquet"
    frame = pl.read_parquet(file)
    row = len(frame) // 2
    there = pl.lit(value, dtype=None if isinstance(value, int) else frame.schema[column])
    at = pl.int_range(pl.len()) == row
    rewrite(file, frame.with_columns(pl.when(at).then(there).otherwise(column).alias(column)))
    with pytest.raises(InputError) as told:
        read(copy)
    place = f"copy/{table}.parquet: row {row + 1}, column {column}: "
    assert place in str(told.value)
    assert f"accepted: {accepted}" in str(told.value)
    assert str(told.value).isprintable()


def test_a_path_that_the_fabric_does_not_have_is_refused(copy: Path) -> None:
    frame = pl.read_parquet(copy / "paths.parquet")
    rewrite(copy / "paths.parquet", frame.with_columns(ev=pl.lit(2**32 - 1), dst="src"))
    with pytest.raises(InputError, match=r"row 1, column ev: 4294967295; accepted: the EV of a"):
        read(copy)


def test_rows_that_are_missing_are_missed(copy: Path) -> None:
    rewrite(copy / "flows.parquet", pl.read_parquet(copy / "flows.parquet")[:-1])
    with pytest.raises(InputError, match=r"flows\.parquet: \d+ rows of mrc, summary\.json says"):
        read(copy)


def test_a_small_file_of_countless_rows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "steps.parquet"
    columns = {"step": TABLES["steps"]["step"]}
    ones = pl.select(step=pl.repeat(1, ROWS_MAX + 1, dtype=pl.Int64))
    ones.write_parquet(file)
    assert file.stat().st_size < 2**20
    with pytest.raises(InputError, match="16,777,217 rows; at most 16,777,216"):
        read_table(file, columns, {})


def damage(folder: Path, how: str) -> None:
    file = folder / how.partition(" ")[0]
    match how.partition(" ")[2]:
        case "deep":
            file.write_text("[" * 200_000)
        case "deep table":
            file.write_text(f"a{'.a' * 2_000} = 1")
        case "long number":
            file.write_text("a" + "=:"[file.suffix == ".json"] + "9" * 5000)
        case "NaN":
            file.write_text(file.read_text().replace('"wall_s": ', '"wall_s": NaN, "x": '))
        case "text":
            file.write_text(file.read_text().replace('"p99": ', '"p99": "<x>", "x": '))
        case "list":
            file.write_text("[]")
        case "latin":
            file.write_bytes(b"\xff\xfe")
        case "fifo":
            file.unlink()
            os.mkfifo(file)
        case "endless":
            file.unlink()
            file.symlink_to("/dev/zero")
        case "directory":
            file.unlink()
            file.mkdir()
        case "noise":
            file.write_bytes(os.urandom(2000))
        case "missing":
            file.unlink()
        case "column":
            frame = pl.read_parquet(file)
            rewrite(file, frame.drop(frame.columns[-1]))
        case "bomb":  # of some kB
            frame = pl.read_parquet(file)
            column = pl.col(pl.String).first()
            rewrite(file, frame.with_columns(column.str.pad_end(ROOM_BYTES // 8, "x")))
        case "type":
            frame = pl.read_parquet(file)
            rewrite(file, frame.cast(dict.fromkeys(frame.columns[1:4], pl.Date), strict=False))


TEXTS = ["deep", "long number", "latin", "fifo", "endless", "directory", "missing"]
DAMAGES = [
    *(f"summary.json {how}" for how in [*TEXTS, "NaN", "text", "list"]),
    *(f"scenario.toml {how}" for how in [*TEXTS, "deep table"]),
    *(
        f"{name}.parquet {how}"
        for name in TABLES
        for how in ("fifo", "endless", "directory", "noise", "missing", "column", "bomb")
    ),
]


@pytest.mark.parametrize("how", DAMAGES)
def test_what_is_no_file_of_a_run_is_refused_by_its_name(how: str, copy: Path) -> None:
    damage(copy, how)
    with pytest.raises(InputError) as told:
        read(copy)
    assert how.partition(" ")[0] in str(told.value)


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 70),
    st.floats(),
    st.floats(0, 1e4),
    st.text(max_size=8),
    st.booleans(),
)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_one_changed_value_is_refused_or_read(trained: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TABLES)))
    original = pl.read_parquet(trained / f"{name}.parquet")
    column = data.draw(st.sampled_from(original.columns))
    row = data.draw(st.integers(0, len(original) - 1))
    values = original[column].to_list()
    values[row] = data.draw(VALUES)
    try:
        changed = pl.Series(column, values, strict=True)
    except (TypeError, pl.exceptions.PolarsError):  # a column cannot hold it
        changed = original[column].cast(pl.String)
    table = original.with_columns(changed)[data.draw(st.sampled_from([0, row])) :]
    check(trained, lambda folder: rewrite(folder / f"{name}.parquet", table))


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_one_changed_byte_is_refused_or_read(trained: Path, data: st.DataObject) -> None:
    names = [*(f"{table}.parquet" for table in TABLES), "summary.json", "scenario.toml"]
    name = data.draw(st.sampled_from(names))
    content = bytearray((trained / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    check(trained, lambda folder: (folder / name).write_bytes(content))


def check(trained: Path, change: Callable[[Path], Any]) -> None:
    folder = trained.with_name("changed")
    shutil.copytree(trained, folder, dirs_exist_ok=True)
    change(folder)
    try:
        for record in records.read(folder):
            why(record)
        compare.html([compare.read_saved(str(folder))] * 2)
    except InputError as error:
        said = str(error)
    else:
        return
    assert str(folder) in said
