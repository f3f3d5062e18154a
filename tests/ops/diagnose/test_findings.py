"""`mrc why` of runs that really happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from openmrc.cli.command import main
from openmrc.errors import InputError
from openmrc.ops.diagnose.findings import diagnosed, findings
from openmrc.ops.finding import Window
from openmrc.ops.records import Record, read
from openmrc.ops.why import why
from openmrc.report.result import simulate

WHERE = "plane 1 t0 1 > t1 3"
RUN: dict[str, Any] = {
    "seed": 5,
    "fabric": {"nics": 16, "planes": 2, "t0_down": 4, "port_rate": "100Gbps"},
    "workload": {"kind": "permutation", "size": "8MB"},
    "fault": [{"at": "20us", "kind": "link-down", "where": WHERE, "for": "60us"}],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "cut"
    simulate(RUN, sampled=True).save(directory)
    return directory


@pytest.fixture(scope="module")
def record(results: Path) -> Record:
    (found,) = read(results)
    return found


def test_a_cut_is_named_with_edges_as_ranges(record: Record) -> None:
    (one,) = why(record).findings
    assert (one.where, one.dead, one.one_of, one.times) == (WHERE, True, (), 1)
    assert one.began_us[0] <= 20 <= one.began_us[1]
    assert one.ended_us[0] <= 80 <= (one.ended_us[1] or 1e9)
    assert one.ends == ("plane 1 t0 1 port 7", "plane 1 t1 3 port 1")
    assert one.paths >= one.back > 0


def test_only_what_was_broken_in_the_window_is_told(record: Record) -> None:
    assert len(findings(record, Window(0.0, 50.0, None))) == 1
    assert not findings(record, Window(0.0, 5.0, None))
    assert not findings(record, Window(300.0, 400.0, None))


def test_more_ticks_than_a_run_has_are_refused(record: Record) -> None:
    """A file from somebody else must not ask for all of the memory."""
    assert record.counts is not None
    each = pl.col("from_us") + 1e-6 * (1 + pl.int_range(pl.len()))
    forged = replace(record, counts=record.counts.with_columns(until_us=each))
    with pytest.raises(InputError, match=r"counts\.parquet: its rows begin and end at .* at most"):
        findings(forged, Window(0.0, 1e9, None))


def test_the_order_of_rows_changes_nothing(record: Record) -> None:
    mixed = {
        name: getattr(record, name).sample(fraction=1.0, shuffle=True, seed=3)
        for name in ("account", "counts", "events")
    }
    assert diagnosed(replace(record, **mixed)) == diagnosed(record)


def test_what_is_healthy_has_no_findings(tmp_path: Path) -> None:
    simulate(RUN | {"fault": []}, sampled=True).save(tmp_path / "well")
    (record,) = read(tmp_path / "well")
    answer = why(record)
    assert answer.findings == ()
    assert "Nothing broke" in answer.headline.state


def test_text_json_report_and_page_name_the_same_place(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["why", str(results), "--report", "--page", str(page)]) == 0
    text = capsys.readouterr().out
    assert "lane 1 t0 1 to t1 3 was down from" in text.replace("\n", " ")
    assert WHERE in text
    assert WHERE in page.read_text()
    assert main(["why", str(results), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["transports"]
    assert [it["where"] for it in told["findings"]] == [WHERE]


def test_the_hash_seed_changes_nothing(results: Path) -> None:
    command = [sys.executable, "-m", "openmrc.cli", "why", str(results), "--json"]
    told = {
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
