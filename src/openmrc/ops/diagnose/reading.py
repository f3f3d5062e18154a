"""What a record of a run holds, as the model observes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.model import BoolArray, Fabric
from openmrc.fabric.ways import routes
from openmrc.ops.diagnose.observed import MOMENT_US, FloatArray, Observed, Packets
from openmrc.ops.records import Record
from openmrc.run.ports import BIN_RTTS, FINE, TICK, TICKS_MAX

if TYPE_CHECKING:
    import polars as pl

EDGES_MAX = 2 * TICKS_MAX + 1  # of ticks: some begin or end where nothing is counted

MERGED = 1.5  # ticks that are one are at least two

Span = tuple[int, float, float]  # a directed port that was down, from when until when, us


def observed(record: Record) -> Observed:
    """Return all that is observed of a run whose senders keep an account."""
    import polars as pl

    assert record.account is not None
    known, account = record.known, record.account
    edges_us, each = counts(record, record.counts)
    became = pl.col("became")
    lost = _packets(known, account.filter(became.is_in(["lost", "probe lost"])))
    answered = _packets(known, account.filter(became == "probe answered"))
    counted = bool(each["packets_out"].any())
    return Observed(
        fabric=known,
        lost=joined(lost, told_down(known, _said(record, edges_us, each["down"]), lost)),
        answered=answered,
        edges_us=edges_us,
        sent=each["packets"],
        out=each["packets_out"],
        dropped=each["dropped"],
        full=each["marked"] + each["trimmed_here"] + each["dropped"],
        damaged=each["damaged"],
        gone=each["gone"],
        answers=each["answered"],
        rtt_us=record.rtt_us if counted else _round_trip_us(record, answered),
        counted=counted,
        late_us=account.filter(became == "late")["known_us"].to_numpy(),
        narrow=frozenset(
            record.paths.filter(pl.col("narrow_bytes") > 0).select("qp", "ev").unique().rows()
        ),
        silent=_silent(record),
        over=is_over(record),
        down=each["down"] if record.outline is None else each["down"][:0],
    )


def _silent(record: Record) -> BoolArray | None:
    if record.outline is None:
        return None
    _, each = counts(replace(record, outline=None), record.port_counts)
    found = np.zeros((len(each["packets_out"]), record.known.n_ports), np.bool_)
    for port, of in enumerate(record.outline.port_of.tolist()):
        found[:, of] |= each["packets_out"][:, port] == 0
    return found


def _round_trip_us(record: Record, answered: Packets) -> float:
    """The round trip of hosts that a scheduler lets run: as most probes found it."""
    took_us = answered.known_us - answered.sent_us
    return max(record.rtt_us, float(np.median(took_us)) if len(took_us) else 0.0)


def is_over(record: Record) -> bool:
    """Return whether all messages came: nothing is under way at the end."""
    return not record.flows["done_us"].null_count() and not record.flows["failed"].any()


def counts(record: Record, rows: pl.DataFrame | None) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return the edges of ticks, and [ticks, ports] each count of `TICK` but `LOAD`; `InputError`
    for more ticks than a run has.
    """
    assert rows is not None
    begin, end = (rows[name].to_numpy() for name in ("from_us", "until_us"))
    edges_us = np.unique(np.concatenate([[0.0], begin, end, [record.end_us]]))
    if (n := len(edges_us) - 1) > EDGES_MAX:
        raise InputError(
            f"counts.parquet: its rows begin and end at {n:,} times; those of a run at most at"
            f" {EDGES_MAX}; run it again"
        )
    found = {name: np.zeros((n, record.known.n_ports)) for name in TICK if name != "busy_ns"}
    at = np.minimum(np.searchsorted(edges_us, begin), n - 1)
    for name, each in found.items():
        np.add.at(each, (at, rows["port"].to_numpy()), rows[name].to_numpy())
    return edges_us, found


