"""What is observed of a run whose senders keep no account: what its ports count, and no more.

A packet that is missing on a link is a loss there, at some time within its tick. A port that is
down says so. Where a damaged packet was damaged nobody counts: somewhere on its way, of which its
receiver's link is known, and by what was sent again its sender; what is between is all that packets
of this plane may take, as where switches hash.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model import IntArray
from openmrc.fabric.outline import outline
from openmrc.fabric.ways import routes
from openmrc.ops.diagnose.answer import Place
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets
from openmrc.ops.diagnose.reading import counts, is_over, joined, read_down, told_down
from openmrc.ops.diagnose.search import Search
from openmrc.ops.records import Record, by_outline

if TYPE_CHECKING:
    import polars as pl

Numbers = npt.NDArray[np.integer[Any]]


def missing(record: Record) -> Observed:
    """Return what ports say of what was lost on their links, or that they were down."""
    edges_us, each = counts(record, record.counts)
    spans = read_down(edges_us, each["down"], math.inf)
    ticks, ports = np.nonzero(each["gone"])
    n = each["gone"][ticks, ports].astype(np.int64)
    lost = _rows(edges_us, ticks.repeat(n), ports.repeat(n)[:, None].astype(np.int32))
    return _seen(record, edges_us, each, joined(lost, told_down(record.known, spans, lost)))


def damaged(record: Record) -> tuple[Record, Observed]:
    """Return what ports say of what arrived damaged, and the record with what is known of ways."""
    around = outline(record.fabric)
    assert record.counts is not None
    hashed = replace(record, outline=around, counts=by_outline(record.counts, around))
    edges_us, own = counts(record, record.counts)
    fabric, known, hurt = record.fabric, around.fabric, own["damaged"]
    ticks, ports = np.nonzero(hurt)
    n = hurt[ticks, ports].astype(np.int64)
    ticks, ports = ticks.repeat(n), ports.repeat(n)
    dst, plane = fabric.port_peer_nic[ports], fabric.port_reverse[ports] % fabric.n_planes
    src = _senders(record.flows, dst)
    evs = plane.astype(np.int64) << known.ev_plane_shift
    lost = _rows(edges_us, ticks[src >= 0], routes(known, src, dst, evs)[src >= 0].astype(np.int32))
    return hashed, _seen(hashed, *counts(hashed, hashed.counts), lost)


def with_ways(search: Search, place: Place) -> Place:
    """Return a place that damages packets, or what else all of these crossed: how many others did
    nobody knows where each queue pair keeps to one way.
    """
    routes = search.seen.lost.routes
    mine = routes[np.isin(routes, place.ports).any(axis=1)]
    common = [port for port in np.unique(mine).tolist() if (mine == port).any(axis=1).all()]
    rows = [row for row in search.table.rows if len(row.ports) == 1 and row.ports[0] in common]
    names = [name for row in rows for name in (row.where, *row.others)]
    known = (place.where, *place.one_of)
    return place._replace(one_of=(*place.one_of, *(it for it in names if it not in known)))


def _senders(flows: pl.DataFrame, dst: Numbers) -> Numbers:
    """Who sent each packet that arrived damaged at these NICs, in proportion to what senders sent
    there again; -1 where nobody did.
    """
    import polars as pl

    again = flows.group_by("dst", "src").agg(pl.col("retransmitted").sum()).sort("dst", "src")
    found = np.full(len(dst), -1, np.int64)
    for nic in np.unique(dst).tolist():
        mine = again.filter((pl.col("dst") == nic) & (pl.col("retransmitted") > 0))
        if not len(mine):
            continue
        rows = np.flatnonzero(dst == nic)
        upto = np.cumsum(mine["retransmitted"].to_numpy())
        at = (np.arange(len(rows)) * 0.6180339887 % 1) * upto[-1]  # evenly, whenever they came
        found[rows] = mine["src"].to_numpy()[np.searchsorted(upto, at, side="right")]
    return found


def _rows(edges_us: FloatArray, ticks: Numbers, crossed: IntArray) -> Packets:
    """Losses, those of a tick and way evenly within the tick."""
    order = np.lexsort((*crossed.T, ticks))
    ticks, crossed, n = ticks[order], crossed[order], len(ticks)
    new = np.append(True, (np.diff(ticks) != 0) | (np.diff(crossed, axis=0) != 0).any(axis=1))[:n]
    group = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    size = np.diff(np.append(first, n))
    part = (np.arange(n) - first[group] + 0.5) / size[group] if n else np.zeros(0)
    at_us = edges_us[ticks] + part * np.diff(edges_us)[ticks]
    return Packets(
        routes=crossed, back=np.full((n, 2), -1, np.int32), sent_us=at_us, known_us=at_us,
        qp=-1 - np.arange(n, dtype=np.int32), ev=np.zeros(n, np.int64), probe=np.zeros(n, np.bool_),
    )  # fmt: skip


def _seen(
    record: Record, edges_us: FloatArray, each: dict[str, FloatArray], lost: Packets
) -> Observed:
    out = each["packets_out"]
    lost = lost.take(np.argsort(lost.sent_us, kind="stable"))
    return Observed(
        fabric=record.known, lost=lost, answered=lost.take(np.zeros(0, np.int64)),
        edges_us=edges_us, sent=out, out=out, dropped=each["dropped"],
        full=each["marked"] + each["trimmed_here"] + each["dropped"], damaged=each["damaged"],
        gone=each["gone"], answers=out, rtt_us=record.rtt_us, over=is_over(record),
        down=each["down"],
    )  # fmt: skip
