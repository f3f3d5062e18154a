"""`mrc paper`: runs what is missing, reads the results, writes the page."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.say import say

DIRECTORY = "openmrc-paper"
RUNS = "data"  # in that directory: the data set of all runs
EXIT_OK, EXIT_FAILED = 0, 1
DESCRIPTION = (
    "Rerun the published experiments, or those named, and write one page of them all. Runs that are"
    " in DIR are not run again."
)


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `paper`."""
    words = "rerun the published experiments and compare"
    parser = commands.add_parser("paper", help=words, description=DESCRIPTION)
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="such as B6 (default: all)")
    add("--list", action="store_true", help="list the experiments, and run nothing")
    add("--quick", action="store_true", help="the reduced set: a minute or two")
    words = f"directory for the page, its figures and the runs (default: {DIRECTORY})"
    add("--out", metavar="DIR", type=Path, default=Path(DIRECTORY), help=words)
    add("--workers", metavar="N", help="parallel runs (default: one per core)")
    add("--draw", action="store_true", help="run nothing; draw the data in DIR")
    add("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(run=run_command)
    return []


def run_command(arguments: argparse.Namespace) -> int:
    """Do what the arguments say; return the exit status, 1 if a run failed."""
    from openmrc.paper.catalogue import EXPERIMENTS
    from openmrc.sweeps.command import workers_of

    chosen = chosen_of(arguments.names, [e.name for e in EXPERIMENTS])
    experiments = [e for e in EXPERIMENTS if e.name in chosen]
    if arguments.list:
        for experiment in experiments:
            print(f"{experiment.name:5} {experiment.title} ({experiment.original})")
        return EXIT_OK
    from openmrc.paper.publish import publish, run_missing, table_of

    workers = workers_of(arguments.workers)
    if not arguments.draw:
        run_missing(experiments, arguments.out / RUNS, arguments.quick, workers)
    published = publish(EXPERIMENTS, arguments.out, arguments.out / RUNS, arguments.quick)
    if arguments.json:
        print(json.dumps(published.as_dict(), indent=2))
    else:
        table_of([e for e in experiments if e.name in published.findings], published.findings)
    say(f"The page is {published.page}.")
    for name in chosen:
        if name in published.failures:
            say(f"FAILED: {name}: {published.failures[name]}")
    return EXIT_FAILED if published.failures.keys() & set(chosen) else EXIT_OK


def chosen_of(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the experiments named, in upper or lower case; all if none is."""
    by_name = {name.lower(): name for name in known}
    for name in names:
        if name.lower() not in by_name:
            raise InputError(
                f"paper {name}: there is no such experiment; accepted: {', '.join(known)}"
            )
    return [by_name[name.lower()] for name in names] or list(known)
