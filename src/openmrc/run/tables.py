"""Results as data frames: one builder for the Python API and for files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import isfunction
from typing import Any

import numpy as np
import polars as pl

from openmrc.errors import MissingExtra
from openmrc.fabric.model import LongArray
from openmrc.run.figures import PACKETS, PATHS, PERCENTILES, ROCE, flat, without_lists
from openmrc.run.outcome import TransportResult
from openmrc.run.ports import TICK
from openmrc.run.witness import BECAME, EVENTS
from openmrc.units import US

# Every figure of a transport's summary, named by its place there. The types are stated, so that a
# part in which all values are null can be stacked with others.
FIGURES: dict[str, Any] = {
    "whole_us": pl.Float64,
    "sim_time_us": pl.Float64,
    "loop_s": pl.Float64,
    "link_traversals": pl.Int64,
    "link_traversals_per_s": pl.Int64,
    **dict.fromkeys(
        (f"flows.{k}" for k in ("total", "completed", "failed", "unfinished")), pl.Int64
    ),
    **dict.fromkeys((f"flows.fct_us.{k}" for k in ("min", *PERCENTILES, "mean")), pl.Float64),
    **dict.fromkeys(
        (f"goodput_gbps.{k}" for k in ("min", "mean", "p100_flow", "total", "delivered")),
        pl.Float64,
    ),
    "ideal_us": pl.Float64,
    "slowdown_p100": pl.Float64,
    **dict.fromkeys((f"packets.{k}" for k in PACKETS), pl.Int64),
    **dict.fromkeys((f"paths.{k}" for k in PATHS), pl.Int64),
    **dict.fromkeys((f"roce.{k}" for k in ROCE), pl.Int64),
    "training.steps.total": pl.Int64,
    "training.steps.completed": pl.Int64,
    "training.ranks": pl.Int64,
    **dict.fromkeys((f"training.step_us.{k}" for k in ("min", *PERCENTILES, "mean")), pl.Float64),
    **dict.fromkeys((f"training.ideal_step_us.{k}" for k in ("compute", "network")), pl.Float64),
    "training.lost_to_network": pl.Float64,
    "training.gpu_busy": pl.Float64,
    "training.died": pl.Boolean,
    "training.died_in_step": pl.Int64,
    "training.died_us": pl.Float64,
    "training.lost_s": pl.Float64,
    **dict.fromkeys(
        (f"training.a_day.{k}" for k in ("faults", "deaths", "useful", "goodput")), pl.Float64
    ),
    "qp_errors": pl.List(pl.String),
    "bytes_verified": pl.Int64,
}


class Table(pl.DataFrame):
    """A data frame of results, and what polars makes of one: says what a conversion lacks."""

    def to_pandas(self, **options: Any) -> Any:
        """As polars does; raises `MissingExtra` without pandas and pyarrow."""
        try:
            return super().to_pandas(**options)
        except ModuleNotFoundError:
            raise MissingExtra("to_pandas", "pandas") from None


def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a data frame, which gives a `Table` for a data frame."""

    @functools.wraps(method)
    def kept(self: Table, *given: Any, **named: Any) -> Any:
        found = method(self, *given, **named)
        return Table(found) if type(found) is pl.DataFrame else found

    return kept


for _name, _method in vars(pl.DataFrame).items():
    gives = _method.__annotations__.get("return") if isfunction(_method) else None
    if "DataFrame" in str(gives) and _name not in vars(Table):
        setattr(Table, _name, _kept(_method))


def stacked(tables: Iterable[pl.DataFrame]) -> Table:
    """Return the stacked tables; empty if there is none."""
    return Table(pl.concat([*tables] or [pl.DataFrame()]))


def figure_table(run: TransportResult) -> pl.DataFrame:
    """Return one row: the transport's name and every figure of its summary.

    It has no figures of single jobs: `flow_table` has a column to group by. It has those of
    training if the workload is training.
    """
    summary = without_lists(run.summary())
    summary.pop("jobs", None)
    own = {k: v for k, v in FIGURES.items() if "training" in summary or not _of_training(k)}
    return pl.DataFrame(
        [{"transport": run.name} | flat(summary)],
        schema={"transport": pl.String} | own,
    )


