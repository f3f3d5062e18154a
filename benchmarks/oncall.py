"""Scenarios as an operator on call meets them, and what `mrc why` says of each: oncall.

    .venv/bin/python benchmarks/oncall.py [NAME ...] [--keep DIR] [--json]

Each scenario of `examples/why` runs once (NAME: only those). The faults are cut out of its results,
`mrc why` answers, and only then the answer is compared with the faults. It is right if every place
that broke is named as just that place and nothing else is, if it began to lose when it broke and
stopped when it was repaired, and if what let nothing through is said to, and what lost a part is
not. Of links that are slow and of denied places nothing is lost, so "nothing broke" is right of
them, and of a place that is repaired before a packet meets it (`UNMET`). Of several transports all
answers must be right; one that does not know its paths must name no place.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from blind import HEALTHY, kept
from judge import LATE_US, SLACK_US, across, ports_of

from openmrc.fabric import places
from openmrc.fabric.kinds import Fault
from openmrc.ops.records import Record, read
from openmrc.ops.together import Finding
from openmrc.ops.why import why
from openmrc.scenario.scenario import load_scenario
from openmrc.units import US

SCENARIOS = Path(__file__).resolve().parents[1] / "examples/why"
# Places that broke where and while nothing was sent, so that no endpoint can know.
UNMET = {
    "drained_plane": ("plane 3 t1 2",),
    "over_before_the_job": ("plane 0 t0 1 - t1 5",),
    "tenants_but_healthy": ("plane 1 t1 6",),
    "rolling_upgrade_but_healthy": ("plane 0 t2 4", "plane 0 t2 21", "plane 0 t2 38"),
}


def is_right(record: Record, fault: Fault, finding: Finding) -> bool:
    """Whether a finding is this fault: its place, and the time within what judging takes."""
    fabric = record.fabric
    if finding.one_of or ports_of(fabric, finding.where) != ports_of(fabric, fault.place):
        return False
    over_us = math.inf
    if fault.for_ps is not None or fault.until_ps is not None:
        over_us = (fault.until_ps or fault.at_ps + (fault.for_ps or 0)) / US
    # When the first packet meets it, or is lost by chance, the endpoints alone know.
    first_us = max(fault.at_ps / US, first_loss_us(record, ports_of(fabric, fault.place)))
    in_time = fault.at_ps / US - SLACK_US <= finding.since_us <= first_us + LATE_US
    is_total = fault.rate in (None, 1)
    if finding.until_us > over_us + LATE_US or not in_time:
        return False
    return fault.repeats or finding.dead == is_total


def first_loss_us(record: Record, ports: frozenset[int]) -> float:
    """When a sender first missed a packet that crossed one of these directed ports."""
    times = record.paths["first_us"].to_numpy()[across(record, ports)]
    return float(times.min()) if len(times) else 0.0


def parts(record: Record, fault: Fault, findings: Sequence[Finding]) -> list[Fault]:
    """A fault; or those of the places that it lists, each by itself, unless all are one place."""
    if any(is_right(record, fault, it) for it in findings):
        return [fault]
    return [replace(fault, where=where) for where in places.split(fault.where)]


def ask(name: str, directory: Path | None) -> dict[str, Any]:
    """Run a scenario, unless its results are kept, ask why, and only then compare."""
    scenario = load_scenario(SCENARIOS / f"{name}.toml")
    with kept(scenario, None if directory is None else directory / name) as results:
        records = read(results)
        answers = [why(record) for record in records]
    faults = [one.build() for one in scenario.faults]
    unmet = UNMET.get(name, ())
    harmful = [it for it in faults if it.kind not in HEALTHY and it.place not in unmet]
    unnamed, wrong = [], []
    for transport, record, answer in zip(scenario.transports, records, answers, strict=True):
        known = [each for it in harmful for each in parts(record, it, answer.findings)]
        known = known if knows_its_paths(transport) else []
        right = [[is_right(record, one, it) for it in answer.findings] for one in known]
        unnamed += [one.place for one, each in zip(known, right, strict=True) if not any(each)]
        wrong += [
            it.where
            for number, it in enumerate(answer.findings)
            if not any(each[number] for each in right)
        ]
    return {
        "scenario": name,
        "right": not unnamed and not wrong,
        "broken": [one.place for one in harmful],
        "unnamed": unnamed,
        "wrong": wrong,
        "text": "\n    ".join(answer.text for answer in answers),
    }


def knows_its_paths(transport: Any) -> bool:
    """Whether the endpoints of a transport know which paths lose packets."""
    return transport.kind == "mrc" and transport.paths == "mrc"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="scenarios (default: all)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the results there")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in SCENARIOS.glob("*.toml"))
    rows = []
    for name in names:
        row = ask(name, arguments.keep)
        rows.append(row)
        if not arguments.json:
            print(f"{name}: {'right' if row['right'] else 'WRONG'}; broken: {row['broken']}")
            print(f"    {row['text']}", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{sum(row['right'] for row in rows)} of {len(rows)} right")


if __name__ == "__main__":
    main()
