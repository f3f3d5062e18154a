"""B6, B7, B10: links and a switch next to a NIC fail and return during a long transfer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOTH_GBPS = 2 * series.LINE_GBPS
POINTS = 2.0  # percentage points: "+- 2 %" of a share
STEP_MS, STEPS = 3.0, 7  # B6: a link goes each 3 ms, seven of the eight, then they return
SETTLE_MS = 1.0  # a plateau is read from 1 ms after its event
B7_DOWN_MS, B7_UP_MS = 5.0, 17.0
B10_DOWN_MS, B10_END_MS = 5.0, 15.0
DRAWN = 600
BOTH = "both directions, "


SECONDS = (
    "Two NICs alone, as in the original, at full rate. Minutes became milliseconds: between two "
    "events there are hundreds of round trips, and all that reacts (port states, path states, "
    "windows, timers of 262 us) has settled by the time a plateau is read, 1 ms after the event. "
    "In the simulator a port goes down and up at an instant; on hardware the link itself takes "
    "its time to train, which is most of the published interruption."
)


def _drawn(run: series.Series) -> dict[str, list[float]]:
    """The content of a figure of a run: Gb/s over time."""
    t_ms, gbps = series.rebinned(*run, DRAWN)
    return {"t_ms": series.listed(t_ms), "gbps": series.listed(gbps)}


def _figure(drawn: Any, what: str, top: float) -> tuple[Figure, Axes]:
    """A figure of Gb/s over time."""
    fig, (axes,) = style.figure()
    style.steps(axes, drawn["t_ms"], drawn["gbps"], label="simulated, seed 1")
    axes.set(xlabel="simulated time, ms", ylabel=f"goodput, {what}Gb/s", ylim=(0, top))
    return fig, axes


def _b6(data: Data) -> Finding:
    runs = series.goodputs(data, "staircase")
    levels = [
        (STEP_MS * step, BOTH_GBPS * links_up(STEP_MS * step) / 8)
        for step in range(1, 2 * STEPS + 1)
    ]
    shares, dips = series.staircase(runs, levels, SETTLE_MS, BOTH_GBPS)
    return Finding(
        [
            Check(
                "largest deviation of a plateau from its share of links",
                "in proportion",
                shares,
                "% of full rate",
                around(0, POINTS),
            ),
            Check("longest interruption by one event", "< 1 s", dips, "ms", Bar(high=1000)),
        ],
        _drawn(runs[0]),
        [
            "Both directions together stay 1 % below their share: each carries the SACKs of the "
            "other, 178 B for four data packets of 4262 B."
        ],
    )


def _draw_b6(drawn: Any) -> Figure:
    fig, axes = _figure(drawn, BOTH, 1700)
    t_ms = drawn["t_ms"]
    rates = [BOTH_GBPS * links_up(t) / 8 for t in t_ms]
    style.expected(axes, t_ms, rates, "in proportion to the links")
    style.legend(axes, loc="lower left")
    return fig


def links_up(t_ms: float) -> int:
    """Return how many of the eight links of B6 are up at a time."""
    steps = int(t_ms // STEP_MS)
    return 8 - max(0, min(steps, STEPS)) + max(0, min(steps - STEPS, STEPS))


B6 = Experiment(
    "B6",
    "links of a NIC, one by one",
    "Fig. 9a, cluster B",
    "Two NICs below one T0 write to each other on four QPs. The links of one go down one after the "
    "other and return. The rate follows the links in proportion, and no event interrupts for more "
    "than a second.",
    SECONDS + " Seven of the eight links go: with the last one nothing is left to measure.",
    [Case("staircase", "B6_staircase", keep=("timeline",))],
    _b6,
    _draw_b6,
)


def _b7(data: Data) -> Finding:
    runs = series.goodputs(data, "four")
    plateaus = [series.mean_between(*run, B7_DOWN_MS + SETTLE_MS, B7_UP_MS) for run in runs]
    half = [100 * plateau / series.LINE_GBPS for plateau in plateaus]
    back = [series.settled_ms(*run, B7_UP_MS, series.LINE_GBPS) for run in runs]
    return Finding(
        [
            Check(
                "rate with 4 of 8 links", "about half", half, "% of full rate", around(50, POINTS)
            ),
            Check(
                "from the links' return to full rate", "quick; <= 1 s", back, "ms", Bar(high=1000)
            ),
        ],
        _drawn(runs[0]),
    )


def _draw_b7(drawn: Any) -> Figure:
    fig, axes = _figure(drawn, "", 900)
    style.published(axes, series.LINE_GBPS / 2, "about half")
    for at_ms, words in ((B7_DOWN_MS, "4 of 8 links down"), (B7_UP_MS, "up")):
        style.event(axes, at_ms, words)
    style.legend(axes, loc="lower right")
    return fig


B7 = Experiment(
    "B7",
    "four of eight links",
    "Fig. 9b, cluster B",
    "Four of the eight links of a NIC go down for 12 s and come back. Half of the rate remains, "
    "and it is back soon after the links are.",
    SECONDS,
    [Case("four", "B7_four_of_eight", keep=("timeline",))],
    _b7,
    _draw_b7,
)


def _b10(data: Data) -> Finding:
    runs = series.goodputs(data, "t0")
    before = [series.mean_between(*run, 1.0, B10_DOWN_MS) for run in runs]
    after = [series.mean_between(*run, B10_DOWN_MS + SETTLE_MS, B10_END_MS) for run in runs]
    lost = [a - b for a, b in zip(before, after, strict=True)]
    dips = [
        series.dip_ms(*run, B10_DOWN_MS, B10_END_MS, steady)
        for run, steady in zip(runs, after, strict=True)
    ]
    step = series.LINE_GBPS / 8
    return Finding(
        [
            Check(
                "lost in each direction",
                "about 100 Gb/s",
                [value / 2 for value in lost],
                "Gb/s",
                around(step, series.LINE_GBPS * POINTS / 100),
            ),
            Check(
                "lost on the sum of both",
                "about 100 Gb/s in the text; 200 by arithmetic",
                lost,
                "Gb/s",
            ),
            Check("interruption", "< 1 s", dips, "ms", Bar(high=1000)),
        ],
        _drawn(runs[0]) | {"before_gbps": before[0]},
        [
            "The text says that about 100 Gb/s are lost while its figure shows both directions "
            "together. One plane of eight is 96 Gb/s of payload each way, so 192 on the sum: the "
            "text fits one direction, and both are shown here."
        ],
    )


def _draw_b10(drawn: Any) -> Figure:
    fig, axes = _figure(drawn, BOTH, 1700)
    style.published(axes, drawn["before_gbps"] - 100, "about 100 Gb/s less, as the text has it")
    style.level(axes, BOTH_GBPS * 7 / 8, "seven of eight planes, both directions")
    style.event(axes, B10_DOWN_MS, "T0 of plane 0 down", 0.75)
    style.legend(axes, loc="lower right")
    return fig


B10 = Experiment(
    "B10",
    "a T0 switch down",
    "Fig. 10, cluster B",
    "The T0 switch of one plane dies. What remains is steady, one plane lower.",
    SECONDS,
    [Case("t0", "B10_t0_down", keep=("timeline",))],
    _b10,
    _draw_b10,
)