def flow_table(run: TransportResult) -> pl.DataFrame:
    """Return one row per flow; times in us, null where the event never came.

    `messages` is 1, or how many a generated flow stands for; `job` is null where there are none.
    """
    flows, n, jobs = run.flows, len(run.completed), np.array(run.jobs)
    done_us = _us_or_null(flows["done_ps"])
    start_us = _us_or_null(flows["start_ps"])
    return pl.DataFrame(
        {
            "transport": [run.name] * n,
            "flow": np.arange(n),
            "qp": flows["qp"],
            "src": flows["src"],
            "dst": flows["dst"],
            "bytes": flows["bytes"],
            "start_us": start_us,
            "done_us": done_us,
            "fct_us": done_us - start_us,
            "delivered_us": _us_or_null(flows["delivered_ps"]),
            "retransmitted": flows["retransmitted"],
            "failed": flows["failed"].astype(bool),
            "error": list(run.flow_errors),
            "messages": flows["messages"],
            "job": pl.Series(jobs[run.flow_job] if run.jobs else [None] * n, dtype=pl.String),
        }
    )


def step_table(run: TransportResult) -> pl.DataFrame:
    """Return one row per step of a training job, none for another workload; times in us, null for
    steps that never ended.

    `end_us` is when the last rank (`last_rank`) ended it, `first_end_us` the first; `step_us` is
    its duration; `compute_us` and `network_us` are its durations without a network, and in a
    perfect one.
    """
    job = run.training
    ends = np.zeros((0, 1), np.int64) if job is None else job.ends_ps
    n, done = len(ends), 0 if job is None else job.completed
    whole = np.arange(n) < done
    last = ends.max(axis=1, initial=-1)
    first = np.where(ends >= 0, ends, np.iinfo(np.int64).max).min(axis=1, initial=2**62)
    none = np.zeros(0, np.int64)
    compute = none if job is None else job.compute_ends_ps
    network = none if job is None else job.network_ends_ps
    return pl.DataFrame(
        {
            "transport": [run.name] * n,
            "step": np.arange(1, n + 1),
            "end_us": _us_or_null(np.where(whole, last, -1)),
            "step_us": _us_or_null(np.where(whole, np.diff(last, prepend=0), -1)),
            "first_end_us": _us_or_null(np.where((ends >= 0).any(axis=1), first, -1)),
            "last_rank": pl.Series(
                [int(r) if w else None for r, w in zip(ends.argmax(axis=1), whole, strict=True)],
                dtype=pl.Int64,
            ),
            "compute_us": _us_or_null(np.diff(compute, prepend=0)),
            "network_us": _us_or_null(np.diff(network, prepend=0)),
        }
    )


def time_table(run: TransportResult) -> pl.DataFrame:
    """Return one row per bin: its start, goodput, packets retransmitted, lost and trimmed; and
    lists of the goodput of each job and each flow, in their order, null if these were not recorded.
    """
    timeline = run.timeline
    return pl.DataFrame(
        {
            "transport": [run.name] * len(timeline["t_ps"]),
            "t_us": timeline["t_ps"] / US,
            "goodput_gbps": timeline["goodput_bytes"] * 8e3 / run.bin_ps,
            "retransmitted": timeline["retransmitted"],
            "lost": timeline["lost"],
            "trimmed": timeline["trimmed"],
            "job_gbps": _rates(run, "job"),
            "flow_gbps": _rates(run, "flow"),
        }
    )


def event_table(run: TransportResult) -> pl.DataFrame:
    """Return one row for each time that a sender set a path aside or returned it to service, or
    that a port of its own went down or came up (`qp` -1; the EV is that of the plane alone).
    """
    seen = run.testimony
    columns = {} if seen is None else seen.events
    order = np.argsort(columns.get("at_ps", np.zeros(0)), kind="stable")
    names = np.array(EVENTS)
    return pl.DataFrame(
        {
            "transport": pl.Series([run.name] * len(order), dtype=pl.String),
            "t_us": columns.get("at_ps", np.zeros(0))[order] / US,
            **{name: _whole(columns, name)[order] for name in ("qp", "src", "dst", "ev")},
            "event": pl.Series(names[_whole(columns, "event")[order]], dtype=pl.String),
        }
    )


