"""A1 to A4: what is published, second hand, of Ethernet whose switches balance; MRC beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.paper import series, style
from openmrc.paper.case import FEW, SEVERAL, Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.experiments.collectives import judged
from openmrc.paper.series import FloatArray
from openmrc.paper.verdict import Bar, Check, relative

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

BALANCE, MRC, HASHED = "adaptive", "mrc", "hashed"  # names of the transports
SAID = {BALANCE: "switches that balance", MRC: "MRC", HASHED: "RoCEv2, hashed"}
BOTH = (BALANCE, MRC)
ORIGINAL = "Second hand, from a digest of arXiv 2605.21187"
WITHIN = 0.1  # of a published value a measured one agrees
LINE_GBPS = 400
BACK, DIP = 0.75, 0.9  # of the rate before; a bin is below that under this share of it
# A1: published, and what `failover` means by these words; when the plane is lost, ms
TIMES = {"hardware": ((3.0, "3 ms"), 1.0), "software": ((1080.0, "1.08 s"), 100.0)}
BULK, PROBE, STEP = "bulk", "probe", "training"  # jobs
DRAWN = 300
EIGHT_TO_NINE_US = Bar((1 - WITHIN) * 8, (1 + WITHIN) * 9)
Values = dict[str, list[float]]  # of each seed, by transport


def beside(
    what: str, published: tuple[float, str], values: Values, unit: str, bar: Bar | None = None
) -> list[Check]:
    """Return the row of switches that balance with its bar, and those of others without."""
    value, words = published
    bar = bar or relative(value, WITHIN)
    return [
        Check(f"{what}, {SAID[name]}", f"{words}, second hand", found, unit, bar)
        if name == BALANCE
        else Check(f"{what}, {SAID[name]}", "not published", found, unit)
        for name, found in values.items()
    ]


def _of_each(data: Data, tag: str, table: str, read: Callable[[pl.DataFrame], float]) -> Values:
    """A figure of each seed, by transport, from one of its tables."""
    return {name: [read(each) for each in data.tables(tag, table, name)] for name in BOTH}


# --- A1


def back_ms(t_ms: FloatArray, gbps: FloatArray, lost_ms: float) -> float:
    """Return how long after the loss the last bin begins and ends that is below 90 % of three
    quarters of the rate before; 0 if none is.
    """
    least = DIP * BACK * series.mean_between(t_ms, gbps, lost_ms / 2, lost_ms)
    low = t_ms[(t_ms >= lost_ms) & (gbps < least)]
    return float(low[-1] + t_ms[1] - t_ms[0] - lost_ms) if low.size else 0.0


def _share(which: int, lost_ms: float, timeline: pl.DataFrame) -> float:
    """The time until the rate is back, ms, or its share of the one before, %: until then, after."""
    t_ms, gbps = series.column(timeline, "goodput_gbps")
    before = series.mean_between(t_ms, gbps, lost_ms / 2, lost_ms)
    back = back_ms(t_ms, gbps, lost_ms)
    until = lost_ms + max(back, float(t_ms[1] - t_ms[0]))
    return (
        back,
        100 * series.mean_between(t_ms, gbps, lost_ms, until) / before,
        100 * series.mean_between(t_ms, gbps, until, float("inf")) / before,
    )[which]


def _a1(data: Data) -> Finding:
    checks: list[Check] = []
    for tag, (published, lost_ms) in TIMES.items():
        if tag not in data.tags:
            continue
        back, until, after = (
            _of_each(data, tag, "timeline", partial(_share, k, lost_ms)) for k in range(3)
        )
        checks += beside(f"{tag}: until the rate is back", published, back, "ms")
        checks += beside(f"{tag}: rate from then on", (100 * BACK, "75 %"), after, "%")
        checks += [
            Check(f"{tag}: rate until then, {SAID[name]}", "not published", until[name], "%")
            for name in BOTH
        ]
    drawn = {}
    for name in BOTH:
        run = series.column(data.tables("hardware", "timeline", name)[0], "goodput_gbps")
        t_ms, gbps = series.rebinned(*run, DRAWN)
        drawn[name] = {"t_ms": series.listed(t_ms), "gbps": series.listed(gbps)}
    return Finding(judged(checks, data), drawn, A1_WORDS)


def _draw_a1(drawn: Any) -> Figure:
    fig, (axes,) = style.figure()
    for number, (name, curve) in enumerate(drawn.items()):
        style.steps(axes, curve["t_ms"], curve["gbps"], number, label=SAID[name])
    top = 1.1 * max(max(curve["gbps"]) for curve in drawn.values())
    full = max(drawn[BALANCE]["gbps"])
    style.published(axes, BACK * full, "75 % after 3 ms, second hand")
    axes.set(xlabel="simulated time, ms", ylabel="goodput of all NICs, Gb/s", ylim=(0, top))
    style.legend(axes, loc="lower right")
    return fig


# --- A2, A3


def rates_gbps(flows: pl.DataFrame) -> FloatArray:
    """Return the rate of each flow that is not a probe, payload until it was acknowledged."""
    kept = flows.filter(flows["job"].fill_null(BULK) == BULK)
    return np.asarray(kept["bytes"] * 8e-3 / kept["fct_us"], np.float64)


def latencies_us(flows: pl.DataFrame) -> FloatArray:
    """Return the time from the posting of each probe until the receiver has it, us."""
    kept = flows.filter(flows["job"] == PROBE)
    return np.asarray(kept["delivered_us"] - kept["start_us"], np.float64)


def _p99_us(flows: pl.DataFrame) -> float:
    return float(np.percentile(latencies_us(flows), 99))


# A2: published rate, Gb/s, and p99 latency, us
LINKS = {
    "healthy": (378, 14.97),
    "10 % gone": (335, 15.96),
    "10 % gone, reordering 50 us": (335, 15.96),
}


def _a2(data: Data) -> Finding:
    checks: list[Check] = []
    drawn: dict[str, Any] = {}
    for tag in data.tags:
        gbps, us = LINKS[tag]
        mean = _of_each(data, tag, "flows", lambda flows: float(rates_gbps(flows).mean()))
        p01 = _of_each(data, tag, "flows", lambda flows: float(np.percentile(rates_gbps(flows), 1)))
        late = _of_each(data, tag, "flows", _p99_us)
        found = [
            *beside(f"{tag}: mean rate of a flow", (gbps, f"{gbps} Gb/s"), mean, "Gb/s"),
            *(
                Check(f"{tag}: slowest 1 % of flows, {SAID[name]}", "not published", values, "Gb/s")
                for name, values in p01.items()
            ),
            *beside(f"{tag}: p99 latency", (us, f"{us} us"), late, "us"),
        ]
        # the reordering of the others' packets is none of MRC's
        checks += found[::2] if "reordering" in tag else found
        drawn[tag] = {
            name: series.listed(np.sort(rates_gbps(data.tables(tag, "flows", name)[0])))
            for name in BOTH
        }
    return Finding(judged(checks, data), drawn, A2_WORDS)


def _draw_a2(drawn: Any) -> Figure:
    fig, panels = style.figure(len(drawn), width=9.6)
    for axes, (tag, curves) in zip(panels, drawn.items(), strict=True):
        for number, (name, rates) in enumerate(curves.items()):
            share = np.arange(1, len(rates) + 1) / len(rates)
            style.steps(axes, rates, share, number, label=SAID[name])
        gbps = LINKS[tag][0]
        axes.axvline(gbps, **style.PUBLISHED, label=f"published: {gbps} Gb/s, second hand")
        axes.set(xlabel="rate of a flow, Gb/s", title=tag, xlim=(100, 400), ylim=(0, 1.5))
        style.legend(axes, loc="upper left")
        axes.set_yticks(np.linspace(0, 1, 6))
    panels[0].set_ylabel("share of flows")
    return fig


def _a3(data: Data) -> Finding:
    share = _of_each(data, "all-to-all", "flows", _slowest_share)
    late = _of_each(data, "75 % load", "flows", _p99_us)
    load = _of_each(data, "75 % load", "flows", load_share)
    checks = [
        *beside(
            "rate of the slowest 1 % of flows, of an equal share of the line",
            (98, "98 %"),
            share,
            "%",
        ),
        *beside("p99 latency beside the load", (8.5, "8 to 9 us"), late, "us", EIGHT_TO_NINE_US),
        *(Check(f"load, {SAID[name]}", "75 %", load[name], "%") for name in BOTH),
    ]
    drawn = {
        name: series.listed(np.sort(latencies_us(data.tables("75 % load", "flows", name)[0])))
        for name in BOTH
    }
    return Finding(judged(checks, data), drawn, A3_WORDS)


def _slowest_share(flows: pl.DataFrame) -> float:
    """The rate of the slowest 1 % of an all-to-all's flows, in % of an equal share of the line."""
    fair_gbps = LINE_GBPS / flows.filter(flows["src"] == 0).height
    return 100 * float(np.percentile(rates_gbps(flows), 1)) / fair_gbps


