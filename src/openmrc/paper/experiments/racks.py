"""B18: links between racks and spines are taken away one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAYLOAD = 4096 / 4262
STEP_MS = 50.0
SETTLE_MS = 40.0
DRAWN = 300
RATES = {"400g": (400, 400, 400, 400), "100g": (400, 300, 200, 100)}
TITLES = {"400g": "uplinks of 400 Gb/s", "100g": "uplinks of 100 Gb/s"}


def _b18(data: Data) -> Finding:
    checks = []
    drawn = {}
    for tag, rates in RATES.items():
        runs = series.goodputs(data, tag)
        levels = [(STEP_MS * step, rate * PAYLOAD) for step, rate in enumerate(rates)]
        shares, dips = series.staircase(runs, levels, SETTLE_MS, 400 * PAYLOAD)
        t_ms, gbps = series.rebinned(*runs[0], DRAWN)
        drawn[tag] = {"t_ms": series.listed(t_ms), "gbps": series.listed(gbps)}
        published = "no impact" if tag == "400g" else "tracks what is left"
        checks += [
            Check(
                f"{TITLES[tag]}: largest deviation of a plateau",
                published,
                shares,
                "% of full rate",
                around(0, 5),
            ),
            Check(
                f"{TITLES[tag]}: longest interruption",
                "not visible in seconds",
                dips,
                "ms",
                Bar(high=1000),
            ),
        ]
    return Finding(
        checks,
        drawn,
        [
            "A cut breaks the return path of acknowledgements as often as the forward path. If no "
            "other return path is found before a timeout of 262 us, all four paths, including the "
            "intact one, are assumed bad at once, and an interruption lasts milliseconds: in 48 "
            "runs of the same three cuts 8 ms apart this happened once, and the mean of the worst "
            "interruptions of a run was 0.1 ms. With only four paths there is no reserve, unlike "
            "with the 128 paths that MRC is meant for."
        ],
    )


def _draw_b18(drawn: Any) -> Figure:
    fig, panels = style.figure(2)
    for axes, (tag, rates) in zip(panels, RATES.items(), strict=True):
        t_ms = drawn[tag]["t_ms"]
        style.steps(axes, t_ms, drawn[tag]["gbps"], label="simulated, seed 1")
        left = [rates[min(3, int(t // STEP_MS))] * PAYLOAD for t in t_ms]
        words = "no impact" if tag == "400g" else "what is left"
        style.expected(axes, t_ms, left, words)
        axes.set(
            xlabel="simulated time, ms", ylabel="goodput, Gb/s", ylim=(0, 450), title=TITLES[tag]
        )
        style.legend(axes, loc="lower left")
    return fig


B18 = Experiment(
    "B18",
    "links between racks",
    "Fig. 19, cluster D",
    "A transfer between two racks of a single-plane fabric of 400 Gb/s NICs. With uplinks of 400 "
    "Gb/s three of four can go without effect; with uplinks of 100 Gb/s the rate follows what is "
    "left: 400, 300, 200, 100.",
    "16 servers in 4 racks with 4 spines, as in the original. Minutes became milliseconds: a link "
    "fails every 50 ms, and a plateau is read in the 10 ms before the next failure.",
    [
        Case("400g", "B18_racks_400g", keep=("timeline",), seeds=12),
        Case("100g", "B18_racks_100g", keep=("timeline",), seeds=12),
    ],
    _b18,
    _draw_b18,
)
