"""report.html: one self-contained file, which any browser opens without a network.

Text, tables and the scenario are plain HTML; the pictures are drawn by the scripts in `assets` from
one JSON object (`data`). The assets are inserted unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from openmrc import version
from openmrc.report import steps
from openmrc.report.data import page_data
from openmrc.report.table import derived, sentences, table
from openmrc.run.results import Result

SCRIPTS = ("base.js", "lines.js", "steps.js", "heat.js", "fabric.js", "page.js")  # in this order
SCENARIO_CHARS_MAX = 200_000  # a longer one (thousands of faults) is in scenario.toml only


def html(result: Result) -> str:
    """Return the page."""
    assets = files("openmrc.report").joinpath("assets")
    text = assets.joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "TITLE": escape(f"{result.scenario.name}, seed {result.scenario.seed}"),
        "RUN": result.identity,
        "ABOUT": escape(_about(result)),
        "STYLE": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "TABLE": table_of(result),
        "STEPS": html_table(steps.COLUMNS, trained) if (trained := steps.rows(result)) else "",
        "SENTENCES": "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(result)),
        "DERIVED": _derived(result),
        "SCENARIO": escape(_scenario(result)),
        "DATA": _in_script(json.dumps(page_data(result), separators=(",", ":"))),
        "SCRIPT": "".join(assets.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS),
    }
    # In one pass: inserted text is not searched again.
    pieces = text.split("{{")
    page = pieces[0]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        page += parts[name] + rest
    return page


def table_of(result: Result) -> str:
    """Return the table of a run, as HTML."""
    return html_table(*table(result))


def _about(result: Result) -> str:
    workload, fabric = result.scenario.workload.kind, result.scenario.fabric.kind
    return f"{workload} on a {fabric} fabric, openmrc {version.__version__}"


def html_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells carry their headings for narrow screens, where rows become cards."""
    names = [heading for heading, _ in columns]
    labels = [f"{n}, {unit}" if unit else n for n, (_, unit) in zip(names, columns, strict=True)]
    heads = "".join(
        f'<th scope="col">{escape(name)}<br><span class="unit">{escape(unit)}</span></th>'
        for name, (_, unit) in zip(names, columns, strict=True)
    )
    body = ""
    for first, *others in rows:
        cells = "".join(
            f'<td data-label="{escape(label)}">{escape(cell)}</td>'
            for label, cell in zip(labels[1:], others, strict=True)
        )
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _derived(result: Result) -> str:
    return "".join(
        f"<h3>{escape(run.name)}</h3><p>"
        + ", ".join(f"{escape(key)} {escape(value)}" for key, value in derived(run).items())
        + "</p>"
        for run in result.transports
    )


def _scenario(result: Result) -> str:
    text = result.scenario.to_toml()
    if len(text) <= SCENARIO_CHARS_MAX:
        return text
    return text[:SCENARIO_CHARS_MAX] + "\n... the whole of it is in scenario.toml\n"


def _in_script(text: str) -> str:
    """JSON that cannot end the script element that contains it."""
    return text.replace("<", "\\u003c")
