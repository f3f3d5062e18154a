"""What a record of a run holds, as the model observes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.errors import InputError
from openmrc.fabric.model import Fabric
from openmrc.fabric.ways import routes
from openmrc.ops.diagnose.observed import FloatArray, Observed, Packets
from openmrc.ops.records import Record
from openmrc.run.witness import COUNTED, TICKS_MAX

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("packets", "answered", *COUNTED)
EDGES_MAX = 2 * TICKS_MAX + 1  # of ticks: some begin or end where nothing is counted
MOMENT_US = 1e-6  # just before


def observed(record: Record) -> Observed:
    """Return all that is observed of a run whose senders keep an account."""
    import polars as pl

    assert record.account is not None
    assert record.counts is not None
    known, account = record.known, record.account
    edges_us, counts = _counts(record, record.counts)
    sent, answers, dropped, _, out, damaged, gone = counts
    became = pl.col("became")
    lost = _packets(known, account.filter(became.is_in(["lost", "probe lost"])))
    return Observed(
        fabric=known,
        lost=_with_ports(record, lost),
        answered=_packets(known, account.filter(became == "probe answered")),
        edges_us=edges_us,
        sent=sent,
        out=out,
        dropped=dropped,
        damaged=damaged,
        gone=gone,
        answers=answers,
        rtt_us=record.rtt_us,
        over=not record.flows["done_us"].null_count() and not record.flows["failed"].any(),
    )


def _counts(record: Record, rows: pl.DataFrame) -> tuple[FloatArray, FloatArray]:
    """The edges of ticks, and [`COLUMNS`, ticks, ports] counts; `InputError` for more ticks than a
    run has.
    """
    begin, end = (rows[name].to_numpy() for name in ("from_us", "until_us"))
    edges_us = np.unique(np.concatenate([[0.0], begin, end, [record.end_us]]))
    if (n := len(edges_us) - 1) > EDGES_MAX:
        raise InputError(
            f"counts.parquet: its rows begin and end at {n:,} times; those of a run at most at"
            f" {EDGES_MAX}; run it again"
        )
    found = np.zeros((len(COLUMNS), n, record.known.n_ports))
    at = np.minimum(np.searchsorted(edges_us, begin), n - 1)
    for each, name in zip(found, COLUMNS, strict=True):
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


def _with_ports(record: Record, lost: Packets) -> Packets:
    """The losses, and the own ports that NICs said were down: as probes that both directions of
    such a link lost at its first and its last moment, which nothing else explains.
    """
    known = record.known
    spans = _spans(record)
    each = [
        (at_us, port)
        for own, *both in spans
        for at_us in both
        for port in (own, int(known.port_reverse[own]))
    ]
    if not each:
        return lost
    n = len(each)
    at_us, ports = np.array([it[0] for it in each]), np.array([it[1] for it in each])
    crossed = np.full((n, lost.routes.shape[1]), -1, np.int32)
    crossed[:, 0] = ports
    new: dict[str, Any] = {
        "routes": crossed,
        "back": np.full((n, 2), -1, np.int32),
        "sent_us": at_us,
        "known_us": at_us,
        "qp": -1 - np.arange(n, dtype=np.int32),
        "ev": np.full(n, -1),
        "probe": np.ones(n, np.bool_),
    }
    both = Packets(**{k: np.concatenate([old, new[k]]) for k, old in vars(lost).items()})
    return both.take(np.argsort(both.sent_us, kind="stable"))


def _spans(record: Record) -> list[tuple[int, float, float]]:
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