def path_table(run: TransportResult) -> pl.DataFrame:
    """Return one row for each bin of time and path that lost packets in it, as its sender
    counts: packets sent on the path, and those of them, or of its probes, that were lost; and the
    payload of the smallest packet that it loses, if it passes smaller ones, else 0.
    """
    columns = {} if run.testimony is None else run.testimony.lossy
    return pl.DataFrame(
        {
            **_of_bins(run, _whole(columns, "bin")),
            **{name: _whole(columns, name) for name in ("qp", "src", "dst", "ev", "sent", "lost")},
            "first_us": _whole(columns, "first_ps") / US,
            "last_us": _whole(columns, "last_ps") / US,
            "narrow_bytes": _whole(columns, "narrow_bytes"),
        }
    )


def account_table(run: TransportResult) -> pl.DataFrame:
    """Return one row for each packet or probe that a sender judged lost, and for each probe that
    was answered: when it left, when the sender knew, its path, and what became of it. What is
    "late" was judged lost, and proved to be none.
    """
    columns = {} if run.testimony is None else run.testimony.account
    n = len(columns.get("qp", ()))
    return pl.DataFrame(
        {
            "transport": _transport(run, n),
            "sent_us": _whole(columns, "sent_ps") / US,
            "known_us": _whole(columns, "known_ps") / US,
            **{name: _whole(columns, name) for name in ("qp", "src", "dst", "ev")},
            "became": pl.Series(np.array(BECAME)[_whole(columns, "became")], dtype=pl.String),
        }
    )


def count_table(run: TransportResult) -> pl.DataFrame:
    """Return one row for each tick and directed port in use: the packets that senders put on paths
    across it, those of which they got answers; of the port that sends there, what it dropped or
    trimmed because its queues were full, what it sent and marked, and for how long; what the NIC at
    the other end got with a wrong iCRC; what was sent and the port at the other end did not get;
    and how many readings found the port down. A fabric's ports have the same numbers in every run.
    """
    seen = run.testimony
    ticks = np.zeros((0, len(TICK), 0), np.int32) if seen is None else seen.ticks
    rows, ports = np.nonzero(ticks.any(axis=1))
    counts = {name: ticks[rows, i, ports].astype(np.int64) for i, name in enumerate(TICK)}
    ends_us = np.zeros(0) if seen is None else seen.tick_ends_ps / US
    times = {"from_us": np.append(0.0, ends_us)[rows], "until_us": ends_us[rows]}
    return pl.DataFrame({"transport": _transport(run, len(rows)), **times, "port": ports, **counts})


def _of_bins(run: TransportResult, bins: LongArray) -> dict[str, Any]:
    """The first columns of rows that belong to these bins of a testimony."""
    seen = run.testimony
    width, end = (0, 0) if seen is None else (seen.bin_ps, seen.end_ps)
    return {
        "transport": _transport(run, len(bins)),
        "from_us": bins * width / US,
        "until_us": np.minimum((bins + 1) * width, end) / US,
    }


def _transport(run: TransportResult, n: int) -> pl.Series:
    """A column of the name of a transport."""
    return pl.Series([run.name] * n, dtype=pl.String)


def _whole(columns: dict[str, Any], name: str) -> Any:
    return columns.get(name, np.zeros(0)).astype(np.int64)


def _rates(run: TransportResult, whose: str) -> pl.Series:
    """One list per bin: the goodput of each job, or flow, in Gb/s."""
    lists = pl.List(pl.Float64)
    kept = run.placed.get(whose)
    if kept is None:
        return pl.Series([None] * len(run.timeline["t_ps"]), dtype=lists)
    return pl.Series(kept * 8e3 / run.bin_ps).cast(lists)  # rows of an array, not Python's floats


def _of_training(figure: str) -> bool:
    return figure.startswith("training.")


def _us_or_null(times_ps: Any) -> pl.Series:
    times = pl.Series(times_ps)
    return pl.select(pl.when(times >= 0).then(times / US)).to_series()
