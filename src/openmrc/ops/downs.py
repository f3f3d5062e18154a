"""Ports that went down and came back, as reported by their own NICs: nothing has to be inferred.

A NIC that loses the carrier of a port blames no path: it leaves the plane at once, informs its
peers, and loses hardly anything, so losses say little. It knows what failed, but not the extent: if
all NICs of a T0 report at once, the T0 failed; if all ports of a NIC do, the NIC failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from openmrc.ops import causes
from openmrc.ops.records import JUDGED_US
from openmrc.ops.together import Finding

if TYPE_CHECKING:
    from openmrc.fabric.model import Fabric
    from openmrc.ops.records import Record

DOWN, UP = "port down", "port up"
AT_ONCE = 0.02  # as a fraction of the time until then


@dataclass(frozen=True)
class Span:
    """Places that were down together, as causes, from when to when, us."""

    causes: tuple[int, ...]  # both directions of a link, or a device
    since_us: float
    until_us: float
    over: bool
    times: int = 1

    def ports(self, fabric: Fabric) -> npt.NDArray[np.int64]:
        """Return the directed ports that were down."""
        return np.concatenate([causes.links_of(fabric, cause) for cause in self.causes])


def spans(record: Record) -> list[Span]:
    """Return what was down and when, as the largest things that explain it; each once."""
    found: dict[tuple[int, ...], Span] = {}
    for one in _one_by_one(record):
        first = found.get(one.causes)
        if first is not None:
            one = replace(one, since_us=first.since_us, times=first.times + 1)
        found[one.causes] = one
    return list(found.values())


def _one_by_one(record: Record) -> list[Span]:
    fabric, found = record.known, list[Span]()
    together: list[list[tuple[int, float, float | None]]] = []
    for one in sorted(_each(record), key=lambda each: each[1]):
        if together and one[1] - together[-1][0][1] <= AT_ONCE * one[1]:
            together[-1].append(one)
        else:
            together.append([one])
    for group in together:
        times = {port: (since_us, until_us) for port, since_us, until_us in group}
        for what in causes.of_dark_ports(fabric, times):
            ports = np.concatenate([causes.links_of(fabric, cause) for cause in what])
            mine = [times[port] for port in ports.tolist() if port in times]
            found.append(_span(what, mine, record.end_us))
    return found


def explained(record: Record, found: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Return which rows of paths, [rows], have losses that ports that were down explain."""
    rows = record.paths
    taken = np.zeros(len(rows), np.bool_)
    routes = record.routes(rows)
    for span in found:
        during = rows["last_us"].to_numpy() >= span.since_us
        during &= rows["first_us"].to_numpy() <= span.until_us + JUDGED_US
        taken |= during & np.isin(routes, span.ports(record.known)).any(axis=1)
    return taken


def findings(record: Record, found: Sequence[Span]) -> list[Finding]:
    """Return the spans as findings."""
    told = []
    for span in found:
        mine = explained(record, [span])
        rows = record.paths.filter(mine)
        fabric, cause = record.known, span.causes[0]
        is_link = len(span.causes) > 1
        where = causes.name(fabric, cause)
        told.append(
            Finding(
                where=where.replace(" > ", " - ") if is_link else where,
                kind=causes.kind(fabric, cause),
                one_of=(),
                ends=tuple(f"{end.device} port {end.port}" for end in causes.ends(fabric, cause))
                if is_link
                else (),
                dead=True,
                rate=1.0,
                lost=int(rows["lost"].sum()),
                since_us=span.since_us,
                until_us=span.until_us,
                paths=0,
                queue_pairs=rows["qp"].n_unique(),
                back=0,
                back_us=span.until_us if span.over else None,
                nats=0.0,
                downs=span.times,
            )
        )
    return told


def _each(record: Record) -> list[tuple[int, float, float | None]]:
    """Return each port that was down, from when to when; None: to the end."""
    import polars as pl

    if record.events is None:
        return []
    rows = record.events.filter(pl.col("event").is_in([DOWN, UP])).sort("t_us")
    open_, found = dict[int, float](), list[tuple[int, float, float | None]]()
    for nic, ev, at_us, event in rows.select("src", "ev", "t_us", "event").rows():
        port = nic * record.known.n_planes + (ev >> record.known.ev_plane_shift)
        if event == DOWN:
            open_[port] = at_us
        elif port in open_:
            found.append((port, open_.pop(port), at_us))
    return found + [(port, at_us, None) for port, at_us in open_.items()]


def _span(
    what: tuple[int, ...], times: Sequence[tuple[float, float | None]], end_us: float
) -> Span:
    until = [end_us if until_us is None else until_us for _, until_us in times]
    over = all(until_us is not None for _, until_us in times)
    return Span(what, min(since_us for since_us, _ in times), max(until), over)
