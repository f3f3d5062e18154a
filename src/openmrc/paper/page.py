"""The page of all experiments: Markdown, one table at the top, a section and a figure for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from openmrc.paper.case import SHIPPED_AS
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Check

HEAD = """# The published experiments, rerun

Written by `mrc paper{options}`, from simulations alone (`docs/simulator.md`).
"Published" is the evaluation of MRC (arXiv 2605.04333) unless said otherwise; figures of which only
a graph was printed are given as "about". "Measured" is the median over the seeds and, where
they differ, the least and the largest. A verdict compares every seed with a bar that stands in
the section of the experiment: *holds* in all seeds, *holds in the median*, or *does not hold*.
*Calibrated* values were fitted to published ones and are not results; *reported* ones have
no published value to compare with. All experiments use the defaults of the
scenario file; each overrides keys in its own file, in `{folder}`.
"""
COLUMNS = ("", "", "published", "measured", "verdict")


def page(
    experiments: Sequence[Experiment],
    findings: Mapping[str, Finding],
    failures: Mapping[str, str],
    quick: bool,
    code: str | None = None,
) -> str:
    """Return the page: results, failures, and what was not run.

    It names the results that were not produced by the code of this hash.
    """
    head = HEAD.format(options=" --quick" if quick else "", folder=SHIPPED_AS)
    if quick:
        head += "\nThis is the reduced set: smaller sizes, one seed. Its figures are no results.\n"
    if older := [name for name, found in findings.items() if found.code != code]:
        names = ", ".join(older)
        head += f"\nMeasured by an earlier version of the code, and not anew since: {names}.\n"
    parts = [head, _overview(experiments, findings, failures)]
    parts += [_section(e, findings.get(e.name), failures.get(e.name)) for e in experiments]
    return "\n".join(parts)


def figure_name(experiment: Experiment, ending: str = "png") -> str:
    """Return the file name of its figure, which is there as PNG and as SVG."""
    return f"{experiment.name.replace('.', '_')}.{ending}"


def measured(check: Check) -> str:
    """Return the median, and the least and largest in brackets where seeds differ."""
    if check.median is None:
        return "-"
    unit = f" {check.unit}" if check.unit and math.isfinite(check.median) else ""
    text, low, high = (number(v) for v in (check.median, min(check.values), max(check.values)))
    return f"{text}{unit}" if low == high else f"{text}{unit} ({low} to {high})"


def number(value: float) -> str:
    """Return a value to four figures, without an exponent; "never" for a time that did not come."""
    if not math.isfinite(value):
        return "never"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _overview(
    experiments: Sequence[Experiment],
    findings: Mapping[str, Finding],
    failures: Mapping[str, str],
) -> str:
    rows = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    for experiment in experiments:
        link = f"[{experiment.name}](#{_anchor(experiment)})"
        if experiment.name in findings:
            for check in findings[experiment.name].checks:
                cells = [link, check.what, check.published, measured(check)]
                rows.append(_row([*cells, f"**{check.verdict.value}**"]))
                link = ""
        else:
            why = "failed" if experiment.name in failures else "not run"
            rows.append(_row([link, experiment.title, "", "", why]))
    return "\n".join(rows) + "\n"


def _section(experiment: Experiment, finding: Finding | None, failure: str | None) -> str:
    lines = [f"## {_heading(experiment)}", "", f"*{experiment.original}.* {experiment.claim}", ""]
    if finding is None:
        lines += [f"A run failed: {failure}" if failure else "Not run.", ""]
    else:
        lines += [f"![{experiment.title}]({figure_name(experiment)})", ""]
        if finding.drawn is not None:
            lines += [f"[As SVG]({figure_name(experiment, 'svg')})", ""]
        lines += [_row(["", "published", "measured", "bar", "verdict"]), _row(["---"] * 5)]
        for check in finding.checks:
            bar = "" if check.bar is None or check.calibrated else f"{check.bar} {check.unit}"
            cells = [check.what, check.published, measured(check), bar.rstrip()]
            lines.append(_row([*cells, check.verdict.value]))
        lines += [""]
        for words in finding.words:
            lines += [words, ""]
    lines += [f"**Scale.** {experiment.scaled}", ""]
    names = ", ".join(f"`{SHIPPED_AS}/{name}.toml`" for name in experiment.files)
    lines += [f"**Scenarios.** {names}", ""]
    return "\n".join(lines)


def _heading(experiment: Experiment) -> str:
    return f"{experiment.name}: {experiment.title}"


def _anchor(experiment: Experiment) -> str:
    """The address of a section, as GitHub makes it from its heading."""
    kept = (c for c in _heading(experiment).lower() if c.isalnum() or c in " -_")
    return "".join(kept).replace(" ", "-")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
