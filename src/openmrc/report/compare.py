"""Results directories side by side: a row for each transport, and how their scenarios differ."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.reading import read_bytes
from openmrc.report.page import html_table
from openmrc.run.figures import PACKETS

DIFFERENCES_SHOWN = 12  # of one directory; --json has all
# A heading with its unit, and the figure's place in a transport's summary.
FIGURES = (
    ("flow completion time, p50", "us", "flows.fct_us.p50"),
    ("flow completion time, p99", "us", "flows.fct_us.p99"),
    ("flow completion time, p100", "us", "flows.fct_us.p100"),
    ("goodput of all flows", "Gb/s", "goodput_gbps.total"),
    ("packets sent again", "", "packets.retransmitted"),
    ("packets lost to faults", "", "packets.dropped_fault"),
    ("time over ideal time", "", "slowdown_p100"),
    ("flows completed", "", "flows.completed"),
    ("of flows", "", "flows.total"),
)
P100 = "flows.fct_us.p100"


@dataclass(frozen=True)
class Saved:
    """One results directory: its name as given, `summary.json`, and the scenario's every key."""

    name: str
    summary: dict[str, Any]
    scenario: dict[str, Any]

    @property
    def transports(self) -> dict[str, Any]:
        """The summaries of its transports, by name."""
        found: dict[str, Any] = self.summary["transports"]
        return found


def read_saved(directory: str) -> Saved:
    """Return what `mrc run --out` wrote; raise `InputError` if this is not a results directory."""
    return Saved(
        directory,
        _parsed(Path(directory, "summary.json"), _summary),
        dict(_flat(_parsed(Path(directory, "scenario.toml"), _scenario))),
    )


def differences(saved: Sequence[Saved]) -> dict[str, dict[str, list[Any]]]:
    """Return for each further directory the keys of its scenario that differ: [first's, its own].

    None stands for a missing key.
    """
    first = saved[0].scenario
    return {
        each.name: {
            key: [first.get(key), each.scenario.get(key)]
            for key in dict.fromkeys((*first, *each.scenario))
            if first.get(key) != each.scenario.get(key)
        }
        for each in saved[1:]
    }


def columns(saved: Sequence[Saved]) -> list[tuple[str, str]]:
    """Return the heading and unit of each column, in the order of `rows`."""
    over = (f"p100 over that in {saved[0].name}", "")
    return [("results", ""), ("transport", ""), *((h, unit) for h, unit, _ in FIGURES), over]


def rows(saved: Sequence[Saved]) -> list[list[str]]:
    """Return a row of cells for each transport of each directory."""
    first = saved[0].transports
    return [
        [
            each.name,
            name,
            *(_cell(_at(summary, place)) for _, _, place in FIGURES),
            _over(_at(summary, P100), _at(first.get(name, {}), P100)),
        ]
        for each in saved
        for name, summary in each.transports.items()
    ]


def sentences(saved: Sequence[Saved]) -> list[str]:
    """Return how each further scenario differs from the first, and which runs are partial."""
    said = [f"{each.name}: partial, it was interrupted." for each in saved if _partial(each)]
    for name, found in differences(saved).items():
        shown = [f"{key} {_said(a)} -> {_said(b)}" for key, (a, b) in found.items()]
        more = f" and {len(shown) - DIFFERENCES_SHOWN:,} more" if shown[DIFFERENCES_SHOWN:] else ""
        words = "; ".join(shown[:DIFFERENCES_SHOWN]) + more if shown else "the same scenario"
        said.append(f"{name} against {saved[0].name}: {words}.")
    return said


def html(saved: Sequence[Saved]) -> str:
    """Return the comparison as a page of its own."""
    style = files("openmrc.report").joinpath("assets/page.css").read_text(encoding="utf-8")
    title = escape(" and ".join(each.name for each in saved))
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(saved))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><header><h1>{title}</h1></header>"
        f'<main><section class="wide" id="table">{html_table(columns(saved), rows(saved))}{said}'
        "</section></main></body></html>\n"
    )


def _parsed(file: Path, parse: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse(read_bytes(file).decode())
    except OSError as error:
        raise InputError(
            f"{file}: {error.strerror}; name a directory that mrc run --out has written"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError(f"{file}: was not written by mrc run --out; run it again") from None
    return found


def _summary(text: str) -> Any:
    summary = json.loads(text)
    for each in summary["transports"].values():
        _ = each["flows"]["fct_us"], [each["packets"][key] for key in PACKETS]
    return summary


def _scenario(text: str) -> Any:
    return tomllib.loads(text)


def _flat(table: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a scenario with its path: "fabric.nics", "fault[0].rate"."""
    if isinstance(table, dict):
        for key, value in table.items():
            yield from _flat(value, f"{place}.{key}" if place else key)
    elif isinstance(table, list) and table and isinstance(table[0], dict):
        for number, value in enumerate(table):
            yield from _flat(value, f"{place}[{number}]")
    else:
        yield place, table


def _partial(saved: Saved) -> bool:
    return bool(saved.summary.get("partial"))


def _at(summary: dict[str, Any], place: str) -> Any:
    found: Any = summary
    for key in _keys(place):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _keys(place: str) -> list[str]:
    return place.split(".")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"


def _over(value: float | None, first: float | None) -> str:
    return "-" if value is None or not first else f"{value / first:.3f}"


def _said(value: Any) -> str:
    return "nothing" if value is None else str(value)
