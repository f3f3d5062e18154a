"""What speaks against the blame of a place, although chance would explain its losses worse.

Chance, in `localise`, loses packets one by one. Behind full queues a queue pair judges many lost at
once, packets come late, and what is diverted crowds elsewhere: none of that is damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.ops import causes
from openmrc.ops.columns import number
from openmrc.ops.fit import evidence_against
from openmrc.ops.localise import Rules, Verdict, localise
from openmrc.ops.records import JUDGED_US, Record
from openmrc.ops.together import Finding

if TYPE_CHECKING:
    import polars as pl

JAM = 0.2  # of the packets trimmed: a full queue
MOMENT = 4  # round trips: within it is judged lost what full queues or lost answers delay at once
MOSTLY = 0.3  # of the packets lost: more than those make it
UNEVENLY, FEW = 3.0, 5.0  # times the mean, and losses more: as many at one moment by chance
STRAY_PART = 0.02  # of what is left of the losses of the worst bin: less is drops noticed later
DROPS_NATS = 100.0  # at least, of what lets nothing through where full queues drop
OVER_AFTER = 10.0  # losses that would have been expected since the last one
ECHO_RATE = 0.05  # largest loss rate of a device that is only crowded by diverted traffic ...
LATE_TIMES = 4  # it loses more than this multiple of what proved to be late
ECHO_PART = 0.5  # ... while something dead lost more than twice as much


def is_one_event(
    record: Record, verdict: Verdict, span: list[float], mine: npt.NDArray[np.bool_], rules: Rules
) -> bool:
    """Whether a place that lost a part would not be blamed without the moment in which it lost
    most; or one with full queues, without the queue pair that lost most; or any, without the
    probes of one queue pair on paths that it has not used yet. Many packets are judged lost at once
    when answers stay away, so these are no independent witnesses.
    """
    import polars as pl

    here = pl.Series(mine) & record.paths["from_us"].is_in(span)
    rows = record.paths.filter(here)
    events = []
    if record.crowded(rows).max(initial=0.0) > JAM:
        events.append(record.paths["qp"] == _worst(rows))
    since_us = _worst_moment(rows, MOMENT * record.rtt_us)
    at_once = record.paths["first_us"].is_between(since_us, since_us + MOMENT * record.rtt_us)
    lost_a_part = record.rate(verdict.cause, rows) <= MOSTLY
    if lost_a_part and not _stay_away(record, record.paths.filter(here & at_once)):
        events.append(at_once)
    waiting = _never_sent(record, rows)
    if len(waiting):
        events.append((record.paths["sent"] == 0) & (record.paths["qp"] == _worst(waiting)))
    return not all(
        _blamed_without(record, verdict.cause, span, here & one, rules) for one in events
    )


def _worst(rows: pl.DataFrame) -> int:
    """The queue pair that lost most in these rows."""
    import polars as pl

    by_qp = rows.group_by("qp").agg(pl.col("lost").sum()).sort("lost", "qp")
    return int(by_qp["qp"][-1])


def _never_sent(record: Record, rows: pl.DataFrame) -> pl.DataFrame:
    """Those of these rows in which paths lost probes before they carried any data."""
    import polars as pl

    assert record.events is not None
    used = record.events.filter(pl.col("event").is_in(["set aside", "plane silent"]))
    first = used.group_by("qp", "ev").agg(used_us=pl.col("t_us").min())
    known = rows.filter(pl.col("sent") == 0).join(first, on=["qp", "ev"], how="left")
    return known.filter(pl.col("used_us").is_null() | (pl.col("used_us") > pl.col("last_us")))


def _stay_away(record: Record, rows: pl.DataFrame) -> bool:
    """Whether most of the paths of these rows were set aside and never returned to service."""
    import polars as pl

    assert record.events is not None
    paths, events = rows.select("qp", "ev").unique(), record.events
    over = events.filter(pl.col("event").is_in(["back", "false alarm"]))
    aside = paths.join(events, on=["qp", "ev"], how="semi")
    return 2 * len(aside.join(over, on=["qp", "ev"], how="anti")) > len(paths)


def _blamed_without(
    record: Record, cause: int, span: list[float], event: pl.Series, rules: Rules
) -> bool:
    """Whether a place is blamed for the losses of these bins without some rows of paths."""
    others = replace(record, paths=record.paths.filter(~event))
    left = localise(record.known, others.evidence(span), rules)
    return any(cause in (each.cause, *each.one_of) for each in left)


def _worst_moment(rows: pl.DataFrame, lasts_us: float) -> float:
    """When the moment begins in which these rows lost most, us."""
    by_time = rows.sort("first_us")
    times, upto = by_time["first_us"].to_numpy(), np.append(0, by_time["lost"].cum_sum())
    ends = np.searchsorted(times, times + lasts_us, side="right")
    return float(times[np.argmax(upto[ends] - upto[:-1])])


def lost_one_by_one(record: Record, cause: int, rows: pl.DataFrame) -> bool:
    """Whether a place lost a part of its packets all the time, and not all for a part of it."""
    moment_us = MOMENT * record.rtt_us
    lasts_us = float(rows["last_us"].to_numpy().max() - rows["first_us"].to_numpy().min())
    if record.rate(cause, rows) > MOSTLY or lasts_us < UNEVENLY * moment_us:
        return False
    since_us = _worst_moment(rows, moment_us)
    at_once = rows.filter(rows["first_us"].is_between(since_us, since_us + moment_us))
    evenly = int(rows["lost"].sum()) * moment_us / lasts_us
    return int(at_once["lost"].sum()) <= UNEVENLY * evenly + FEW


def is_late(record: Record, cause: int, mine: npt.NDArray[np.bool_]) -> bool:
    """Whether a place lost a little, and many other packets of its paths proved to be late and not
    lost.
    """
    import polars as pl

    assert record.events is not None
    rows = record.paths.filter(pl.Series(mine))
    alarms = record.events.filter(pl.col("event") == "false alarm")
    late = len(alarms.join(rows.select("qp", "ev").unique(), on=["qp", "ev"], how="semi"))
    few = int(rows["lost"].sum()) <= LATE_TIMES * late
    return few and record.rate(cause, rows) <= ECHO_RATE


def without_echoes(record: Record, findings: Sequence[Finding]) -> list[Finding]:
    """Without devices that lost a little while something dead lost much, because its traffic was
    diverted and crowds there; or where many packets proved to be late and not lost. What is
    missing at a switch, or arrived damaged, is no echo.
    """
    import polars as pl

    most = max((it.lost for it in findings if it.dead and not it.one_of), default=0)
    assert record.events is not None
    late = len(record.events.filter(pl.col("event") == "false alarm"))
    enough = max(ECHO_PART * most, LATE_TIMES * late)
    return [
        it
        for it in findings
        if it.kind not in (causes.SWITCH, causes.NIC)
        or it.counted
        or it.rate > ECHO_RATE
        or it.lost > enough
    ]


def beyond_drops(
    record: Record, verdict: Verdict, span: list[float], mine: npt.NDArray[np.bool_], rules: Rules
) -> npt.NDArray[np.bool_]:
    """Return which of the rows `mine` of paths lost more than full queues of these paths dropped,
    as switches counted it, [rows]; none if the place would not be blamed for what is left.
    """
    import polars as pl

    found = np.zeros(len(mine), np.bool_)
    rows = record.paths.filter(pl.Series(mine))
    left, here = record.undropped(rows), rows["from_us"].is_in(span).to_numpy()
    chance = left[here] @ np.log(record.late(rows.filter(pl.Series(here)), span))
    crossed = record.evidence(span).crossed[verdict.cause]
    nats = evidence_against(*(np.array([float(it)]) for it in (left[here].sum(), chance, crossed)))
    if nats[0] >= rules.alarm:
        _, of_bin = np.unique(rows["from_us"].to_numpy(), return_inverse=True)
        by_bin = np.bincount(of_bin, left)
        found[mine] = 2 * left >= rows["lost"].to_numpy()
        found[mine] &= by_bin[of_bin] >= STRAY_PART * by_bin.max()
    return found


def without_drops_around(
    record: Record, cause: int, mine: npt.NDArray[np.bool_], within: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return the rows `mine` of paths, [rows], without those that are not `within` the time in
    which a place is blamed, if it dropped hardly anything then and in the time in which a loss is
    noticed before: what lets nothing through has no full queues, and others may have dropped what
    its paths lost before and after.
    """
    import polars as pl

    here = mine & within
    if not here.any():
        return mine
    rows = record.paths.filter(pl.Series(here))
    began, ended = number(rows["from_us"].min()), number(rows["from_us"].max())
    own = pl.col("port").is_in(causes.links_of(record.known, cause).tolist())
    then = (pl.col("until_us") > began - JUDGED_US) & (pl.col("from_us") <= ended)
    dropped = int(record.links.filter(own & then)["dropped"].sum())
    return here if dropped <= STRAY_PART * int(rows["lost"].sum()) else mine