def load_share(flows: pl.DataFrame) -> float:
    """Return what the bulk of a NIC sent until its first flow of all ended, in % of the line."""
    bulk = flows.filter(flows["job"] == BULK)
    last_us = float(np.percentile(bulk["done_us"], 50))
    before = bulk.filter(bulk["done_us"] <= last_us)
    nics = bulk["src"].n_unique()
    return 100 * float(before["bytes"].sum()) * 8e-3 / last_us / nics / LINE_GBPS


def _draw_a3(drawn: Any) -> Figure:
    fig, (axes,) = style.figure()
    for number, (name, values) in enumerate(drawn.items()):
        share = np.arange(1, len(values) + 1) / len(values)
        style.steps(axes, values, share, number, label=SAID[name])
    axes.axvline(8.5, **style.PUBLISHED, label="published: p99 of 8 to 9 us, second hand")
    axes.set(xlabel="latency of 2 KB beside a load of 75 %, us", ylabel="share of messages")
    axes.set_ylim(0, 1.02)
    style.legend(axes, loc="lower right")
    return fig


# --- A4


def _a4(data: Data) -> Finding:
    steps = {
        (tag, name): [step_ms(flows) for flows in data.tables(tag, "flows", name)]
        for tag in data.tags
        for name in SAID
    }
    longer = {
        name: [b / a for a, b in zip(steps["alone", name], steps["beside", name], strict=True)]
        for name in SAID
    }
    checks = beside("a step beside other traffic, over alone", (1.0, "1 (668 ms)"), longer, "times")
    hashed = relative(1180 / 735, WITHIN)
    words = "1.61 (735 to 1,180 ms), second hand"
    checks[-1] = replace(checks[-1], published=words, bar=hashed)
    over = [a / b for a, b in zip(steps["alone", HASHED], steps["alone", BALANCE], strict=True)]
    words = "1.1 (735 over 668 ms), second hand"
    what = f"a step alone, {SAID[HASHED]} over {SAID[BALANCE]}"
    checks.append(Check(what, words, over, "times", relative(735 / 668, WITHIN)))
    checks += [
        Check(f"a step {tag}, {SAID[name]}", "not published", values, "ms")
        for (tag, name), values in steps.items()
    ]
    drawn = {tag: {name: series.listed(steps[tag, name]) for name in SAID} for tag in data.tags}
    return Finding(judged(checks, data), drawn, A4_WORDS)


