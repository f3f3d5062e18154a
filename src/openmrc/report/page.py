"""report.html: table, sentences, picture and derived values in one file that needs no other."""

from __future__ import annotations

from base64 import b64encode
from html import escape

from openmrc.report.table import COLUMNS, derived, rows, sentences
from openmrc.run import Result

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222 }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .25rem .8rem; text-align: right }
th { border-bottom: 2px solid #222; vertical-align: bottom }
td { border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img { max-width: 100% }
pre { background: #f5f5f5; padding: 1rem; overflow: auto }
.unit { font-weight: normal; color: #666 }
"""


def html(result: Result, png: bytes) -> str:
    """Return the page; `png` is the picture it shows."""
    title = f"{result.scenario.name}, seed {result.scenario.seed}"
    heads = "".join(
        f"<th>{escape(name.replace('-' + chr(10), '').replace(chr(10), ' '))}"
        f'<br><span class="unit">{escape(unit)}</span></th>'
        for name, unit in COLUMNS
    )
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
        for run in result.transports
        for cells in rows(run)
    )
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(result))
    values = "".join(
        f"<h3>{escape(run.name)}</h3><p>"
        + ", ".join(f"{escape(key)} {escape(value)}" for key, value in derived(run).items())
        + "</p>"
        for run in result.transports
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{said}"
        f'<img alt="Goodput over time" src="data:image/png;base64,{b64encode(png).decode()}">'
        f"<h2>Derived at start</h2>{values}"
        f"<h2>Scenario</h2><pre>{escape(result.scenario.to_toml())}</pre></html>\n"
    )
