"""What `mrc why` reads from a results directory."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from openmrc.errors import InputError
from openmrc.ops.records import read
from openmrc.report.result import simulate
from openmrc.run.ports import COUNTED
from openmrc.scenario.scenario import parse_scenario

SMALL = """
[fabric]
nics = 4
trim = {trim}
[workload]
kind = "incast"
n = 3
size = "1MB"
[[transport]]
trim_nack = {trim_nack}
"""


@pytest.mark.parametrize(
    ("trim", "trim_nack", "trims"),
    [
        ("true", "true", True),
        ("false", "true", False),
        ("true", "false", False),  # what no receiver would tell is not trimmed
    ],
)
def test_what_full_queues_cost_is_told_by_trimmed_packets_or_counted_by_switches(
    tmp_path: Path, trim: str, trim_nack: str, trims: bool
) -> None:
    scenario = parse_scenario(SMALL.format(trim=trim, trim_nack=trim_nack))
    result = simulate(scenario, sampled=True)
    result.save(tmp_path / "out")
    (record,) = read(tmp_path / "out")
    assert record.trims == trims
    counted = result.counts["trimmed_here" if trims else "dropped"].sum()
    other = result.counts["dropped" if trims else "trimmed_here"].sum()
    assert (counted > 0, other) == (True, 0)


@pytest.mark.parametrize("column", COUNTED)
def test_results_without_a_counter_of_ports_must_be_made_again(tmp_path: Path, column: str) -> None:
    scenario = parse_scenario(SMALL.format(trim="true", trim_nack="true"))
    simulate(scenario, sampled=True).save(tmp_path)
    counts = pl.read_parquet(tmp_path / "counts.parquet").drop(column)
    counts.write_parquet(tmp_path / "counts.parquet")
    with pytest.raises(InputError, match=f"has no column {column}; run it again"):
        read(tmp_path)


def test_results_of_an_older_version_must_be_made_again(tmp_path: Path) -> None:
    simulate(parse_scenario(SMALL.format(trim="true", trim_nack="true")), sampled=True).save(
        tmp_path
    )
    (tmp_path / "account.parquet").unlink()
    with pytest.raises(InputError, match=r"no account\.parquet, an older openmrc wrote it; run it"):
        read(tmp_path)