def step_ms(flows: pl.DataFrame) -> float:
    """Return when the last message of the training job was acknowledged, ms."""
    return float(flows.filter(flows["job"] == STEP)["done_us"].to_numpy().max()) / 1e3


def _draw_a4(drawn: Any) -> Figure:
    fig, (axes,) = style.figure()
    places = np.arange(len(SAID))
    for number, (tag, of) in enumerate(drawn.items()):
        beside_it = places + (number - 0.5) / 8
        looks = style.line(number, marked=True) | {"linestyle": "none"}
        axes.plot(beside_it, [median(of[name]) for name in SAID], **looks, label=tag)
        ends = [min(of[name]) for name in SAID], [max(of[name]) for name in SAID]
        axes.vlines(beside_it, *ends, color=looks["color"], linewidth=1.0)
    alone, longer = drawn["alone"], {BALANCE: 1.0, HASHED: 1180 / 735}
    at = [list(SAID).index(name) + 1 / 16 for name in longer]
    said = [median(alone[name]) * times for name, times in longer.items()]
    axes.plot(at, said, **style.POINT, label="published: beside over alone, second hand")
    axes.set_xticks(places, SAID.values())
    axes.set(ylabel="a step, ms; three draws", xlim=(-0.5, 2.5))
    axes.set_ylim(bottom=0)
    style.legend(axes, loc="upper left")
    return fig


