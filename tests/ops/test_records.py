"""What `mrc why` reads from a results directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmrc.ops.records import read
from openmrc.report.result import simulate
from openmrc.scenario.scenario import parse_scenario

SMALL = """
[fabric]
nics = 4
trim = {trim}
[workload]
kind = "permutation"
size = "64kB"
[[transport]]
trim_nack = {trim_nack}
"""


@pytest.mark.parametrize(
    ("trim", "trim_nack", "trims", "counted"),
    [
        ("true", "true", True, True),
        ("false", "true", False, True),  # switches count what they drop
        ("true", "false", False, False),  # and not what they trim, of which no sender hears
    ],
)
def test_what_full_queues_cost_is_told_by_trimmed_packets_or_counted_by_switches(
    tmp_path: Path, trim: str, trim_nack: str, trims: bool, counted: bool
) -> None:
    scenario = parse_scenario(SMALL.format(trim=trim, trim_nack=trim_nack))
    simulate(scenario, sampled=True).save(tmp_path / "out")
    (record,) = read(tmp_path / "out")
    assert (record.trims, record.counted) == (trims, counted)
