"""The command `mrc why`: what broke in a run, where and since when, or that nothing did."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.printable import printable

LINE = 100


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `why`; return the parsers that take --json."""
    why: argparse.ArgumentParser = commands.add_parser(
        "why",
        help="explain what broke in a run, where and since when, from its senders' records",
        description="Say in a paragraph what slowed a run: which link, switch or NIC lost packets,"
        " in which direction and since when, or that nothing broke. It uses the records"
        " of the run's senders, not the faults that the scenario planned.",
    )
    add = why.add_argument
    words = (
        "results of mrc run --out, records of a torch job (OPENMRC_RECORD=DIR), or the history of"
        " mrc ops controller"
    )
    add("results", metavar="DIR|FILE", type=Path, help=words)
    add("--transport", metavar="NAME", help="only this transport")
    add("--job", metavar="NAME", help="the effect of the faults on this job")
    add("--step", metavar="N", type=int, help="why this step of a training job took so long")
    add("--since", metavar="TIME", help="only losses from this time on, such as 1.5ms")
    add(
        "--report",
        action="store_true",
        help="also print a table of all broken places, noticed or not, the most harmful first",
    )
    add("--page", metavar="FILE", type=Path, help="also write an HTML page")
    why.set_defaults(run=_why)
    return [why]


def _why(arguments: argparse.Namespace) -> int:
    from openmrc.ops import harm, job
    from openmrc.ops.mapper.page.data import of_run
    from openmrc.ops.records import read
    from openmrc.ops.why import why
    from openmrc.tabular import print_table
    from openmrc.units import US, parse_time

    if arguments.results.is_file():
        return _of_history(arguments)
    try:
        since_us = 0.0 if arguments.since is None else parse_time(arguments.since) / US
    except InputError as error:
        raise error.at("--since") from None
    if job.is_one(arguments.results):
        return _of_job(arguments, since_us / 1e6)
    records = read(arguments.results)
    if arguments.transport is not None:
        names = [record.name for record in records]
        if arguments.transport not in names:
            raise InputError(
                f"--transport {arguments.transport}: is not there; the run has {', '.join(names)}"
            )
        records = [record for record in records if record.name == arguments.transport]
    if arguments.page is not None:
        _write(arguments.page, of_run(arguments.results, records[0]))
    asked = arguments.job, arguments.step, since_us
    answers = [why(record, *asked) for record in records]
    both = zip(records, answers, strict=True) if arguments.report else ()
    reports = [harm.ranked(record, answer) for record, answer in both]
    if arguments.json:
        told = [answer.as_json() for answer in answers]
        for each, report in zip(told, reports, strict=False):  # none without --report
            each["report"] = harm.as_json(report)
        print(json.dumps({"transports": told}, indent=2))
        return 0
    print("\n\n".join(textwrap.fill(answer.text, LINE) for answer in answers))
    for record, report in zip(records, reports, strict=False):
        print()
        head = harm.title(record, report)
        if report:
            print_table(head, harm.COLUMNS, harm.cells(report), sys.stdout)
        else:
            print(printable(head))
    return 0


def _of_job(arguments: argparse.Namespace, since_s: float) -> int:
    """Report what the ranks of torch jobs recorded, job by job."""
    from openmrc.ops import job

    for option in ("transport", "job", "step"):
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option}: the records of a torch job have none")
    if arguments.report:
        raise InputError("--report: the records of a torch job have none; the answer tells all")
    if arguments.page is not None:
        raise InputError("--page: the records of a torch job know ends and planes, no fabric")
    jobs = job.read(arguments.results)
    longest_s = max(each.until_s - each.since_s for each in jobs)
    if since_s > longest_s:
        lasted = f"{'the job' if len(jobs) == 1 else 'the longest job'} lasted {longest_s:.1f} s"
        raise InputError(f"--since {arguments.since}: {lasted}; name an earlier time")
    found = [(each, job.troubles(each, since_s)) for each in jobs]
    if arguments.json:
        print(json.dumps({"jobs": [job.as_json(*each) for each in found]}, indent=2))
    else:
        print("\n\n".join(textwrap.fill(job.text(*each), LINE) for each in found))
    return 0


def _of_history(arguments: argparse.Namespace) -> int:
    """Report what a controller found, instead of what a run's senders know."""
    from openmrc.ops.mapper import tell
    from openmrc.ops.mapper.history import History
    from openmrc.ops.mapper.page.data import of_file
    from openmrc.units import US, parse_time

    for option in ("transport", "job", "step", "report"):
        if getattr(arguments, option) not in (None, False):
            raise InputError(f"--{option}: is of a run; a history knows of probes alone")
    try:
        ago_us = None if arguments.since is None else parse_time(arguments.since) // US
    except InputError as error:
        raise error.at("--since") from None
    with History(arguments.results, read_only=True) as history:
        answer = tell.of_history(history.places(), ago_us)
    if arguments.page is not None:
        _write(arguments.page, of_file(arguments.results))
    print(json.dumps(answer.as_json(), indent=2) if arguments.json else answer.text)
    return 0


def _write(file: Path, content: dict[str, Any]) -> None:
    from openmrc.errors import OutputError
    from openmrc.ops.mapper.page.html import html

    try:
        file.write_text(html(content), encoding="utf-8")
    except OSError as error:
        raise OutputError(file, error) from None
