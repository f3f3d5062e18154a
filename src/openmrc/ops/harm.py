"""Faults of a run that nobody noticed: places by the harm that they did, and places to watch.

Harm is the capacity that the job lost: the time for which paths were set aside, summed over paths,
and then the packets that had to be retransmitted. A place to watch lost too little to be named, but
too much to be ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from openmrc.ops.localise import localise, suspected
from openmrc.ops.records import Record
from openmrc.ops.together import Finding
from openmrc.ops.why import RULES, Answer
from openmrc.say import counted
from openmrc.tabular import Column
from openmrc.units import US, fmt_time

WATCHED_MAX = 10
COLUMNS = (
    Column("place", words=True),
    Column("what", words=True),
    Column("first loss"),
    Column("last loss"),
    Column("lost"),
    Column("paths set aside"),
    Column("queue pairs"),
    Column("set aside, summed"),
)


class Harm(NamedTuple):
    """A place, and the harm that it did; times in us of the run."""

    where: str
    what: str  # "dead", "lossy", "one of N" or "to watch"
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
    return found + _watched(record, answer.findings)


def as_json(rows: Sequence[Harm]) -> list[dict[str, Any]]:
    """Return the list that `mrc why --report --json` prints."""
    return [row._asdict() for row in rows]


def cells(rows: Sequence[Harm]) -> list[tuple[str, ...]]:
    """Return the table that `mrc why --report` prints."""
    return [
        (
            it.where,
            it.what,
            _time(it.since_us),
            _time(it.until_us),
            f"{it.lost:,}",
            f"{it.paths:,}",
            f"{it.queue_pairs:,}",
            _time(it.aside_us) if it.paths else "",
        )
        for it in rows
    ]


def title(record: Record, rows: Sequence[Harm]) -> str:
    """Return what a reader should know before the table."""
    if record.events is None:
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
        finding.where, what, finding.since_us, finding.until_us, finding.lost, finding.paths,
        finding.queue_pairs, finding.aside_us,
    )  # fmt: skip


def _watched(record: Record, findings: Sequence[Finding]) -> list[Harm]:
    """Links that need attention, except those that a finding names."""
    if record.events is None or not (bins := record.bins()):
        return []
    seen = record.evidence(bins)
    ports = suspected(record.known, seen, localise(record.known, seen, RULES))
    told = {name for it in findings for name in (it.where, *it.one_of)}
    crossed = record.routes(record.paths)
    lost = record.paths["lost"].to_numpy()
    found = []
    for port in ports.tolist():
        mine = np.flatnonzero((crossed == port).any(axis=1) & (lost > 0))
        names = record.names(port)
        if not told.isdisjoint(names) or not len(mine):
            continue
        rows = record.paths[mine.tolist()]
        since, until = rows["first_us"].to_numpy().min(), rows["last_us"].to_numpy().max()
        qps = rows["qp"].n_unique()
        name = names[0] + f" or {len(names) - 1} more" * (len(names) > 1)
        found.append(
            Harm(name, "to watch", float(since), float(until), int(lost[mine].sum()), 0, qps, 0.0)
        )
    return found[:WATCHED_MAX]


def _time(us: float) -> str:
    """A time to four significant figures."""
    ps = round(us * US)
    keep = 10 ** max(0, len(str(ps)) - 4)
    return fmt_time(round(ps / keep) * keep)
