"""Results directories side by side: what each took as a whole, and how their scenarios differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from openmrc.report import times
from openmrc.report.page import html_table
from openmrc.report.steps import rounded
from openmrc.run import saved as directories
from openmrc.scenario.workloads import WORKLOADS
from openmrc.units import US

STORING = "store-and-forward"
DIFFERENCES_SHOWN = 12  # of one directory; --json has all
WHOLE = "the whole took"  # of workloads of several kinds
TIME = "time"  # the unit of a column is the one that fits
# A heading with its unit, and the figure's place in the summary of a transport; jobs have some.
FIGURES = (
    ("time over ideal time", "", "slowdown_p100"),
    ("flow completion time, p50", TIME, "flows.fct_us.p50"),
    ("flow completion time, p99", TIME, "flows.fct_us.p99"),
    ("flow completion time, p100", TIME, "flows.fct_us.p100"),
    ("goodput of all flows", "Gb/s", "goodput_gbps.total"),
    ("packets sent again", "", "packets.retransmitted"),
    ("packets lost to faults", "", "packets.dropped_fault"),
    ("flows completed", "", "flows.completed"),
    ("of flows", "", "flows.total"),
)


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
    found = directories.Saved(Path(directory))
    return Saved(directory, found.summary, dict(_flat(found.scenario)))


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


@dataclass(frozen=True)
class Verdict:
    """What a transport, or one of its jobs, took as a whole, and that over the first's."""

    directory: str
    transport: str
    job: str | None
    whole_us: float | None
    first_us: float | None
    figures: dict[str, Any]  # its part of the summary

    @property
    def name(self) -> str:
        """The transport, and of one of its jobs that too."""
        return self.transport if self.job is None else f"{self.transport}: {self.job}"

    @property
    def over(self) -> float | None:
        """How many times as long it took as in the first directory."""
        if self.whole_us is None or not self.first_us:
            return None
        return round(self.whole_us / self.first_us, 4)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `mrc compare --json` prints."""
        keys = ("directory", "transport", "job", "whole_us", "over")
        return {key: getattr(self, key) for key in keys}


def verdicts(saved: Sequence[Saved]) -> list[Verdict]:
    """Return what each transport of each directory took, each followed by its jobs."""
    first = {key: us for key, us, _ in _wholes(saved[0])}
    return [
        Verdict(each.name, *key, us, first.get(key), figures)
        for each in saved
        for key, us, figures in _wholes(each)
    ]


def _wholes(saved: Saved) -> Iterator[tuple[tuple[str, str | None], float | None, dict[str, Any]]]:
    for name, summary in saved.transports.items():
        yield (name, None), summary["whole_us"], summary
        for job, figures in (summary.get("jobs") or {}).items():
            yield (name, job), figures["time_us"], figures


def whole(saved: Sequence[Saved]) -> str:
    """Return the heading of what is compared: what all took, if they are of one kind."""
    kinds = {WORKLOADS[each.scenario["workload.kind"]].whole for each in saved if _known(each)}
    return kinds.pop() if len(kinds) == 1 and all(map(_known, saved)) else WHOLE


def _known(saved: Saved) -> bool:
    return saved.scenario.get("workload.kind") in WORKLOADS


def table(saved: Sequence[Saved]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return the heading and unit of each column, and the cells: a row for each transport of each
    directory, and one for each of its jobs.
    """
    found = verdicts(saved)
    columns = [
        ("results", "", [one.directory for one in found]),
        ("transport", "", [one.name for one in found]),
        (whole(saved), *times.column([one.whole_us for one in found], "never")),
        (
            f"over that in {saved[0].name}",
            "",
            ["-" if one.over is None else f"{one.over:.3f}" for one in found],
        ),
    ]
    for heading, unit, place in FIGURES:
        values = [_at(one.figures, place) for one in found]
        if unit == TIME:
            columns.append((heading, *times.column(values)))
        else:
            columns.append((heading, unit, list(map(_cell, values))))
    rows = [list(row) for row in zip(*(cells for *_, cells in columns), strict=True)]
    return [(heading, unit) for heading, unit, _ in columns], rows


def _verdict(saved: Saved, first: Saved, found: Sequence[Verdict]) -> str:
    """The sentence that says how a directory did against the first; "" if nothing is in both."""
    said = [
        f"{one.name} {_time(one.whole_us)} against {_time(one.first_us)}"
        + ("" if one.over is None else f" ({one.over:.3f} times)")
        for one in found
        if one.directory == saved.name and one.first_us is not None
    ]
    shown = "; ".join(said[:DIFFERENCES_SHOWN])
    more = f" and {len(said) - DIFFERENCES_SHOWN:,} more" if said[DIFFERENCES_SHOWN:] else ""
    return f"{saved.name} against {first.name}, {whole([first, saved])}: {shown}{more}."


def _time(us: float | None) -> str:
    return "never" if us is None else rounded(round(us * US))


def sentences(saved: Sequence[Saved]) -> list[str]:
    """Return how each further directory did against the first, which runs are partial, and how the
    scenarios differ.
    """
    found = verdicts(saved)
    said = [_verdict(each, saved[0], found) for each in saved[1:]]
    said += [f"{each.name}: partial, it was interrupted." for each in saved if _partial(each)]
    for name, keys in differences(saved).items():
        shown = [f"{key} {_said(a)} -> {_said(b)}" for key, (a, b) in keys.items()]
        more = f" and {len(shown) - DIFFERENCES_SHOWN:,} more" if shown[DIFFERENCES_SHOWN:] else ""
        words = "; ".join(shown[:DIFFERENCES_SHOWN]) + more if shown else "the same scenario"
        said.append(f"{name} against {saved[0].name}: {words}.")
    return said + _of_storing(saved)


def _of_storing(saved: Sequence[Saved]) -> list[str]:
    """What favours the faster links where switches store whole packets."""
    storing = [each for each in saved if each.scenario.get("fabric.switching") == STORING]
    if len({each.scenario.get("fabric.port_rate") for each in storing}) < 2:
        return []
    return [
        "Links differ in rate, and switches store whole packets, which takes longer on slower"
        ' links: compare with fabric.switching = "cut-through".'
    ]


def html(saved: Sequence[Saved]) -> str:
    """Return the comparison as a page of its own."""
    style = files("openmrc.report").joinpath("assets/page.css").read_text(encoding="utf-8")
    title = escape(" and ".join(each.name for each in saved))
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(saved))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head><body><header><h1>{title}</h1></header>"
        f'<main><section class="wide" id="table">{html_table(*table(saved))}{said}'
        "</section></main></body></html>\n"
    )


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


def _said(value: Any) -> str:
    return "nothing" if value is None else str(value)
