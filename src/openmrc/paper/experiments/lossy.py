"""B12: one of sixteen paths begins to lose packets, and a backup replaces it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.paper import series, style
from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

AT_MS = 1.0  # when the losses begin
RTT_US = 6.92  # of this fabric, empty; a run prints it as base_rtt
# Two round trips; 1.7 us until the first of five packets on a path at 100 Gb/s is lost; 4 us of
# sampling.
SWAP_US = 2 * RTT_US + 1.7 + 4
EV_A, EV_B = "over plane 0 t1 0", "over plane 0 t1 1"
PATHS = {EV_A: "path A", EV_B: "path B"}
ASSUMED_BAD = 4  # in `state`, as sim.samples has it
TAGS = {"20 %": 0.2, "1 %": 0.01, "5 %": 0.05, "50 %": 0.5, "100 %": 1.0}
TOLERATED = 0.99  # of the line rate; the figure is read off a graph


def _lossy(data: Data) -> Finding:
    swaps: list[float] = []
    after: list[float] = []
    dips: list[float] = []
    lost: list[float] = []
    others: list[float] = []
    drawn: dict[str, Any] = {}
    for tag in data.tags:
        runs = zip(data.tables(tag, "paths"), data.tables(tag, "timeline"), strict=True)
        for paths, timeline in runs:
            if not in_use(paths):
                continue  # the path that loses was a backup: nothing can be seen
            t_ms, gbps = series.column(timeline, "goodput_gbps")
            rate = series.mean_between(t_ms, gbps, AT_MS, float(t_ms[-1])) / series.LINE_GBPS
            if tag != "20 %":
                others.append(100 * rate)
                continue
            if not swaps:
                drawn = _drawn(paths, timeline)
            swaps.append(swap_us(paths))
            after.append(100 * rate)
            dips.append(1e3 * series.dip_ms(t_ms, gbps, AT_MS, float(t_ms[-1]), series.LINE_GBPS))
            lost.append(float(timeline["retransmitted"].sum()))
    rates = ", ".join(tag for tag in data.tags if tag != "20 %")
    return Finding(
        [
            Check(
                "20 %: from the beginning of losses to path A out of use",
                "at once",
                swaps,
                "us",
                Bar(high=round(SWAP_US)),
            ),
            Check("20 %: packets lost until then", "not published", lost),
            Check(
                "20 %: rate from then on",
                "line rate kept",
                after,
                "% of line rate",
                Bar(low=100 * TOLERATED),
            ),
            Check("20 %: time under 95 % of line rate", "no dip visible", dips, "us", Bar(high=50)),
            Check(
                f"{rates}: rate from then on",
                "the same",
                others,
                "% of line rate",
                Bar(low=100 * TOLERATED),
            ),
        ],
        drawn,
        [
            f"The bar of the first row is two round trips (of {RTT_US} us), the 1.7 us until the "
            "first of five packets is lost, and 4 us of sampling. Which path of a plane is in use "
            "is drawn from the seed: of the seeds 1 to 8 those count in which it is the one that "
            "loses. Path A is probed from then on, and when enough probes were answered in a "
            "row it is GOOD again, but in reserve: path B keeps its place."
        ],
    )


def _of(paths: pl.DataFrame, name: str) -> pl.DataFrame:
    import polars as pl

    return paths.filter(pl.col("path") == name).sort("t_us")


def in_use(paths: pl.DataFrame) -> bool:
    """Whether path A carried data before it began to lose."""
    import polars as pl

    return bool(_of(paths, EV_A).filter(pl.col("t_us") < AT_MS * 1e3)["used"].sum() > 10)


def swap_us(paths: pl.DataFrame) -> float:
    """Return the end of the interval in which path A was left, us after losses began."""
    ev = _of(paths, EV_A)
    t_us, state = ev["t_us"].to_numpy(), ev["state"].to_numpy()
    bad = (state == ASSUMED_BAD) & (t_us >= AT_MS * 1e3)
    return float(t_us[bad.argmax()] + t_us[1] - t_us[0] - AT_MS * 1e3) if bad.any() else np.inf


def _drawn(paths: pl.DataFrame, timeline: pl.DataFrame) -> dict[str, Any]:
    """The content of the figure: both paths around the beginning of losses, and the goodput."""
    drawn: dict[str, Any] = {}
    for name, words in PATHS.items():
        ev = _of(paths, name)
        t_us = ev["t_us"].to_numpy()
        gbps = ev["used"].to_numpy() * 4096 * 8e-3 / (t_us[1] - t_us[0])
        t, mean = series.rebinned(t_us / 1e3, gbps, len(gbps) // 2)
        shown = (t > AT_MS - 0.2) & (t < AT_MS + 0.3)
        drawn[words] = {"t_ms": series.listed(t[shown]), "gbps": series.listed(mean[shown])}
    t_ms, gbps = series.column(timeline, "goodput_gbps")
    return drawn | {"t_ms": series.listed(t_ms), "gbps": series.listed(gbps)}


def _draw(drawn: Any) -> Figure:
    fig, (left, right) = style.figure(2)
    for number, words in enumerate(PATHS.values()):
        path = drawn[words]
        style.steps(left, path["t_ms"], path["gbps"], number, label=words)
    style.event(left, AT_MS, "      A loses 20 %", 0.6)
    left.set(xlabel="simulated time, ms", ylabel="payload sent over the path, Gb/s", ylim=(-4, 130))
    style.legend(left, loc="upper left", ncols=2)
    style.steps(right, drawn["t_ms"], drawn["gbps"], label="simulated")
    style.published(right, series.LINE_GBPS, "line rate kept")
    style.event(right, AT_MS, "A loses 20 %", 0.6)
    right.set(xlabel="simulated time, ms", ylabel="goodput, Gb/s", ylim=(0, 900))
    style.legend(right, loc="lower right")
    return fig


B12 = Experiment(
    "B12",
    "a path that loses packets",
    "Figs. 12 and 13, cluster B",
    "A QP has sixteen paths, two in each of eight planes, one of them in use and one in reserve. "
    "One in use begins to drop 20 % of its packets. It is out of use at once, its reserve takes "
    "over, and the line rate is kept; other rates of loss look the same.",
    "One QP between two NICs, as in the original; the minute before and after became "
    "milliseconds. The path is drawn by a loss on one uplink of the sender's T0.",
    [
        Case(
            tag,
            "B12_lossy_path",
            {"fault[0].rate": rate},
            seeds=8,
            keep=("timeline", "paths"),
            quick={"seed": 2} if tag == "20 %" else None,
        )
        for tag, rate in TAGS.items()
    ],
    _lossy,
    _draw,
)