def _packets(known: Fabric, rows: pl.DataFrame) -> Packets:
    """Rows of the account, in the order in which they were sent."""
    rows = rows.sort("sent_us", "qp", "ev", "became")
    src, dst, ev = (rows[name].to_numpy() for name in ("src", "dst", "ev"))
    crossed = routes(known, src, dst, ev).astype(np.int32)
    last = crossed[np.arange(len(rows)), (crossed >= 0).sum(axis=1) - 1]
    back = known.port_reverse[np.stack([last, crossed[:, 0]], axis=1)]
    probe = rows["became"].str.starts_with("probe").to_numpy()
    return Packets(
        routes=crossed,
        back=back.astype(np.int32),
        sent_us=rows["sent_us"].to_numpy(),
        known_us=rows["known_us"].to_numpy(),
        qp=rows["qp"].to_numpy().astype(np.int32),
        ev=ev,
        probe=probe,
    )


def told_down(known: Fabric, spans: Sequence[Span], like: Packets) -> Packets:
    """Return directed ports that were said to be down, from when until when, as probes that they
    lost at their first and their last moment, which nothing else explains; as wide as others.
    """
    ports = np.array([port for port, *_ in spans for _ in range(2)], np.int32)
    at_us = np.array([at for _, *times in spans for at in times], np.float64)
    n = len(ports)
    crossed = np.full((n, like.routes.shape[1]), -1, np.int32)
    crossed[:, 0] = ports
    return Packets(
        routes=crossed, back=np.full((n, 2), -1, np.int32), sent_us=at_us, known_us=at_us,
        qp=-1 - np.arange(n, dtype=np.int32), ev=np.full(n, -1), probe=np.ones(n, np.bool_),
    )  # fmt: skip


def joined(some: Packets, more: Packets) -> Packets:
    """Return both, in the order in which they left."""
    if not len(more):
        return some
    each = {name: np.concatenate([it, getattr(more, name)]) for name, it in vars(some).items()}
    both = Packets(**each)
    return both.take(np.argsort(both.sent_us, kind="stable"))


def _tick_us(record: Record) -> float:
    """How long after one another ports are read."""
    return record.rtt_us * BIN_RTTS / FINE


def _said(record: Record, edges_us: FloatArray, down: FloatArray) -> list[Span]:
    """The ports that were down, as NICs say of both directions of their links, and as those between
    switches were found when they were read. Where switches hash these are no ports of a path.
    """
    known, nics = record.known, _spans(record)
    found = [
        (it, since_us, until_us)
        for own, since_us, until_us in nics
        for it in (own, int(known.port_reverse[own]))
    ]
    if record.outline is None:
        between = (known.port_switch >= 0) & (known.port_peer_switch >= 0)
        found += read_down(edges_us, down * between, _tick_us(record))
    return found


def read_down(edges_us: FloatArray, down: FloatArray, tick_us: float) -> list[Span]:
    """Return the ports that readings [ticks, ports] found down, and the first and the last time.
    Where several ticks are one nobody knows when in it.
    """
    single = np.diff(edges_us) < MERGED * tick_us
    found = []
    for port in np.flatnonzero(down.any(axis=0)).tolist():
        ticks = np.flatnonzero((down[:, port] > 0) & single)
        for run in np.split(ticks, np.flatnonzero(np.diff(ticks) > 1) + 1):
            if len(run):
                first_us, last_us = edges_us[[run[0] + 1, run[-1] + 1]].tolist()
                found.append((port, first_us - MOMENT_US, last_us - MOMENT_US))
    return found


def _spans(record: Record) -> list[Span]:
    """NICs' own ports that were down, and from when until when."""
    import polars as pl

    assert record.events is not None
    known, down = record.known, dict[int, float]()
    own = record.events.filter(pl.col("qp") < 0).sort("t_us")
    found = []
    for at_us, nic, ev, event in own.select("t_us", "src", "ev", "event").rows():
        plane = ev >> known.ev_plane_shift & (1 << known.ev_plane_bits) - 1
        port = nic * known.n_planes + plane
        if event == "port down":
            down.setdefault(port, at_us)
        elif port in down:
            found.append((port, down.pop(port), at_us - MOMENT_US))
    return found + [(port, at_us, record.end_us) for port, at_us in down.items()]
