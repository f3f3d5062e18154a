"""The command `mrc why`: what broke in a run, where and since when, or that nothing did."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from openmrc.errors import InputError

LINE = 100


def add_command(commands: Any) -> Any:
    """Add `why` to the parser; returns its own."""
    why = commands.add_parser(
        "why",
        help="what broke in a run, where and since when, by what its senders know",
        description="Say in a paragraph what slowed a run: which link, switch or NIC lost packets,"
        " in which direction and since when, or that nothing broke. It knows what the senders of"
        " the run knew, and does not look at the faults that the scenario planned.",
    )
    add = why.add_argument
    add("results", metavar="DIR", type=Path, help="what mrc run --out has written")
    add("--transport", metavar="NAME", help="of several, this one only")
    add("--job", metavar="NAME", help="what it was to this job")
    add("--step", metavar="N", type=int, help="why this step of a training job took so long")
    add("--since", metavar="TIME", help="only what was lost from then on, such as 1.5ms")
    why.set_defaults(run=_why)
    return why


def _why(arguments: argparse.Namespace) -> int:
    from openmrc.ops.records import read
    from openmrc.ops.why import why
    from openmrc.units import US, parse_time

    try:
        since_us = 0.0 if arguments.since is None else parse_time(arguments.since) / US
    except InputError as error:
        raise error.at("--since") from None
    records = read(arguments.results)
    if arguments.transport is not None:
        names = [record.name for record in records]
        if arguments.transport not in names:
            raise InputError(
                f"--transport {arguments.transport}: is not there; the run has {', '.join(names)}"
            )
        records = [record for record in records if record.name == arguments.transport]
    answers = [why(record, arguments.job, arguments.step, since_us) for record in records]
    if arguments.json:
        print(json.dumps({"transports": [answer.as_json() for answer in answers]}, indent=2))
    else:
        print("\n\n".join(textwrap.fill(answer.text, LINE) for answer in answers))
    return 0
