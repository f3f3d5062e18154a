"""`mrc sweep`: its options; `sweeps.command` runs it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from openmrc.cli.lab import add_set


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `sweep`; return the parsers that take --json."""
    sweep: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="simulate a scenario file for every combination of values",
        description="Simulate SCENARIO.toml for every combination of the values of --over, on all"
        " cores or a Dask cluster, into one Parquet data set. Runs already in DIR are not"
        " repeated.",
    )
    add = sweep.add_argument
    add("scenario", metavar="SCENARIO.toml", help="see docs/scenario.md")
    words = "such as transport.pmtu=2048,4096 or seed=1..10, both ends included"
    add("--over", metavar="KEY=VALUES", action="append", required=True, help=words)
    add("--out", metavar="DIR", type=Path, required=True, help="the data set")
    add_set(sweep)
    add("--workers", metavar="N", help="parallel runs (default: one per core)")
    add("--dask", metavar="ADDRESS", help="address of a Dask scheduler, such as tcp://head:8786")
    add("--flows", action="store_true", help="keep one row for each flow as well")
    words = "draw a figure over the first key of --over that is not seed"
    add("--plot", metavar="FILE.png", type=Path, help=words)
    words = "with --plot: the figure, a column of the data set (default: flows.fct_us.p100)"
    add("--figure", metavar="NAME", help=words)
    add("--log", choices=("x", "y", "xy"), help="with --plot: the axes that are logarithmic")
    sweep.set_defaults(run=_sweep)
    return [sweep]


def _sweep(arguments: argparse.Namespace) -> int:
    from openmrc.sweeps.command import run_command

    return run_command(arguments)
