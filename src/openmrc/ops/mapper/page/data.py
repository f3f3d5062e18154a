"""The content of the operator's page, as one JSON object: from a recorded run, or from a history.

A place is a list of links (`links`) with their directions: 1 upwards, 2 downwards, 3 both. Times
are microseconds: for a run since its start, for a history Unix time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.ops.finding import Finding
from openmrc.ops.mapper import tell
from openmrc.ops.mapper.history import History, JobRow, NoteRow, Row
from openmrc.ops.mapper.jobs import TOLD_MAX, reached
from openmrc.ops.mapper.page.links import drawn, links
from openmrc.ops.mapper.page.loads import loads
from openmrc.ops.records import Record
from openmrc.ops.why import why
from openmrc.say import counted

PLACES_MAX = 5000
SPAN_US = 3600 * 10**6  # of a history, shown at first


def of_run(directory: Path, record: Record) -> dict[str, Any]:
    """Return the content for a transport's record in a results directory (`mrc run --out`)."""
    answer = why(record)
    until_us = float(record.summary["sim_time_us"])
    flows = record.flows
    jobs = []
    if "job" in flows.columns and flows["job"].n_unique() > 1:
        for name in flows["job"].unique().sort().to_list():
            mine = flows.filter(flows["job"] == name)
            jobs.append(_job(str(name), mine, why(record, job=str(name)).text))
    else:
        jobs.append(_job(record.name, flows, ""))
    return {
        "title": directory.resolve().name,
        "headline": answer.headline.as_json(),
        "about": answer.text,
        "knows": answer.knows,
        "live": False,
        "unix": False,
        "from_us": 0.0,
        "until_us": until_us,
        "fabric": drawn(record.fabric),
        "places": [_of_finding(record.fabric, one) for one in answer.findings],
        "jobs": jobs,
        "loads": loads(record),
        "silent": [],
    }


def of_history(
    fabric: Fabric,
    rows: Sequence[Row],
    now_us: int,
    title: str,
    jobs: Sequence[JobRow] = (),
    notes: Sequence[NoteRow] = (),
) -> dict[str, Any]:
    """Return the content for a controller's history."""
    shown = [of_row(fabric, row) for row in rows[-PLACES_MAX:]]
    first = min((one["since_us"] for one in shown), default=now_us - SPAN_US)
    return {
        "title": title,
        "headline": tell.of_history(rows).headline.as_json(),
        "about": "",
        "knows": True,
        "live": False,
        "unix": True,
        "from_us": min(first, now_us - SPAN_US // 60),
        "until_us": now_us,
        "fabric": drawn(fabric),
        "places": shown,
        "jobs": [_of_job(fabric, job, rows) for job in jobs],
        "notes": [note._asdict() for note in notes],
        "silent": [],
    }


def of_file(file: Path) -> dict[str, Any]:
    """Return the content for the history in a file."""
    with History(file, read_only=True) as history:
        fabric = fabric_of(history, file)
        rows, jobs, notes = history.places(), history.jobs(), history.notes()
    last = max((row.last_us for row in rows), default=time.time_ns() // 1000)
    return of_history(fabric, rows, last + 1, file.stem, jobs, notes)


def fabric_of(history: History, file: Path) -> Fabric:
    """Return the fabric whose places a history names."""
    from openmrc.scenario.scenario import fabric_section

    table = history.fabric_table()
    if not table:
        raise InputError(f"{file}: does not describe its fabric; name a file of mrc ops controller")
    return fabric_section(table).build()


def of_row(fabric: Fabric, row: Row) -> dict[str, Any]:
    """Return a place of a history."""
    return {
        "place": row.place,
        "kind": row.kind,
        "since_us": row.since_us,
        "until_us": row.until_us,
        "rate": round(row.rate, 5),
        "lost": row.lost,
        "of": row.crossed,
        "links": links(fabric, row.place),
        "times": 1,
        "withdrawn": bool(row.withdrawn),
        "note": "what it is part of is blamed" if row.withdrawn else "",
    }


def _of_finding(fabric: Fabric, one: Finding) -> dict[str, Any]:
    return {
        "place": one.where,
        "kind": one.kind,
        "since_us": one.since_us,
        "until_us": one.until_us if one.over else None,
        "rate": 1.0 if one.dead else round(one.rate, 5),
        "lost": one.lost,
        "of": 0,
        "links": links(fabric, one.where),
        "times": one.times,
        "withdrawn": False,
        "note": _note(one),
    }


def _note(one: Finding) -> str:
    words = [f"one of {', '.join((one.where, *one.one_of))}"] if one.one_of else []
    words.append(f"{one.probability:.0%} sure")
    if one.paths:
        pairs = counted(one.queue_pairs, "queue pair")
        words.append(f"{counted(one.paths, 'path')} of {pairs} avoided")
        words.append(f"{one.back} back")
    return ", ".join(words)


def _of_job(fabric: Fabric, job: JobRow, rows: Sequence[Row]) -> dict[str, Any]:
    met = reached(fabric, job, rows)
    rest = f" and {len(met) - TOLD_MAX} more" if len(met) > TOLD_MAX else ""
    return {
        "name": job.job,
        "from_us": job.since_us,
        "until_us": job.until_us,
        "nics": job.nics,
        "sent": job.sent,
        "again": job.again,
        "set_aside": job.set_aside,
        "words": f"Lossy on its ways: {', '.join(met[:TOLD_MAX])}{rest}." if met else "",
    }


def _job(name: str, flows: Any, words: str) -> dict[str, Any]:
    done = flows["done_us"].max()
    return {
        "name": name,
        "from_us": float(flows["start_us"].min() or 0),
        "until_us": None if done is None else float(done),
        "flows": len(flows),
        "unfinished": int(flows["done_us"].null_count()),
        "again": int(flows["retransmitted"].sum()),
        "words": words,
    }
