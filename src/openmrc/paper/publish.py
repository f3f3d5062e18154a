"""From experiments to files: run what is missing, judge, draw, write."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openmrc import version
from openmrc.errors import OutputError
from openmrc.paper.data import Data, runs_to_make
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.page import figure_name, measured, page
from openmrc.paper.verdict import Check
from openmrc.report.directory import check_directory
from openmrc.report.picture import png
from openmrc.sweeps.sweep import run_all

PAGE, RESULTS = "README.md", "results.json"


@dataclass(frozen=True)
class Published:
    """What was written: the page, what was found by experiment, and why there is nothing else."""

    page: Path
    findings: Mapping[str, Finding]
    failures: Mapping[str, str]
    quick: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the object of `results.json`."""
        return {
            "openmrc": version.__version__,
            "quick": self.quick,
            "experiments": {
                name: [_as_dict(check) for check in finding.checks]
                for name, finding in self.findings.items()
            },
            "failures": dict(self.failures),
        }


def run_missing(
    experiments: Sequence[Experiment], runs: Path, quick: bool, workers: int | None
) -> None:
    """Run what of the experiments is not in the data set `runs` yet."""
    check_directory(runs, "--out")
    for keep, missing in runs_to_make([c for e in experiments for c in e.cases], quick).items():
        also = tuple(name for name in keep if name != "flows")
        run_all(missing, runs, workers=workers, flows="flows" in keep, also=also)


def publish(experiments: Sequence[Experiment], out: Path, runs: Path, quick: bool) -> Published:
    """Write the page of all whose runs are there, with figures; the others are named on it."""
    findings: dict[str, Finding] = {}
    failures: dict[str, str] = {}
    for experiment in experiments:
        data = Data(runs, experiment.cases, quick)
        if error := data.error():
            failures[experiment.name] = error
        elif data.tags and data.complete():
            found = experiment.read(data)
            if quick:  # what needs runs that the reduced set does not have
                found = replace(found, checks=[check for check in found.checks if check.values])
            findings[experiment.name] = found
    out.mkdir(parents=True, exist_ok=True)
    published = Published(out / PAGE, findings, failures, quick)
    for experiment in experiments:
        if experiment.name in findings:
            image = png(findings[experiment.name].figure)
            _write(out / figure_name(experiment), image)
    text = page(experiments, findings, failures, quick)
    _write(published.page, text.encode())
    _write(out / RESULTS, (json.dumps(published.as_dict(), indent=1) + "\n").encode())
    return published


def table_of(experiments: Sequence[Experiment], findings: Mapping[str, Finding]) -> None:
    """Print the rows of the table at the top of the page."""
    from openmrc.tabular import Column, print_table

    headings = ("experiment", "figure", "published", "measured", "verdict")
    rows = []
    for experiment in experiments:
        name = experiment.name
        for check in findings[name].checks:
            cells = (check.what, check.published, measured(check), check.verdict.value)
            rows.append([name, *cells])
            name = ""
    columns = [Column(heading, words=True) for heading in headings]
    print_table(None, columns, rows, sys.stdout, keys=2, pipe_width=160)


def _as_dict(check: Check) -> dict[str, Any]:
    bar = check.bar
    return {name: getattr(check, name) for name in ("what", "published", "unit")} | {
        "values": [_finite(value) for value in check.values],
        "bar": None if bar is None else [_finite(bar.low), _finite(bar.high)],
        "verdict": check.verdict.value,
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(f"{value:.6g}") if abs(value) != float("inf") else None


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(path, error) from None
