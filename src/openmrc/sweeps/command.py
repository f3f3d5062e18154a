"""`mrc sweep`: a sweep described by command-line arguments, and its table."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.newfile import write_whole
from openmrc.report.directory import check_directory
from openmrc.run.results import EXIT_OK, EXIT_UNFINISHED
from openmrc.say import say
from openmrc.scenario.scenario import load_scenario, value_of
from openmrc.sweeps.plan import RUNS_MAX, plan
from openmrc.sweeps.sweep import run_all, swept_keys
from openmrc.units import integer

if TYPE_CHECKING:
    import polars as pl

OVER = "--over"
PIPE_WIDTH = 1000
# Columns of the table: the heading, and the column of the data set.
FIGURES_SHOWN = {
    "the whole took, us": "whole_us",
    "flow completion time, p50, us": "flows.fct_us.p50",
    "flow completion time, p99, us": "flows.fct_us.p99",
    "flow completion time, p100, us": "flows.fct_us.p100",
    "goodput of all flows, Gb/s": "goodput_gbps.total",
    "time over ideal time": "slowdown_p100",
    "flows completed": "flows.completed",
    "of flows": "flows.total",
}


def run_command(arguments: argparse.Namespace) -> int:
    """Run the sweep that the arguments describe, print its table, return the exit status."""
    scenario = load_scenario(arguments.scenario, arguments.set)
    runs = plan(scenario, parse_over(arguments.over), OVER)
    check_directory(arguments.out)
    for option in ("figure", "log") if arguments.plot is None else ():
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option}: only with --plot FILE.png")
    if arguments.plot is not None:
        from openmrc.sweeps import plot

        plot.refuse(swept_keys(runs), arguments.figure or plot.FIGURE)
        check_directory(arguments.plot.absolute().parent, "--plot")
    table = run_all(
        runs,
        arguments.out,
        workers=workers_of(arguments.workers),
        dask=arguments.dask,
        flows=arguments.flows,
    )
    if arguments.json:
        print(table.write_json())
    else:
        _print(table, swept_keys(runs))
    if arguments.plot is not None:
        arguments.plot.parent.mkdir(parents=True, exist_ok=True)
        title = f"{scenario.name}: {scenario.workload.kind}"
        drawn = plot.plot_png(
            table, swept_keys(runs), title, arguments.figure or plot.FIGURE, arguments.log or ""
        )
        write_whole(arguments.plot, drawn, "--plot")
        say(f"The picture is {arguments.plot}.")
    return EXIT_OK if _all_well(table) else EXIT_UNFINISHED


def parse_over(texts: list[str]) -> dict[str, list[Any]]:
    """Return the values of each key: "seed=1..10", "transport.pmtu=2048,4096"."""
    over: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not key or not values.strip():
            raise InputError(f"{OVER} {text}: accepted: KEY=VALUES, such as seed=1..10")
        if key in over:
            raise InputError(f"{OVER} {text}: {key} is given twice; name all its values at once")
        over[key] = _values(text, values)
    return over


def _values(text: str, values: str) -> list[Any]:
    ends = re.fullmatch(r"\s*(-?\d+)\.\.(-?\d+)\s*", values)
    if not ends:
        return [value_of(value) for value in values.split(",")]
    first, last = int(ends[1]), int(ends[2])
    if first > last:
        raise InputError(f"{OVER} {text}: {first} is above {last}; write the smaller one first")
    if last - first >= RUNS_MAX:
        raise InputError(f"{OVER} {text}: more than {RUNS_MAX:,} runs; sweep over fewer at a time")
    return list(range(first, last + 1))


def workers_of(text: str | None) -> int | None:
    """Return the number after --workers; None without one."""
    if text is None:
        return None
    if not text.isdecimal():
        raise InputError(f"--workers {text}: accepted: a whole number of 1 or more")
    return integer(text)


def _all_well(table: pl.DataFrame) -> bool:
    """Whether every run came to its end, as `mrc run` defines it."""
    return not any(
        row["error"]
        or row["flows.failed"]
        or (row["flows.unfinished"] and row["stop.time"] is None)
        for row in table.iter_rows(named=True)
    )


def _print(table: pl.DataFrame, keys: list[str]) -> None:
    import polars as pl

    from openmrc.tabular import Column, print_table

    columns = {key: key for key in [*keys, "transport"]} | FIGURES_SHOWN
    named = [Column(heading, words=heading not in FIGURES_SHOWN) for heading in columns]
    rows = [
        [_cell(row[column]) for column in columns.values()]
        for row in table.with_columns(pl.col("transport").fill_null("failed")).iter_rows(named=True)
    ]
    print_table(None, named, rows, sys.stdout, keys=len(keys) + 1, pipe_width=PIPE_WIDTH)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