FEWER = {"fabric.nics": 64}  # in the reduced set
UNKNOWN = (
    "The fabric, its size, its loads and its settings are not known here; of the text there is a "
    "digest alone. The same defaults are used in A1 to A4, for switches that balance and for MRC."
)
A1_WORDS = (
    "The rate does not hold in the way that was published: here it is three quarters at once, with "
    "either `failover`, because a NIC goes on with the other planes. A quarter of its packets goes "
    "into the lost plane until `failover` is over; the receiver reports what is missing, and each "
    "is sent again a round trip later. The published NIC is back only when it has left the plane: "
    "what it does with losses until then is not known, and is not modelled.",
)
A2_WORDS = (
    "With `reordering` at its default, a base round trip, the rate with dead links does not hold: "
    "while uplinks are full for long, packets wait longer than that in some queues and not in "
    "others, the receiver reports a third of all as missing, and they are sent again for nothing. "
    "With 50 us hardly any are, and the rate agrees. The default suits a fabric whose queues are "
    "short; that of the published NICs is not known. Without dead links it makes no difference "
    "here.",
    "The published latencies are another kind of figure than those here, from the posting of 2 KB "
    "until the receiver's NIC has it: they hardly rise with dead links. Here they do, because the "
    "uplinks that are left are full. MRC's rate is that of the beginning, too: nobody tells its "
    "NICs which links are dead, and they find each by its losses, in 8 MB of 200 us; routing has "
    "told switches that balance before the run begins.",
)
A3_WORDS = (
    "The flows agree: headers take 2 % of the line, and round trips the rest. The latency is half "
    "of the published one. Here it is from the posting of a message until the receiver's NIC has "
    "it, over three switches and two tiers, without hosts; until the sender knows it takes some 3 "
    "us more. Where it was published from, and to, is not known.",
)
A4_WORDS = (
    "Both agree, though the step here is another: an all-reduce whose messages wait for 20 us of "
    "computation each. Hashed flows differ from draw to draw, by what their hashes put on one "
    "link; switches that balance, and MRC, do not. A step alone takes MRC 1 % longer than switches "
    "that balance, for its longer headers.",
)
A1 = Experiment(
    "A1",
    "a plane of four is lost",
    ORIGINAL,
    "A NIC of four planes whose switches balance loses one: it is back at 75 % of its rate after 3 "
    "ms where hardware chooses planes, and after 1.08 s where software does.",
    "Eight NICs; all T1s of a plane die at 1 ms. Where software chooses, four NICs with a tenth "
    f"of the rate, so that a second can be run: the time does not depend on it. {UNKNOWN}",
    [
        Case("hardware", "A1_plane", keep=("timeline",), seeds=FEW),
        Case(
            "software",
            "A1_plane",
            {
                "transport[1].failover": "software",
                "fabric.nics": 4,
                "fabric.port_rate": "10Gbps",
                "fault[0].at": "100ms",
                "stop.time": "1.3s",
            },
            seeds=FEW,
            keep=("timeline",),
            quick=None,
        ),
    ],
    _a1,
    _draw_a1,
)
A2 = Experiment(
    "A2",
    "a tenth of the links is gone",
    ORIGINAL,
    "10 % of the links between switches are gone for good: the rate falls from 378 to 335 Gb/s, "
    "and the p99 latency rises from 14.97 to 15.96 us.",
    "256 NICs of 400 Gb/s below 16 T0s of 16 uplinks, one plane; a permutation of 8 MB, and "
    "beside it messages of 2 KB whose time until they have arrived is the latency. Routing knows "
    f"the dead links. {UNKNOWN}",
    [
        Case("healthy", "A2_links", {"fault[0].at": "1s"}, SEVERAL, ("flows",), FEWER),
        Case("10 % gone", "A2_links", {}, SEVERAL, ("flows",), FEWER),
        Case(
            "10 % gone, reordering 50 us",
            "A2_links",
            {"transport[1].reordering": "50us"},
            SEVERAL,
            ("flows",),
            None,
        ),
    ],
    _a2,
    _draw_a2,
)
A3 = Experiment(
    "A3",
    "an all-to-all, and latency beside a load",
    ORIGINAL,
    "The slowest 1 % of flows of an all-to-all has 98 % of the line rate; beside a load of 75 % "
    "the p99 latency is 8 to 9 us.",
    "64 NICs of 400 Gb/s below four T0s of 16 uplinks, one plane. The all-to-all has 1 MB for each "
    "pair. The load are messages of 375 KB on eight QPs of each NIC, with pauses; the latency is "
    f"that of messages of 2 KB beside it. {UNKNOWN}",
    [
        Case("all-to-all", "A3_all_to_all", seeds=FEW, keep=("flows",)),
        Case("75 % load", "A3_load", seeds=FEW, keep=("flows",)),
    ],
    _a3,
    _draw_a3,
)
A4 = Experiment(
    "A4",
    "a training step beside other traffic",
    ORIGINAL,
    "A training step stays at 668 ms beside other traffic where switches balance; on plain "
    "Ethernet it takes 735 ms alone and 1,180 ms beside it.",
    "32 ranks at random on the even ones of 64 NICs of 400 Gb/s, below four T0s of 16 uplinks; the "
    "odd ones send 400 MB each in a permutation. A step is an all-reduce with computation between "
    "its messages, some 3 ms instead of 668; how much of the original's waits is not known. "
    f"{UNKNOWN}",
    [
        Case("alone", "A4_neighbours", {"workload.other.size": "4KB"}, FEW, ("flows",)),
        Case("beside", "A4_neighbours", {}, FEW, ("flows",)),
    ],
    _a4,
    _draw_a4,
)
