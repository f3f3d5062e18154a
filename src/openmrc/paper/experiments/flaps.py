"""B2: links between switches flap while a training job runs its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.fabric.actions import PORT_DOWN
from openmrc.paper import series, style
from openmrc.paper.case import FEW, SEVERAL, Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.series import FloatArray
from openmrc.paper.verdict import Bar, Check
from openmrc.units import US

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from openmrc.scenario.scenario import Scenario

PER_MINUTE = 14  # the most flaps that were published
MINUTE_US = 60e6
NEVER = "1000000s"
SHARES = {"calm": "no flaps", "brief": "flaps of 0.3 ms", "flapping": "flaps of 3 ms"}
QUICK = {"workload.steps": 2}
# Of the same rate, 14 of 256 links in 60 ms: mtbf + mttr is 1097 ms.
BRIEF = {"fault[0].mtbf": "1096.7ms", "fault[0].mttr": "300us"}


def flaps_until(scenario: Scenario, end_us: float) -> int:
    """Return how many links have gone down until the end of a run; each has two directions."""
    _, _, schedule = scenario.build()
    events = schedule.events
    return int(((events["action"] == PORT_DOWN) & (events["at_ps"] < end_us * US)).sum()) // 2


def per_flap_us(calm: FloatArray, shaken: FloatArray, flaps: int) -> float:
    """Return how much longer the steps took for each flap, in us; all for one if none came."""
    return float(shaken.sum() - calm.sum()) / max(1, flaps)


def _steps(data: Data, tag: str) -> list[FloatArray]:
    """The duration of each step, us, of each seed."""
    return [
        table.sort("step")["step_us"].drop_nulls().to_numpy() for table in data.tables(tag, "steps")
    ]


def _b2(data: Data) -> Finding:
    steps = {tag: _steps(data, tag) for tag in data.tags}
    calm = steps["calm"]
    cost = {
        tag: [
            per_flap_us(quiet, shaken, flaps_until(scenario, float(shaken.sum())))
            for quiet, shaken, scenario in zip(calm, steps[tag], data.scenarios(tag), strict=False)
        ]
        for tag in ("flapping", "brief")
    }
    scaled = [
        100 * float(b.sum() / a.sum() - 1) for a, b in zip(calm, steps["flapping"], strict=True)
    ]
    errors = [float(len(row["qp_errors"])) for tag in data.tags for row in data.rows(tag)]
    checks = [
        Check(
            f"slower with {PER_MINUTE} flaps a minute",
            "no measurable impact",
            [100 * us * PER_MINUTE / MINUTE_US for us in cost["flapping"]],
            "%",
            Bar(high=0.1),
        ),
        Check("one flap of 3 ms costs the job", "not published", cost["flapping"], "us"),
        Check("one flap of 0.3 ms costs the job", "not published", cost["brief"], "us"),
        Check(f"slower with {PER_MINUTE} flaps in 60 ms", "not published", scaled, "%"),
        *(
            Check(f"step time, {share}, {words}", "not published", values, "ms")
            for tag, words in (("calm", "no flaps"), ("flapping", f"{PER_MINUTE} flaps in 60 ms"))
            for share, values in (
                ("p50", [float(np.median(each)) / 1e3 for each in steps[tag]]),
                ("p100", [float(each.max()) / 1e3 for each in steps[tag]]),
            )
        ),
        *_one_link(calm, steps),
        Check("QP errors", "none", errors, "", Bar(high=0)),
    ]
    return Finding(checks, _drawn(steps), WORDS)


def _one_link(calm: list[FloatArray], steps: dict[str, list[FloatArray]]) -> list[Check]:
    """The cost of a dead link for the step that finds it and those after it; the value of its
    rate.
    """
    first, later, missing = [], [], []
    for quiet, dead, denied in zip(calm, steps["one link"], steps["denied"], strict=False):
        more = dead - quiet[: len(dead)]
        first.append(float(more[0]))
        later.append(float(more[1:].mean()))
        missing.append(float((denied - quiet[: len(denied)]).mean()))
    return [
        Check("a link dead from the start: cost to step 1", "not published", first, "us"),
        Check("the same: cost to each later step", "not published", later, "us"),
        Check("a link that nobody uses: cost to each step", "not published", missing, "us"),
    ]


def _drawn(steps: dict[str, list[FloatArray]]) -> dict[str, Any]:
    """The content of the figure: step times of the first seed without flaps and of some with them,
    and the excess of all seeds' steps over the median without flaps, sorted.
    """
    longer = {}
    for tag in SHARES:
        more = [
            100 * (each / float(np.median(quiet)) - 1)
            for each, quiet in zip(steps[tag], steps["calm"], strict=False)
        ]
        longer[tag] = series.listed(np.sort(np.concatenate(more)))
    return {
        "calm_ms": series.listed(steps["calm"][0] / 1e3),
        "flapping_ms": [series.listed(seed / 1e3) for seed in steps["flapping"][:3]],
        "longer": longer,
    }


def _draw(drawn: Any) -> Figure:
    fig, (left, right) = style.figure(2)
    _draw_steps(left, drawn["calm_ms"], drawn["flapping_ms"])
    _draw_shares(right, drawn["longer"])
    return fig


def _draw_steps(axes: Axes, calm_ms: list[float], flapping_ms: list[list[float]]) -> None:
    numbers = range(1, len(calm_ms) + 1)
    axes.plot(numbers, calm_ms, **style.line(0), label="no flaps")
    for seed, shaken in enumerate(flapping_ms):
        axes.plot(
            numbers[: len(shaken)],
            shaken,
            **style.line(seed + 1, marked=True),
            label=f"flaps, seed {seed + 1}",
        )
    axes.set(xlabel="step", ylabel="step time, ms")
    axes.set_ylim(0, 1.15 * max(max(each) for each in flapping_ms))
    style.legend(axes, ncols=2, loc="lower left")


def _draw_shares(axes: Axes, longer: dict[str, list[float]]) -> None:
    """The fraction of steps, of all seeds, that exceeded those without flaps by a percentage."""
    for number, (tag, label) in enumerate(SHARES.items()):
        values = longer[tag]
        share = np.arange(1, len(values) + 1) / len(values)
        style.steps(axes, values, share, number, label=label)
    axes.axvline(0, **style.PUBLISHED, label="published: no measurable impact")
    axes.set(xlabel="longer than the median without flaps, %", ylabel="share of steps")
    axes.set_ylim(0, 1.02)
    style.legend(axes, loc="lower right")


WORDS = (
    "The cost of a flap is the time until its losses are found. A QP here has one message of 0.25 "
    "to 1 MB at a time, which is on the wire within 3 to 11 us, less than two round trips of 6 us: "
    "no later packet is sent whose arrival would reveal the missing ones. So the QP is silent for "
    "22 us (row 8), probes, learns a round trip later which packets are missing, and sends them "
    "again: an affected message is some 40 us late. Each QP finds the dead path by itself, and the "
    "delays of consecutive QPs in a step (tensor-parallel sums, activations, gradients, the sum "
    "over replicas) add up; after that all know the path. A link that dies before a job begins "
    "therefore costs the first step most, and the others nothing. To check this: with half of that "
    "silence a flap costs a fifth to a quarter less; with a timer of 33 us instead of 262, or "
    "without congestion control, it costs the same, so neither timeouts nor windows contribute. "
    "Nor does the missing link's rate: a link that is denied from the start costs next to nothing.",
    "Compute has no jitter here, so nothing hides a delay. A lost packet followed by more than two "
    "round trips of data is found after those; messages of this size are too short for that.",
)

B2 = Experiment(
    "B2",
    "flapping links between switches",
    "Fig. 5, cluster A",
    "Links between T0 and T1 flap up to 14 times a minute for 250 minutes, without measurable "
    "impact on the training job.",
    "A job of 64 NICs (4 tensor-parallel, 2 pipeline stages, 8 replicas, placed at random) instead "
    "of one of tens of thousands: both wait for their slowest member. A millisecond stands for a "
    "second: a step takes 3.2 ms, 14 flaps come in 60 ms, and each takes a link away for 3 ms, as "
    "a link that retrains does; 20 steps see some 15 of them. The cost of one flap does not scale, "
    "because it consists of round trips: so it is measured, and multiplied by 14 flaps in a real "
    "minute. A flap takes one of 256 links, which every QP of its T0 uses, instead of one in more "
    "than a hundred thousand: here every flap hits the job.",
    [
        Case("flapping", "B2_flaps", seeds=SEVERAL, keep=("steps",), quick=QUICK),
        Case("calm", "B2_flaps", {"fault[0].mtbf": NEVER}, SEVERAL, ("steps",), QUICK),
        Case("brief", "B2_flaps", BRIEF, FEW, ("steps",), QUICK),
        Case("one link", "B2_one_link", {}, FEW, ("steps",), QUICK),
        Case("denied", "B2_one_link", {"fault[0].kind": "deny"}, FEW, ("steps",), QUICK),
    ],
    _b2,
    _draw,
)