def without_drops(record: Record, findings: Sequence[Finding]) -> list[Finding]:
    """Without places that lost a part which full queues may have dropped, where these do not trim:
    no sender learns which were full. They drop many packets at once, so what seems to let nothing
    through needs more evidence.
    """
    return [
        it
        for it in findings
        if record.trims or it.downs or it.beyond_drops or (it.dead and it.nats >= DROPS_NATS)
    ]


def without_stragglers(
    record: Record, cause: int, rows: pl.DataFrame, margin: float
) -> pl.DataFrame:
    """Without last losses that may be chance, if the place let so many packets through before them
    that it must have been repaired.
    """
    import polars as pl

    begins, every = rows["from_us"].unique().sort().to_list(), record.every_bin()
    for begin, following in pairwise(begins):
        quiet = [each for each in every if begin < each < following]
        if not quiet:
            continue
        before = rows.filter(pl.col("from_us") <= begin)
        after = rows.filter(pl.col("from_us") > begin)
        passed = int(record.evidence(quiet).crossed[cause])
        if passed * record.rate(cause, before) > OVER_AFTER and may_be_chance(
            record, cause, after, margin
        ):
            return before
    return rows


def may_be_chance(record: Record, cause: int, rows: pl.DataFrame, margin: float) -> bool:
    """Return whether chance explains these losses nearly as well as a place that loses packets."""
    seen = record.evidence(record.bins_of(rows))
    lost = rows["lost"].to_numpy().astype(np.float64)
    chance = float(lost @ np.log(record.chance(rows, record.bins_of(rows))))
    nats = evidence_against(
        np.array([lost.sum()]), np.array([chance]), np.array([float(seen.crossed[cause])])
    )
    return bool(nats[0] < margin)
