"""B2: links between switches flap while a collective repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from openmrc.paper import style
from openmrc.paper.data import Data
from openmrc.paper.experiment import FEW, Case, Experiment, Finding
from openmrc.paper.verdict import Bar, Check

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

RANKS = 64
STEPS = 2 * (RANKS - 1)  # of one all-reduce
FLAP_MS = 0.5  # between two flaps of the 1024 links, on average
PER_MINUTE = 14  # most that was published
MINUTE_US = 60e6
NEVER = "1000000s"


def times_us(flows: pl.DataFrame) -> npt.NDArray[np.float64]:
    """Return how long each all-reduce took: until the last rank has the last of its steps."""
    done = flows.sort("flow")["done_us"].to_numpy().reshape(RANKS, -1)
    ends = done[:, STEPS - 1 :: STEPS].max(axis=0)
    return np.diff(ends, prepend=0.0)


def _b2(data: Data) -> Finding:
    calm = [times_us(flows) for flows in data.tables("calm", "flows")]
    flapping = [times_us(flows) for flows in data.tables("flapping", "flows")]
    per_flap, percent, share = [], [], []
    for quiet, shaken in zip(calm, flapping, strict=True):
        more_us = float(shaken.sum() - quiet.sum())
        flaps = float(shaken.sum()) / (FLAP_MS * 1e3)
        per_flap.append(more_us / flaps)
        share.append(100 * more_us / float(quiet.sum()))
        percent.append(100 * per_flap[-1] * PER_MINUTE / MINUTE_US)
    errors = [float(len(row["qp_errors"])) for row in data.rows("flapping")]
    fig, (axes,) = style.figure()
    numbers = np.arange(1, len(calm[0]) + 1)
    axes.plot(numbers, calm[0] / 1e3, **style.line(0, marked=True), label="no flaps")
    for seed, shaken in enumerate(flapping):
        label = f"a flap every {FLAP_MS:g} ms, seed {seed + 1}"
        axes.plot(numbers, shaken / 1e3, **style.line(seed + 1, marked=True), label=label)
    axes.set(xlabel="all-reduce", ylabel="time, ms", xticks=numbers)
    axes.set_ylim(0, 1.4 * max(float(shaken.max()) for shaken in flapping) / 1e3)
    style.legend(axes, ncols=2, loc="lower left")
    return Finding(
        [
            Check(
                f"slower with {PER_MINUTE} flaps a minute",
                "no measurable impact",
                percent,
                "%",
                Bar(high=0.1),
            ),
            Check("one flap costs", "not published", per_flap, "us"),
            Check("slower with a flap every 0.5 ms", "not published", share, "%"),
            Check("QP errors", "none", errors, "", Bar(high=0)),
        ],
        fig,
        [
            "In the original a flap comes every few seconds and a step lasts seconds; here both "
            "are a thousandfold shorter, but what a flap costs is not: the packets that were on "
            "the link are found missing after two round trips, or after a timer of 262 us where "
            "they were the last of a step. So the cost of one flap is measured, and set against "
            "the published rate of flaps."
        ],
    )


B2 = Experiment(
    "B2",
    "flapping links between switches",
    "Fig. 5, cluster A",
    "Links between T0 and T1 flap up to 14 times a minute for 250 minutes, without measurable "
    "impact on the training job.",
    "A ring all-reduce of 64 MB over 64 NICs, five times over, in place of a job of tens of "
    "thousands of GPUs: both wait for their slowest member. A flap takes one of 1024 links in "
    "place of one in more than a hundred thousand, so that more of the job's QPs feel each.",
    [
        Case("flapping", "B2_flaps", seeds=FEW, keep=("flows",), quick={"workload.steps": STEPS}),
        Case(
            "calm",
            "B2_flaps",
            {"fault[0].mtbf": NEVER},
            seeds=FEW,
            keep=("flows",),
            quick={"workload.steps": STEPS},
        ),
    ],
    _b2,
)
