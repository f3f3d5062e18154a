"""From experiments to files: runs what is missing, judges, draws, writes.

The page is accompanied by its sources: `results.json`, the rows of the tables, and `figures.json`,
the content of each figure. So an experiment that is not run again keeps its part of the page, and a
figure can be drawn again without a run.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openmrc import version
from openmrc.errors import InputError, OutputError
from openmrc.paper.data import Data, runs_to_make
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.page import figure_name, measured, page
from openmrc.paper.verdict import Bar, Check, Verdict
from openmrc.report.directory import check_directory
from openmrc.report.picture import png, svg
from openmrc.sweeps.plan import code_hash
from openmrc.sweeps.sweep import run_all

PAGE, RESULTS, FIGURES = "README.md", "results.json", "figures.json"


@dataclass(frozen=True)
class Published:
    """What was written: the page, the findings by experiment, and why others are missing."""

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
    """Run those of the experiments that are not in the data set `runs` yet."""
    check_directory(runs, "--out")
    for keep, missing in runs_to_make([c for e in experiments for c in e.cases], quick).items():
        also = tuple(name for name in keep if name != "flows")
        run_all(missing, runs, workers=workers, flows="flows" in keep, also=also)


def publish(experiments: Sequence[Experiment], out: Path, runs: Path, quick: bool) -> Published:
    """Write the page, with figures, of all experiments whose runs exist, or did when it was last
    written; the others are named on it.
    """
    kept = kept_in(out, quick)
    findings: dict[str, Finding] = {}
    failures: dict[str, str] = {}
    for experiment in experiments:
        data = Data(runs, experiment.cases, quick)
        if error := data.error():
            failures[experiment.name] = error
        elif data.tags and data.complete():
            found = experiment.read(data)
            if quick:  # an experiment needs runs that the reduced set lacks
                found = replace(found, checks=[check for check in found.checks if check.values])
            findings[experiment.name] = replace(found, code=code_hash())
        elif experiment.name in kept:
            findings[experiment.name] = kept[experiment.name]
    out.mkdir(parents=True, exist_ok=True)
    for experiment in experiments:
        if experiment.name in findings:
            _draw(experiment, findings[experiment.name], out)
    published = Published(out / PAGE, findings, failures, quick)
    text = page(experiments, findings, failures, quick, code_hash())
    _write(published.page, text.encode())
    _write(out / RESULTS, _json(published.as_dict()))
    shown = {
        name: {"code": found.code, "words": list(found.words), "drawn": found.drawn}
        for name, found in findings.items()
    }
    _write(out / FIGURES, _json(shown, indent=None))
    return published


def kept_in(out: Path, quick: bool) -> dict[str, Finding]:
    """Return the findings stored in a directory, by experiment: none of the other set."""
    try:
        results = json.loads((out / RESULTS).read_text(encoding="utf-8"))
        shown = json.loads((out / FIGURES).read_text(encoding="utf-8"))
        if results["quick"] is not quick:
            return {}
        return {
            name: Finding(checks=[_check(row) for row in rows], **shown[name])
            for name, rows in results["experiments"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--out {out}: {RESULTS} and {FIGURES} there are not of one page ({error}); "
            "name another directory"
        ) from None


def _draw(experiment: Experiment, found: Finding, out: Path) -> None:
    """Write the figure; an older one without stored content stays unchanged."""
    if found.drawn is None:
        return
    figure = experiment.draw(found.drawn)
    _write(out / figure_name(experiment), png(figure))
    _write(out / figure_name(experiment, "svg"), svg(figure))


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


def _check(row: Mapping[str, Any]) -> Check:
    """Parse a row of `results.json`."""
    values = [math.inf if value is None else value for value in row["values"]]
    bar = None
    if row["bar"] is not None:
        low, high = row["bar"]
        bar = Bar(-math.inf if low is None else low, math.inf if high is None else high)
    calibrated = row["verdict"] == Verdict.CALIBRATED.value
    return Check(row["what"], row["published"], values, row["unit"], bar, calibrated)


def _json(content: Any, indent: int | None = 1) -> bytes:
    return (json.dumps(content, indent=indent) + "\n").encode()


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(f"{value:.9g}") if abs(value) != float("inf") else None


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(path, error) from None
