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
from openmrc.ops.fit import evidence_against
from openmrc.ops.localise import Rules, Verdict, localise
from openmrc.ops.records import Record
from openmrc.ops.together import Finding

if TYPE_CHECKING:
    import polars as pl

JAM = 0.2  # of the packets trimmed: a full queue
OVER_AFTER = 10.0  # losses that would have been expected since the last one
ECHO_RATE = 0.05  # largest loss rate of a device that is only crowded by diverted traffic ...
LATE_TIMES = 4  # it loses more than this multiple of what proved to be late
ECHO_PART = 0.5  # ... while something dead lost more than twice as much


def is_one_jam(
    record: Record, verdict: Verdict, span: list[float], mine: npt.NDArray[np.bool_], rules: Rules
) -> bool:
    """Whether a place with full queues would not be blamed without the queue pair that lost most
    there: it judges many packets lost at once then, so these are no independent witnesses.
    """
    import polars as pl

    here = pl.Series(mine) & record.paths["from_us"].is_in(span)
    rows = record.paths.filter(here)
    if record.trimmed(rows).max(initial=0.0) <= JAM:
        return False
    by_qp = rows.group_by("qp").agg(pl.col("lost").sum()).sort("lost", "qp")
    others = record.paths.filter(~(here & (record.paths["qp"] == by_qp["qp"][-1])))
    left = localise(record.fabric, replace(record, paths=others).evidence(span), rules)
    return not any(verdict.cause in (each.cause, *each.one_of) for each in left)


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
    diverted and crowds there; or where many packets proved to be late and not lost.
    """
    import polars as pl

    most = max((it.lost for it in findings if it.dead and not it.one_of), default=0)
    assert record.events is not None
    late = len(record.events.filter(pl.col("event") == "false alarm"))
    enough = max(ECHO_PART * most, LATE_TIMES * late)
    return [
        it
        for it in findings
        if it.kind not in (causes.SWITCH, causes.NIC) or it.rate > ECHO_RATE or it.lost > enough
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
        if passed * record.rate(cause, before) > OVER_AFTER and _may_be_chance(
            record, cause, after, margin
        ):
            return before
    return rows


def _may_be_chance(record: Record, cause: int, rows: pl.DataFrame, margin: float) -> bool:
    """Whether chance explains these losses nearly as well as a place that loses packets."""
    seen = record.evidence(record.bins_of(rows))
    lost = rows["lost"].to_numpy().astype(np.float64)
    chance = float(lost @ np.log(record.chance(rows, record.bins_of(rows))))
    nats = evidence_against(
        np.array([lost.sum()]), np.array([chance]), np.array([float(seen.crossed[cause])])
    )
    return bool(nats[0] < margin)
