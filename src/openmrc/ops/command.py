"""The command `mrc why`: what broke in a run, where and since when, or that nothing did."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.printable import printable

if TYPE_CHECKING:
    from openmrc.ops.records import Record
    from openmrc.ops.why import Answer

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
    add(
        "--names",
        metavar="FILE",
        type=Path,
        help='TOML: what places are called, such as "nic 3" = "gpu-17, rack 4"',
    )
    why.set_defaults(run=_why)
    return [why]


def _why(arguments: argparse.Namespace) -> int:
    from openmrc.ops import harm, job
    from openmrc.ops.mapper.page.data import of_run
    from openmrc.ops.records import read
    from openmrc.ops.spoken import names
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
    if arguments.names is not None:
        named = names(arguments.names, records[0].fabric)
        records = [replace(each, names=named) for each in records]
    if arguments.transport is not None:
        there = [record.name for record in records]
        if arguments.transport not in there:
            raise InputError(
                f"--transport {arguments.transport}: is not there; the run has {', '.join(there)}"
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
    print("\n\n".join(_block(*each) for each in zip(records, answers, strict=True)))
    for record, report in zip(records, reports, strict=False):
        print()
        head = harm.title(record, report)
        if report:
            print_table(head, harm.COLUMNS, harm.cells(report), sys.stdout)
        else:
            print(printable(head))
    return 0


def _block(record: Record, answer: Answer) -> str:
    """The headline and the paragraph of a transport."""
    return _wrapped([*answer.headline.lines(record.spoken), answer.text])


def _wrapped(lines: Sequence[str]) -> str:
    """Each line, wrapped as it is indented."""
    return "\n".join(
        textwrap.fill(printable(it), LINE, subsequent_indent=" " * 4 * it.startswith(" "))
        for it in lines
    )


def _of_job(arguments: argparse.Namespace, since_s: float) -> int:
    """Report what the ranks of torch jobs recorded, job by job."""
    from openmrc.ops import job

    for option in ("transport", "job", "step"):
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option}: the records of a torch job have none")
    if arguments.names is not None:
        raise InputError("--names: the records of a torch job name hosts themselves")
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
        print("\n\n".join(_wrapped(job.lines(*each)) for each in found))
    return 0


def _of_history(arguments: argparse.Namespace) -> int:
    """Report what a controller found, instead of what a run's senders know."""
    from openmrc.ops.mapper import tell
    from openmrc.ops.mapper.history import History
    from openmrc.ops.mapper.page.data import fabric_of, of_file
    from openmrc.ops.spoken import Spoken, names
    from openmrc.units import US, parse_time

    for option in ("transport", "job", "step", "report"):
        if getattr(arguments, option) not in (None, False):
            raise InputError(f"--{option}: is of a run; a history knows of probes alone")
    try:
        ago_us = None if arguments.since is None else parse_time(arguments.since) // US
    except InputError as error:
        raise error.at("--since") from None
    with History(arguments.results, read_only=True) as history:
        named = {}
        if arguments.names is not None:
            fabric = fabric_of(history, arguments.results) if history.fabric_table() else None
            named = names(arguments.names, fabric)
        answer = tell.of_history(history.places(), ago_us, Spoken(None, named), history.notes())
    if arguments.page is not None:
        _write(arguments.page, of_file(arguments.results))
    print(json.dumps(answer.as_json(), indent=2) if arguments.json else _wrapped(answer.lines))
    return 0


def _write(file: Path, content: dict[str, Any]) -> None:
    from openmrc.errors import OutputError
    from openmrc.ops.mapper.page.html import html

    try:
        file.write_text(html(content), encoding="utf-8")
    except OSError as error:
        raise OutputError(file, error) from None
