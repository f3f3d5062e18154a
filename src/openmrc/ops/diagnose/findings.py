"""What the model says of a run, as findings."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from openmrc.fabric import places as fabric_places
from openmrc.ops import causes
from openmrc.ops.columns import number
from openmrc.ops.diagnose import counted
from openmrc.ops.diagnose.answer import Place, places
from openmrc.ops.diagnose.components import table
from openmrc.ops.diagnose.hashed import narrowed
from openmrc.ops.diagnose.observed import Observed
from openmrc.ops.diagnose.reading import observed
from openmrc.ops.diagnose.search import Search
from openmrc.ops.diagnose.sure import probability
from openmrc.ops.diagnose.watch import Watched, watched
from openmrc.ops.finding import Finding, Window
from openmrc.ops.records import Record

if TYPE_CHECKING:
    import polars as pl

KEPT = 4  # records whose places are kept: a page asks for each job


class Diagnosis(NamedTuple):
    """The places that broke in a run, and those to watch."""

    places: tuple[Place, ...]
    watched: tuple[Watched, ...]


def findings(record: Record, window: Window) -> list[Finding]:
    """Return the places that broke, of those that were broken in a window."""
    return [
        _finding(record, it, window.qps)
        for it in diagnosed(record).places
        if it.since_us[1] <= window.until_us and it.until_us[1] >= window.from_us
    ]


@functools.lru_cache(maxsize=KEPT)
def diagnosed(record: Record) -> Diagnosis:
    """Return the places that broke in a run, and those to watch."""
    found: list[Place] = []
    watch: list[Watched] = []
    for known, seen in _observed(record):
        search = Search(seen, table(known.known, known.outline, known.fabric))
        search.search()
        # Places are found by taking faults away for a while.
        named = [narrowed(known, it) for it in places(search)]
        if known is not record:
            named = [counted.with_ways(search, it) for it in named]
        found += named
        watch += watched(search)
    return Diagnosis(tuple(found), tuple(watch))


def _observed(record: Record) -> list[tuple[Record, Observed]]:
    """What is observed, each part by itself, with what is known of ways."""
    if record.account is not None:
        return [(record, observed(record))]
    return [(record, counted.missing(record)), counted.damaged(record)]


def _finding(record: Record, it: Place, qps: set[int] | None) -> Finding:
    paths = {key for key in it.paths if qps is None or key[0] in qps}
    aside, back, aside_us = _use(record, it, paths)
    if record.account is None:
        it = _in_whole_ticks(record, it)
    over_us = it.until_us[1]
    return Finding(
        where=it.where,
        kind=it.kind,
        one_of=it.one_of,
        ends=_ends(record, it),
        dead=it.dead,
        rate=it.rate,
        lost=it.lost,
        since_us=it.since_us[1],
        until_us=max(it.until_us[0], it.since_us[1]),
        paths=aside["path"].n_unique(),
        queue_pairs=len({qp for qp, _ in paths}),
        back=back["path"].n_unique(),
        back_us=number(back["t_us"].max()) if len(back) else None,
        nats=round(it.nats, 1),
        probability=round(probability(it.ahead), 2),
        aside_us=round(aside_us, 3),
        downs=it.downs,
        times=it.times,
        narrow_bytes=_narrow_bytes(record, paths) if it.narrow else 0,
        began_us=(it.since_us[0], it.since_us[1] + record.rtt_us),
        ended_us=(it.until_us[0], over_us if math.isfinite(over_us) else None),
    )


def _in_whole_ticks(record: Record, it: Place) -> Place:
    """A place with edges no finer than ports were read: nobody knows when in a tick it was."""
    assert record.counts is not None
    every = np.unique(np.append(0.0, record.counts["until_us"].to_numpy()))

    def around(edge: tuple[float, float]) -> tuple[float, float]:
        first = int(np.searchsorted(every, edge[0])) - 1
        last = int(np.searchsorted(every, edge[1], side="right"))
        latest = float(every[last]) if last < len(every) else math.inf
        return float(every[max(first, 0)]), latest

    return it._replace(since_us=around(it.since_us), until_us=around(it.until_us))


def _narrow_bytes(record: Record, paths: set[tuple[int, int]]) -> int:
    """The payload of the smallest packets that these paths lose while they pass smaller ones."""
    rows = record.paths.select("qp", "ev", "narrow_bytes").rows()
    return min((size for qp, ev, size in rows if size > 0 and (qp, ev) in paths), default=0)


def _ends(record: Record, it: Place) -> tuple[str, ...]:
    """Of a link, its devices with their ports."""
    if it.kind != "link" or it.one_of or len(fabric_places.split(it.where)) > 1 or "*" in it.where:
        return ()
    both = causes.ends(record.fabric, int(fabric_places.links(record.fabric, it.where)[0]))
    return tuple(f"{end.device} port {end.port}" for end in both)


def _use(
    record: Record, it: Place, paths: set[tuple[int, int]]
) -> tuple[pl.DataFrame, pl.DataFrame, float]:
    """When paths were avoided because of a place, when they came back after that, and for how
    long they were out of use, summed, us.
    """
    import polars as pl

    assert record.events is not None
    keys = pl.DataFrame([*sorted(paths)], schema=["qp", "ev"], orient="row")
    keys = keys.cast({name: record.events.schema[name] for name in ("qp", "ev")})
    events = record.events.join(keys, on=["qp", "ev"], how="semi").sort("t_us")
    events = events.with_columns(path=pl.struct("qp", "ev"))
    noticed_us, last_us = it.noticed_us
    during = pl.col("t_us").is_between(noticed_us, last_us)
    aside = events.filter(pl.col("event").is_in(["avoided", "plane silent"]) & during)
    out = aside.group_by("path").agg(aside_us=pl.col("t_us").min())
    again = pl.col("event").is_in(["back", "false alarm"]) & (pl.col("t_us") >= pl.col("aside_us"))
    over = events.join(out, on="path").filter(again).group_by("path").agg(t_us=pl.col("t_us").max())
    spans = out.join(over, on="path", how="left")
    ends = spans["t_us"].fill_null(record.end_us)
    return aside, over, float((ends - spans["aside_us"]).clip(0).sum())
