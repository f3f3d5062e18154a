"""Faults of a run that nobody noticed: places by the harm that they did, and places to watch.

Harm is the capacity that the job lost: the time for which paths were avoided, summed over paths,
and then the packets that had to be retransmitted. A place to watch lost too little to be named, but
too much to be ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from openmrc.ops.diagnose.findings import diagnosed
from openmrc.ops.finding import Finding
from openmrc.ops.records import Record
from openmrc.ops.why import Answer
from openmrc.ops.words import time
from openmrc.say import counted
from openmrc.tabular import Column

COLUMNS = (
    Column("place", words=True),
    Column("what", words=True),
    Column("sure"),
    Column("first loss"),
    Column("last loss"),
    Column("lost"),
    Column("paths avoided"),
    Column("queue pairs"),
    Column("avoided, summed"),
)


class Harm(NamedTuple):
    """A place, and the harm that it did; times in us of the run."""

    where: str
    what: str  # "dead", "lossy", "one of N" or "to watch"
    probability: float | None  # that it is broken; None: to watch
    since_us: float
    until_us: float  # of the last loss, after which it may still be broken
    lost: int
    paths: int
    queue_pairs: int
    aside_us: float


def ranked(record: Record, answer: Answer) -> list[Harm]:
    """Return the places that an answer names, the most harmful first, then those to watch."""
    found = [_of(finding) for finding in answer.findings]
    found.sort(key=lambda it: (-it.aside_us, -it.lost, it.where))
    if not record.is_recorded:
        return found
    return found + [
        Harm(it.where, "to watch", None, it.since_us, it.until_us, it.lost, 0, it.queue_pairs, 0.0)
        for it in diagnosed(record).watched
    ]


def as_json(rows: Sequence[Harm]) -> list[dict[str, Any]]:
    """Return the list that `mrc why --report --json` prints."""
    return [row._asdict() for row in rows]


def cells(rows: Sequence[Harm]) -> list[tuple[str, ...]]:
    """Return the table that `mrc why --report` prints."""
    return [
        (
            it.where,
            it.what,
            "" if it.probability is None else f"{it.probability:.0%}",
            time(it.since_us),
            time(it.until_us),
            f"{it.lost:,}",
            f"{it.paths:,}",
            f"{it.queue_pairs:,}",
            time(it.aside_us) if it.paths else "",
        )
        for it in rows
    ]


def title(record: Record, rows: Sequence[Harm]) -> str:
    """Return what a reader should know before the table."""
    if record.account is None and not rows:
        return f"{record.name}: its senders keep no account of paths"
    broke = sum(it.what != "to watch" for it in rows)
    if not broke:
        return f"{record.name}: nothing broke"
    errors = len(record.summary["qp_errors"])
    noticed = (
        f"{counted(errors, 'end')} of queue pairs failed" if errors else "no queue pair failed"
    )
    return f"{record.name}: {broke} place{'s' * (broke > 1)} broke, and {noticed}"


def _of(finding: Finding) -> Harm:
    what = "dead" if finding.dead else "lossy"
    if finding.one_of:
        what = f"one of {1 + len(finding.one_of)}"
    return Harm(
        finding.where, what, finding.probability, finding.since_us, finding.until_us, finding.lost,
        finding.paths, finding.queue_pairs, finding.aside_us,
    )  # fmt: skip
