"""Tables that a data set can keep of each run beside its flows: what a figure over time needs.

timeline  one row per transport and bin of simulated time, as in `timeline.parquet`
steps     one row per transport and step of a training job, as in `steps.parquet`
paths     one row per transport, interval and EV of the QP of `[report]`: packets sent, state
queues    one row per transport, interval and group of links: load, the longest queue
counters  one row per transport and counter, all that the simulator counts
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING

from openmrc.units import US

if TYPE_CHECKING:
    import polars as pl

    from openmrc.run.outcome import TransportResult
    from openmrc.run.results import Result

SAMPLED = ("paths", "queues")  # made of samples, which a run takes only on request


def needs_samples(names: Iterable[str]) -> bool:
    """Whether one of these tables is made of samples."""
    return any(name in SAMPLED for name in names)


def tables(result: Result, names: Iterable[str]) -> dict[str, bytes]:
    """Return these tables of a run, as Parquet."""
    return {name: _parquet(_table(result, name)) for name in names}


def flows(result: Result, run: str) -> bytes:
    """Return one row per transport and flow of a run, as Parquet."""
    import polars as pl

    return _parquet(result.flows.select(pl.lit(run).alias("run"), pl.all()))


def _table(result: Result, name: str) -> pl.DataFrame:
    from openmrc.run.tables import stacked

    if name == "timeline":
        return result.timeline
    if name == "steps":
        return result.steps
    return stacked(map(TABLES[name], result.transports))


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


def _queues(run: TransportResult) -> pl.DataFrame:
    """One row per interval and group: all links of a plane between two rows in one direction.

    `row` is that of the lower end, 0 for NICs, and `down` says whether the links lead to it.
    """
    import numpy as np
    import polars as pl

    if run.samples is None:
        raise ValueError("queues: the run was not sampled")
    groups = run.samples.groups
    intervals, n = groups.values["load"].shape
    return pl.DataFrame(
        {
            "transport": [run.name] * (intervals * n),
            "t_us": np.repeat(np.arange(intervals) * groups.interval_ps / US, n),
            "plane": np.tile(groups.plane, intervals),
            "row": np.tile(groups.row, intervals),
            "down": np.tile(groups.down.astype(bool), intervals),
            "load": groups.values["load"].ravel(),
            "queue_bytes": groups.values["queue_bytes"].ravel(),
        }
    )


def _counters(run: TransportResult) -> pl.DataFrame:
    """One row per counter."""
    import polars as pl

    names = list(run.counters)
    values = [run.counters[name] for name in names]
    return pl.DataFrame({"transport": [run.name] * len(names), "counter": names, "value": values})


TABLES = {"paths": _paths, "queues": _queues, "counters": _counters}


def _parquet(table: pl.DataFrame) -> bytes:
    stream = BytesIO()
    table.write_parquet(stream)
    return stream.getvalue()
