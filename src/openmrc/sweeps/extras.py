"""Tables that a data set can keep of each run beside its flows: what a figure over time needs.

timeline  one row per transport and bin of simulated time, as in `timeline.parquet`
paths     one row per transport, interval and EV of the QP of `[report]`: packets sent, state
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING

from openmrc.units import US

if TYPE_CHECKING:
    import polars as pl

    from openmrc.run import Result, TransportResult

SAMPLED = ("paths",)  # made of samples, which a run takes only if it is told to


def needs_samples(names: Iterable[str]) -> bool:
    """Whether one of these tables is made of samples."""
    return any(name in SAMPLED for name in names)


def tables(result: Result, names: Iterable[str]) -> dict[str, bytes]:
    """Return these tables of a run, as Parquet."""
    return {name: _parquet(_table(result, name)) for name in names}


def _table(result: Result, name: str) -> pl.DataFrame:
    from openmrc.tables import stacked

    return result.timeline if name == "timeline" else stacked(map(_paths, result.transports))


def _paths(run: TransportResult) -> pl.DataFrame:
    """One row per interval and EV; `state` is that of `sim.samples`, `used` counts packets."""
    import numpy as np
    import polars as pl

    if run.samples is None:
        raise ValueError("paths: the run was not sampled")
    qp = run.samples.qp
    used = qp.values["used"]
    intervals, evs = used.shape
    at_us = np.arange(intervals) * qp.interval_ps / US
    names = [qp.names.get(int(value), "") for value in qp.evs]
    return pl.DataFrame(
        {
            "transport": [run.name] * used.size,
            "t_us": np.repeat(at_us, evs),
            "ev": np.tile(np.arange(evs), intervals),
            "path": names * intervals,
            "plane": np.tile(qp.plane, intervals),
            "state": qp.values["state"].ravel(),
            "used": used.ravel(),
        }
    )


def _parquet(table: pl.DataFrame) -> bytes:
    stream = BytesIO()
    table.write_parquet(stream)
    return stream.getvalue()
