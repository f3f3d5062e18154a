"""Losses observed on many paths, in the smallest form that keeps all information.

How well an explanation fits depends on two things only: on the paths that lost something, one by
one, and on how many packets crossed each link, switch and NIC in all. Paths without losses need no
row. So a second of 10^8 probes on 131,072 NICs is some thousand rows and three arrays of totals.

A row is a path in one window of time: the packets sent on it, and those that were lost. A trimmed
or marked packet is not lost. Probes and data may be combined; `background` is the fraction of each
path's packets that may be lost without a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import Fabric, IntArray, LongArray
from openmrc.ops import causes, weigh
from openmrc.ops.schedule import TURNS, Schedule

FloatArray = npt.NDArray[np.float64]

# Loss rate of an idle or a busy fabric, for packets that are not trimmed: bit errors after FEC are
# rarer than 1e-12 per bit, so this is generous.
BACKGROUND = 1e-7
PART = 1 << 18  # paths whose causes are counted at a time: it bounds the memory


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was observed from `from_ps` until `until_ps`."""

    routes: IntArray  # [rows, hops] directed ports of paths that lost packets; -1 after the last
    sent: LongArray  # [rows]
    lost: LongArray  # [rows]
    first_ps: LongArray  # [rows] when the first of them was lost ...
    last_ps: LongArray  # ... and the last
    crossed: LongArray  # [causes] packets of all paths, including those without losses
    background: FloatArray  # [rows]
    from_ps: int
    until_ps: int


def of_paths(
    fabric: Fabric,
    routes: IntArray,
    sent: npt.ArrayLike,
    lost: npt.ArrayLike,
    from_ps: int,
    until_ps: int,
    first_ps: npt.ArrayLike | None = None,
    last_ps: npt.ArrayLike | None = None,
    background: float = BACKGROUND,
) -> Evidence:
    """Return the evidence of all paths that carried packets, [n, hops] `routes`: passive
    measurement.

    `first_ps` and `last_ps`: when the losses of each began and ended; else the window's ends.
    """
    sent, lost = np.asarray(sent, np.int64), np.asarray(lost, np.int64)
    crossed = np.zeros(causes.count(fabric), np.int64)
    for start in range(0, len(sent), PART):
        part = slice(start, start + PART)
        weigh.total(causes.of_routes(fabric, routes[part]), sent[part], crossed)
    rows = np.flatnonzero(lost)
    first = np.full(len(sent), from_ps) if first_ps is None else np.asarray(first_ps)
    last = np.full(len(sent), until_ps) if last_ps is None else np.asarray(last_ps)
    return of_lossy(
        routes[rows], sent[rows], lost[rows], first[rows], last[rows], crossed, from_ps, until_ps,
        background,
    )  # fmt: skip


def of_lossy(
    routes: IntArray,
    sent: LongArray,
    lost: LongArray,
    first_ps: LongArray,
    last_ps: LongArray,
    crossed: LongArray,
    from_ps: int,
    until_ps: int,
    background: npt.ArrayLike = BACKGROUND,
) -> Evidence:
    """Return the evidence of paths that lost packets, given the packets that crossed each cause."""
    chance = np.full(len(sent), background, np.float64)
    return Evidence(
        routes, sent, lost, first_ps, last_ps, crossed, chance, from_ps, until_ps
    )  # fmt: skip


def of_probes(
    schedule: Schedule,
    turn: npt.ArrayLike,
    number: npt.ArrayLike,
    lost: npt.ArrayLike,
    periods: int,
    from_ps: int = 0,
    first_ps: npt.ArrayLike | None = None,
    last_ps: npt.ArrayLike | None = None,
    background: float = BACKGROUND,
) -> Evidence:
    """Return the evidence of `periods` whole periods of a schedule: active measurement.

    `lost` of the probes `number` of each `turn` were not answered; all others were.
    """
    turn, number, lost = (np.asarray(each, np.int64) for each in (turn, number, lost))
    routes = np.concatenate(
        [np.zeros((0, 6), np.int32)]
        + [schedule.routes(t, number[turn == t]) for t in np.unique(turn).tolist()]
    )
    order = np.argsort(turn, kind="stable")
    until_ps = from_ps + periods * schedule.period_ps
    n = len(lost)
    first = np.full(n, from_ps) if first_ps is None else np.asarray(first_ps)
    last = np.full(n, until_ps) if last_ps is None else np.asarray(last_ps)
    return of_lossy(
        routes,
        (periods - turn[order] + TURNS - 1) // TURNS,
        lost[order],
        first[order],
        last[order],
        np.concatenate(schedule.crossed) * periods,
        from_ps,
        until_ps,
        background,
    )


def of_burst(
    fabric: Fabric, routes: IntArray, lost: npt.ArrayLike, from_ps: int, until_ps: int
) -> Evidence:
    """Return the evidence of a burst: one probe for each of these `routes`, and which were lost."""
    return of_paths(fabric, routes, np.ones(len(routes), np.int64), lost, from_ps, until_ps)


def joined(parts: Sequence[Evidence]) -> Evidence:
    """Return the union of these: probes and data, one window and the next."""
    width = max(part.routes.shape[1] for part in parts)
    routes = [_of_width(part.routes, width) for part in parts]
    crossed = parts[0].crossed.copy()
    for part in parts[1:]:
        crossed += part.crossed
    columns = ("sent", "lost", "first_ps", "last_ps", "background")
    rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    return Evidence(
        np.concatenate(routes),
        **rows,
        crossed=crossed,
        from_ps=min(part.from_ps for part in parts),
        until_ps=max(part.until_ps for part in parts),
    )


def _of_width(routes: IntArray, width: int) -> IntArray:
    if routes.shape[1] == width:
        return routes
    return np.pad(routes, ((0, 0), (0, width - routes.shape[1])), constant_values=-1)
