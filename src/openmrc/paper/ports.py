"""B6, B7, B10: links and a switch next to a NIC go away and come back under a long transfer."""

from __future__ import annotations

from openmrc.paper import series, style
from openmrc.paper.data import Data
from openmrc.paper.experiment import Case, Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around

LINE_GBPS = 8 * 4096 / 4262 * 100  # payload of eight planes of 100 Gb/s: 768.8
BOTH_GBPS = 2 * LINE_GBPS
POINTS = 2.0  # percentage points: "+- 2 %" of a share, reference 11
STEP_MS, STEPS = 3.0, 7  # B6: a link goes each 3 ms, seven of the eight, then they return
SETTLE_MS = 1.0  # a plateau is read from 1 ms after its event
B7_DOWN_MS, B7_UP_MS, B7_END_MS = 5.0, 17.0, 25.0
B10_DOWN_MS, B10_END_MS = 5.0, 15.0
DRAWN = 600


def _b6(data: Data) -> Finding:
    shares: list[float] = []
    dips: list[float] = []
    for timeline in data.tables("staircase", "timeline"):
        t_ms, gbps = series.column(timeline, "goodput_gbps")
        errors, longest = [], 0.0
        for begin in (STEP_MS * step for step in range(1, 2 * STEPS + 1)):
            links = links_up(begin)
            level = BOTH_GBPS * links / 8
            plateau = series.mean_between(t_ms, gbps, begin + SETTLE_MS, begin + STEP_MS)
            errors.append(100 * (plateau - level) / BOTH_GBPS)
            longest = max(longest, series.dip_ms(t_ms, gbps, begin, begin + STEP_MS, level))
        shares.append(max(errors, key=abs))
        dips.append(longest)
    fig, (axes,) = style.figure()
    t_ms, gbps = series.column(data.tables("staircase", "timeline")[0], "goodput_gbps")
    axes.plot(
        *series.rebinned(t_ms, gbps, DRAWN),
        **style.line(0),
        drawstyle="steps-post",
        label="measured, seed 1",
    )
    expected = [BOTH_GBPS * links_up(t) / 8 for t in t_ms]
    axes.plot(t_ms, expected, color=style.GREY, linestyle=(0, (1, 2)), label="in proportion")
    axes.set(xlabel="simulated time, ms", ylabel="goodput, both directions, Gb/s", ylim=(0, 1700))
    style.legend(axes, loc="lower left")
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
        fig,
        [
            "Both directions together stay 1 % below their share: each carries the SACKs of the "
            "other, 178 B for four data packets of 4262 B."
        ],
    )


def links_up(t_ms: float) -> int:
    """Return how many of the eight links of B6 are up at a time."""
    steps = int(t_ms // STEP_MS)
    return 8 - max(0, min(steps, STEPS)) + max(0, min(steps - STEPS, STEPS))


def _b7(data: Data) -> Finding:
    half: list[float] = []
    back: list[float] = []
    for timeline in data.tables("four", "timeline"):
        t_ms, gbps = series.column(timeline, "goodput_gbps")
        plateau = series.mean_between(t_ms, gbps, B7_DOWN_MS + SETTLE_MS, B7_UP_MS)
        half.append(100 * plateau / LINE_GBPS)
        back.append(series.settled_ms(t_ms, gbps, B7_UP_MS, LINE_GBPS))
    fig, (axes,) = style.figure()
    t_ms, gbps = series.column(data.tables("four", "timeline")[0], "goodput_gbps")
    axes.plot(*series.rebinned(t_ms, gbps, DRAWN), **style.line(0), drawstyle="steps-post")
    style.level(axes, LINE_GBPS / 2, "half of the line rate")
    for at_ms, words in ((B7_DOWN_MS, "4 of 8 links down"), (B7_UP_MS, "up")):
        style.event(axes, at_ms, words)
    axes.set(xlabel="simulated time, ms", ylabel="goodput, Gb/s", ylim=(0, 850))
    return Finding(
        [
            Check(
                "rate with 4 of 8 links", "about half", half, "% of full rate", around(50, POINTS)
            ),
            Check(
                "from the links' return to full rate", "quick; <= 1 s", back, "ms", Bar(high=1000)
            ),
        ],
        fig,
    )


def _b10(data: Data) -> Finding:
    lost: list[float] = []
    dips: list[float] = []
    for timeline in data.tables("t0", "timeline"):
        t_ms, gbps = series.column(timeline, "goodput_gbps")
        before = series.mean_between(t_ms, gbps, 1.0, B10_DOWN_MS)
        after = series.mean_between(t_ms, gbps, B10_DOWN_MS + SETTLE_MS, B10_END_MS)
        lost.append(before - after)
        dips.append(series.dip_ms(t_ms, gbps, B10_DOWN_MS, B10_END_MS, after))
    fig, (axes,) = style.figure()
    t_ms, gbps = series.column(data.tables("t0", "timeline")[0], "goodput_gbps")
    axes.plot(*series.rebinned(t_ms, gbps, DRAWN), **style.line(0), drawstyle="steps-post")
    style.level(axes, BOTH_GBPS * 7 / 8, "seven of eight planes, both directions")
    style.event(axes, B10_DOWN_MS, "T0 of plane 0 down")
    axes.set(xlabel="simulated time, ms", ylabel="goodput, both directions, Gb/s", ylim=(0, 1700))
    step = LINE_GBPS / 8
    return Finding(
        [
            Check(
                "lost in each direction",
                "about 100 Gb/s",
                [value / 2 for value in lost],
                "Gb/s",
                around(step, LINE_GBPS * POINTS / 100),
            ),
            Check(
                "lost on the sum of both",
                "about 100 Gb/s in the text; 200 by arithmetic",
                lost,
                "Gb/s",
            ),
            Check("interruption", "< 1 s", dips, "ms", Bar(high=1000)),
        ],
        fig,
        [
            "The text says that about 100 Gb/s are lost while its figure shows both directions "
            "together. One plane of eight is 96 Gb/s of payload each way, so 192 on the sum: the "
            "text fits one direction, and both are shown here."
        ],
    )


SECONDS = (
    "Two NICs alone, as in the original, at full rate. Minutes became milliseconds: between two "
    "events there are hundreds of round trips, and all that reacts (port states, path states, "
    "windows, timers of 262 us) has settled by the time a plateau is read, 1 ms after the event. "
    "In the simulator a port goes down and up at an instant; on hardware the link itself takes "
    "its time to train, which is most of the published interruption."
)

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
)
B7 = Experiment(
    "B7",
    "four of eight links",
    "Fig. 9b, cluster B",
    "Four of the eight links of a NIC go down for 12 s and come back. Half of the rate remains, "
    "and it is back soon after the links are.",
    SECONDS,
    [Case("four", "B7_four_of_eight", keep=("timeline",))],
    _b7,
)
B10 = Experiment(
    "B10",
    "a T0 switch down",
    "Fig. 10, cluster B",
    "The T0 switch of one plane dies. What remains is steady, one plane lower.",
    SECONDS,
    [Case("t0", "B10_t0_down", keep=("timeline",))],
    _b10,
)
