"""`mrc compare`: results directories side by side, as a table, an object or a page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from openmrc.printable import printable
from openmrc.say import say


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `compare`; return the parsers that take --json."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="compare results directories side by side",
        description="Print a row for each transport of each results directory, and the keys in"
        " which the scenarios differ from the first.",
    )
    add = parser.add_argument
    add("first", metavar="DIR", help="a results directory of mrc run --out")
    add("others", metavar="OTHER", nargs="+", help="directories to compare with it")
    add("--page", metavar="FILE.html", type=Path, help="also write a page of it")
    parser.set_defaults(run=_run)
    return [parser]


def _run(arguments: argparse.Namespace) -> int:
    from openmrc.newfile import write_whole
    from openmrc.report import compare
    from openmrc.tabular import Column, print_table

    saved = [compare.read_saved(name) for name in (arguments.first, *arguments.others)]
    if arguments.page is not None:
        write_whole(arguments.page, compare.html(saved), "--page")
    if arguments.json:
        told = {
            "results": [{"directory": each.name, "summary": each.summary} for each in saved],
            "verdict": [one.as_json() for one in compare.verdicts(saved)],
            "differences": compare.differences(saved),
        }
        print(json.dumps(told, indent=2))
    else:
        headings, rows = compare.table(saved)
        named = [f"{heading}, {unit}" if unit else heading for heading, unit in headings]
        columns = [Column(heading, words=i < 2) for i, heading in enumerate(named)]
        print_table(None, columns, rows, sys.stdout, keys=2)
        for sentence in compare.sentences(saved):
            print(printable(sentence))
    if arguments.page is not None:
        say(f"The page is {arguments.page}.")
    return 0
