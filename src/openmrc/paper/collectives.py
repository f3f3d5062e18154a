"""B15, B16: collectives of 64 NICs, MRC beside RoCEv2 with 1 to 16 QPs, with and without loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from openmrc.paper import style
from openmrc.paper.data import Data
from openmrc.paper.experiment import FEW, Case, Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANKS = 64
POSSIBLE_GBPS = 400 * 4096 / 4262  # of MRC
ROCE_GBPS = 400 * 4096 / 4178  # of RoCEv2, whose headers are shorter
SIZES_MB = (4, 16, 64, 256, 1000)
QUICK_MB = (4, 16)
SEEDS_MB = 64  # sizes up to here have several seeds, larger ones one
LOSSES = {"0": 0.0, "0.1 %": 0.001, "1 %": 0.01}
QPS = (1, 2, 4, 8, 16)
MRC, MRC_ONE = "MRC, 4 ports", "MRC, 1 port"  # one QP; of 100 Gb/s each, and of 400
ONE_PORT = {"fabric.planes": 1, "fabric.port_rate": "400Gbps"}


class Kind(NamedTuple):
    """A collective: its scenario files, and bytes that cross a NIC for each byte of size."""

    files: str
    factor: float


ALL_REDUCE = Kind("B15_all_reduce", 2 * (RANKS - 1) / RANKS)
ALL_TO_ALL = Kind("B16_all_to_all", (RANKS - 1) / RANKS)
# A ring's size is so large that only some of its 126 steps are run, all of which do the same; and
# the same of a size that is run in full, to check.
STEPPED = {16_000: 4, 1000: 8}
# Other fabrics that 64 NICs fit on, and what RoCEv2 has on them at one size.
OTHERS = {
    "16 uplinks a T0": {"fabric.t0_up": 16},
    "two T0s of 32 uplinks": {"fabric.t0_down": 32, "fabric.t0_up": 32},
}
OTHERS_MB, OTHERS_QPS = 64, (1, 8)
Curve = dict[int, list[float]]  # Gb/s of each seed, by size in MB


def roce(qps: int) -> str:
    """Return the name of a curve of RoCEv2."""
    return f"RoCEv2, {qps} QP{'s' if qps > 1 else ''}"


CURVES = (MRC, MRC_ONE, *map(roce, QPS))
OF_MRC = (MRC, MRC_ONE)


def cases(kind: Kind, largest_mb: dict[tuple[str, str], int]) -> list[Case]:
    """Return the cases of all curves, losses and sizes, up to the largest size of each.

    A curve and loss that `largest_mb` does not name is not run.
    """
    found = []
    for curve in CURVES:
        for loss, rate in LOSSES.items():
            for size in SIZES_MB:
                if size > largest_mb.get((curve, loss), 0):
                    continue
                change: dict[str, Any] = {"workload.size": f"{size}MB", "fault[0].rate": rate}
                if curve == MRC_ONE:
                    change |= ONE_PORT
                elif curve != MRC:
                    change["transport.qps"] = QPS[CURVES.index(curve) - len(OF_MRC)]
                quick = size in QUICK_MB and curve in (*OF_MRC, roce(1), roce(8)) and loss != "1 %"
                found.append(
                    Case(
                        tag(curve, loss, size),
                        f"{kind.files}_{'mrc' if curve in OF_MRC else 'roce'}",
                        change,
                        seeds=FEW if size <= SEEDS_MB else 1,
                        quick={} if quick else None,
                    )
                )
    return found


def tag(curve: str, loss: str, size_mb: int) -> str:
    """Return the tag of a case."""
    return f"{curve}, loss {loss}, {size_mb} MB"


def stepped_tag(loss: str, size_mb: int) -> str:
    """Return the tag of the case that runs some steps of MRC's ring alone."""
    return f"{MRC}, loss {loss}, {STEPPED[size_mb]} steps of {size_mb} MB"


def stepped() -> list[Case]:
    """Return the cases of single steps: each NIC passes a 64th of the size to the next."""
    return [
        Case(
            stepped_tag(loss, size),
            f"{ALL_REDUCE.files}_mrc",
            {
                "workload.kind": "send-recv",
                "workload.size": f"{size * 1_000_000 // RANKS}B",
                "workload.steps": steps,
                "fault[0].rate": rate,
            },
            seeds=1,
            quick=None,
        )
        for size, steps in STEPPED.items()
        for loss, rate in LOSSES.items()
    ]


def other_tag(where: str, qps: int) -> str:
    """Return the tag of the case on another fabric."""
    return f"{roce(qps)}, {OTHERS_MB} MB, {where}"


def _on_others(data: Data, where: str, qps: int) -> list[float]:
    """RoCEv2's share of what is possible on another fabric, each seed, in percent."""
    if other_tag(where, qps) not in data.tags:
        return []
    rows = data.rows(other_tag(where, qps))
    return [100 * gbps(row, OTHERS_MB, ALL_REDUCE.factor) / ROCE_GBPS for row in rows]


def by_steps(data: Data, loss: str, size_mb: int) -> list[float]:
    """Return Gb/s of a NIC in some steps of a size, each seed; none if they were not run."""
    tag = stepped_tag(loss, size_mb)
    if tag not in data.tags:
        return []
    return [gbps(row, size_mb, STEPPED[size_mb] / RANKS) for row in data.rows(tag)]


def gbps(row: dict[str, Any], size_mb: int, factor: float) -> float:
    """Return what a NIC sent a second until the last of all had everything; 0 if that never was."""
    if row["flows.completed"] < row["flows.total"]:
        return 0.0
    last_us = row["slowdown_p100"] * row["ideal_us"]
    return float(size_mb * 8e3 * factor / last_us)


def curves(data: Data, kind: Kind) -> dict[tuple[str, str], Curve]:
    """Return every curve by name and loss: Gb/s of a NIC by size, each seed."""
    found: dict[tuple[str, str], Curve] = {}
    for curve in CURVES:
        for loss in LOSSES:
            points = {
                size: [gbps(row, size, kind.factor) for row in data.rows(tag(curve, loss, size))]
                for size in SIZES_MB
                if tag(curve, loss, size) in data.tags
            }
            if points:
                found[curve, loss] = points
    return found


def ratios(
    over: Curve | None,
    under: Curve | None,
    sizes: list[int],
    of: Callable[[list[float]], float] = median,
) -> list[float]:
    """Return, of each size that both have, the ratio of the medians, or of what `of` takes."""
    if over is None or under is None:
        return []
    both = [size for size in sizes if size in over and size in under]
    return [_ratio(of(over[size]), of(under[size])) for size in both]


def by_seed(over: Curve | None, under: Curve | None, size: int) -> list[float]:
    """Return the ratio at one size, seed by seed; none if one of the two is without it."""
    if over is None or under is None or size not in over or size not in under:
        return []
    return [_ratio(a, b) for a, b in zip(over[size], under[size], strict=True)]


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf


def best_roce(
    found: dict[tuple[str, str], Curve],
    loss: str,
    of: Callable[[list[float]], float] = median,
) -> Curve | None:
    """Return, size by size, the RoCEv2 of the highest median, or `of`; None if none was run."""
    mine = [curve for (name, at), curve in found.items() if name not in OF_MRC and at == loss]
    best: Curve = {}
    for curve in mine:
        for size, values in curve.items():
            if size not in best or of(values) > of(best[size]):
                best[size] = values
    return best or None


def draw(
    found: dict[tuple[str, str], Curve], largest: dict[str, tuple[int, list[float]]] | None = None
) -> Figure:
    """Draw a panel for each loss: Gb/s of a NIC over size, a line for each curve.

    `largest`, by loss, is a size of which MRC ran some steps only, and its rates: an open circle.
    """
    fig, panels = style.figure(len(LOSSES), width=9.5, height=3.6)
    for axes, loss in zip(panels, LOSSES, strict=True):
        for number, name in enumerate(CURVES):
            if (name, loss) in found:
                curve = found[name, loss]
                middle = [median(values) for values in curve.values()]
                axes.plot(list(curve), middle, **style.line(number, marked=True), label=name)
        if largest and largest[loss][1]:
            size, values = largest[loss]
            axes.plot(
                size, median(values), marker="o", markersize=8, color="#0072B2", fillstyle="none"
            )
        axes.axhline(POSSIBLE_GBPS, color=style.GREY, linewidth=1, linestyle=(0, (1, 2)))
        axes.set(xlabel="size, MB", title=f"loss {loss}", xscale="log", ylim=(0, 420))
    panels[0].set_ylabel("Gb/s of a NIC")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=8,
        handlelength=3.4,
    )
    return fig


def _all_reduce(data: Data) -> Finding:
    found = curves(data, ALL_REDUCE)
    get = found.get
    sizes = sorted({size for curve in found.values() for size in curve})
    large = [size for size in sizes if size >= SEEDS_MB]
    one = get((roce(1), "0"))
    common = max(one) if one else sizes[-1]
    top = max(get((MRC, "0"), {sizes[-1]: []}))
    share = [
        100 * v / ROCE_GBPS
        for size, values in (one or {}).items()
        if size >= SEEDS_MB
        for v in values
    ]
    lossy = get((roce(1), "1 %"))
    unusable = [100 * v / ROCE_GBPS for values in (lossy or {}).values() for v in values]
    checks = [
        Check(
            f"RoCEv2, 1 QP, {SEEDS_MB} MB and above",
            "about half",
            share,
            "% of possible",
            around(50, 15),
        ),
        *(
            Check(f"{other_tag(where, qps)}", "not published", values, "% of possible")
            for where in OTHERS
            for qps in OTHERS_QPS
            if (values := _on_others(data, where, qps))
        ),
        Check(
            "RoCEv2, 8 QPs over 1, large sizes",
            "better",
            by_seed(get((roce(8), "0")), one, common),
            "times",
            Bar(low=1.05),
        ),
        Check(
            "RoCEv2, 16 QPs over 8, large sizes",
            "little gain",
            _at_largest(get((roce(16), "0")), get((roce(8), "0"))),
            "times",
            around(1, 0.1),
        ),
        *(
            Check(
                f"{name}, over the best RoCEv2, loss {loss}, least of all sizes",
                "MRC better",
                _least(ratios(get((name, loss)), best_roce(found, loss), sizes)),
                "times",
                Bar(low=1),
            )
            for name in OF_MRC
            for loss in LOSSES
        ),
        *(
            Check(
                f"{name}, over the best RoCEv2, loss 0, {SEEDS_MB} MB and above",
                "MRC better",
                _least(ratios(get((name, "0")), best_roce(found, "0"), large)),
                "times",
                Bar(low=1),
            )
            for name in OF_MRC
        ),
        Check(
            f"{MRC}, over the best RoCEv2, loss 0.1 %, slowest seed of each size",
            "MRC better",
            _least(ratios(get((MRC, "0.1 %")), best_roce(found, "0.1 %", min), sizes, min)),
            "times",
            Bar(low=1),
        ),
        Check(
            f"{MRC}, loss 0.1 % over none, {top} MB",
            "nearly unchanged",
            by_seed(get((MRC, "0.1 %")), get((MRC, "0")), top),
            "times",
            Bar(low=0.9),
        ),
        Check(
            f"{MRC}, loss 1 % over none, {top} MB",
            "about a third (at 16 GB)",
            by_seed(get((MRC, "1 %")), get((MRC, "0")), top),
            "times",
            around(1 / 3, 0.1),
        ),
        Check(
            "RoCEv2, 1 QP, loss 1 %, all sizes", "unusable", unusable, "% of possible", Bar(high=10)
        ),
    ]
    huge, whole = STEPPED
    at_huge = {loss: by_steps(data, loss, huge) for loss in LOSSES}
    for loss, published, bar in (
        ("0.1 %", "nearly unchanged", Bar(low=0.9)),
        ("1 %", "about a third", around(1 / 3, 0.1)),
    ):
        pairs = zip(at_huge[loss], at_huge["0"], strict=True)
        values = [_ratio(a, b) for a, b in pairs]
        what = f"{MRC}, loss {loss} over none, {huge} MB by {STEPPED[huge]} steps"
        checks.append(Check(what, published, values, "times", bar))
    checks.append(
        Check(
            f"extrapolation: {whole} MB by {STEPPED[whole]} steps over all 126, each loss",
            "1",
            [
                _ratio(a, b)
                for loss in LOSSES
                for a, b in zip(
                    by_steps(data, loss, whole), get((MRC, loss), {}).get(whole, []), strict=True
                )
            ],
            "times",
            around(1, 0.1),
        )
    )
    largest = {loss: (huge, values) for loss, values in at_huge.items()}
    return Finding(_judged(checks, data), draw(found, largest), WHY_RING)


WHY_RING = [
    "A ring is as fast as its slowest link. With one QP a hash puts each of 64 flows on one of its "
    "T0's 64 uplinks and on one way down; two meet on some link, so half of what is possible is "
    "what RoCEv2 has. On smaller fabrics two to four meet, by seed, and a third to a half is left: "
    "the rows of other fabrics.",
    "The parts of 8 QPs meet those of others on different links, and nearly fill the ports; 16 "
    "have nothing to add. In the original some was left to add, and MRC best at all sizes: what "
    "real NICs and switches lose beside collisions is not modelled.",
    "Without loss MRC is behind RoCEv2 of 8 QPs by what its headers are longer, 2 % of a packet, "
    "where both use one port of 400 Gb/s. At small sizes a step is a few packets, which RoCEv2 "
    "sends in a quarter of the time: over four ports of 100 Gb/s MRC's are stored and forwarded "
    "more slowly.",
    "With 0.1 % loss RoCEv2 is the quicker one for 4 MB as long as no last packet of a message is "
    "among the lost; if one is, a timeout of 67 ms passes, a hundred times what MRC takes. A job "
    "waits for every all-reduce, so the slowest seed is compared too.",
    "With 1 % loss MRC keeps much more than the third that was published. What it loses at small "
    "sizes are the round trips until the last packets of a step are found missing. With 64 paths "
    "between two NICs in place of 256 it keeps three quarters at 1 GB: one step of 60 MB takes "
    "18 % longer there with 1 % loss; 8 % with a window of 8192 packet numbers in place of 512, "
    'and 9 % without a congestion window (`cc = "none"`); with two NICs alone on the fabric '
    "hardly anything. So it is holes that hold the window of packet numbers, and paths that leave "
    "and come back and load the fabric unevenly. What limited the original is not published.",
]
WHY_PAIRS = [
    "On the same wires MRC is behind by what its headers are longer, 2 % of a packet and more of "
    "the short ones. The 63 flows of each NIC, spread by a hash over 64 uplinks, load them evenly "
    "enough that RoCEv2 without loss is near the line, which the original was not; it does not "
    "fall with more QPs either. What a real NIC pays for 63 times 16 QPs is not modelled.",
    "Over four ports of 100 Gb/s packets of MRC's 63 flows to a NIC meet at its last hop, and 0.4 "
    "to 1.6 % are trimmed from 16 MB on. The windows of those flows are cut, and they end late: at "
    "16 MB the median flow takes 340 us and the slowest 408; without a congestion window "
    '(`cc = "none"`) the slowest takes 351, with queues that never fill 359. On the same wires as '
    "RoCEv2, one port of 400 Gb/s, nothing is trimmed.",
    "With 0.1 % loss RoCEv2 waits for timeouts of 67 ms, the default of its tools, which at these "
    "sizes is most of what counts.",
]


def _judged(checks: list[Check], data: Data) -> list[Check]:
    """The bars are for large sizes; in the reduced set, which has none, nothing is judged."""
    return [replace(check, bar=None) for check in checks] if data.quick else checks


def _at_largest(over: Curve | None, under: Curve | None) -> list[float]:
    """The ratio at the largest size that both have, seed by seed."""
    both = set(over or {}) & set(under or {})
    return by_seed(over, under, max(both)) if both else []


def _least(values: list[float]) -> list[float]:
    return [min(values)] if values else []


SCALED = (
    "64 NICs, as in the original, below 4 T0s; how many the original had is not published. Its "
    "switches were of 51.2 Tb/s, so a T0 has 64 uplinks of 400 Gb/s here, and in each of four "
    "planes 64 of 100 Gb/s: the 256 paths that MRC had. B15 shows RoCEv2 on two other fabrics as "
    "well. RoCEv2's NICs have one port of 400 Gb/s, MRC's four of 100, and in a second line one of "
    "400: the same wires. Ranks are NICs in random order, so that most neighbours are below "
    "different T0s: the original's order is not published. Each message of a step is sent as a "
    "whole. Losses are drawn for every packet, data and control, that arrives at a NIC."
)

B15 = Experiment(
    "B15",
    "ring all-reduce of 64",
    "Fig. 16, cluster C",
    "64-way ring all-reduce, 4 MB to 16 GB, with 0, 0.1 and 1 % of packets dropped at all NICs. "
    "RoCE with one QP reaches about half of what is possible, 8 to 16 QPs more with little gain "
    "beyond 8; MRC with one QP is best. With 0.1 % MRC is nearly unchanged at large sizes; with "
    "1 % it has about a third, and RoCE is unusable.",
    SCALED
    + " Sizes end at 1 GB in full. 16 GB are 4 of the 126 steps (the open circles), which all "
    "do the same; that this extrapolates is checked with 8 steps of 1 GB against all of them.",
    cases(
        ALL_REDUCE,
        {(MRC, loss): 1000 for loss in LOSSES}
        | {(MRC_ONE, loss): 256 for loss in LOSSES}
        | {(roce(q), "0"): 1000 if q in (1, 8) else 256 for q in QPS}
        | {(roce(q), "0.1 %"): 256 for q in (1, 8, 16)}
        | {(roce(q), "1 %"): 64 for q in (1, 8)},
    )
    + stepped()
    + [
        Case(
            other_tag(where, qps),
            f"{ALL_REDUCE.files}_roce",
            {"workload.size": f"{OTHERS_MB}MB", "transport.qps": qps, **OTHERS[where]},
            seeds=FEW,
            quick=None,
        )
        for where in OTHERS
        for qps in OTHERS_QPS
    ],
    _all_reduce,
)


def _all_to_all(data: Data) -> Finding:
    found = curves(data, ALL_TO_ALL)
    get = found.get
    sizes = sorted({size for curve in found.values() for size in curve})
    large = sizes[-1]
    one, sixteen = get((roce(1), "0")), get((roce(16), "0"))
    lossy, small = get((roce(1), "0.1 %")), sizes[0]
    checks = [
        Check(
            "RoCEv2, 16 QPs over 1, largest size",
            "slightly worse",
            _at_largest(sixteen, one),
            "times",
            Bar(high=1),
        ),
        Check(
            "RoCEv2, 16 QPs over 2, largest size",
            "falls above 2",
            _at_largest(sixteen, get((roce(2), "0"))),
            "times",
            Bar(high=1),
        ),
        *(
            Check(
                f"{name}, over the best RoCEv2, loss {loss}, least of all sizes",
                "best at all sizes" if loss == "0" else "much better",
                _least(ratios(get((name, loss)), best_roce(found, loss), sizes)),
                "times",
                Bar(low=1),
            )
            for name in OF_MRC
            for loss in LOSSES
        ),
        Check(
            f"RoCEv2, 1 QP, loss 0.1 % over none, {small} MB",
            "very poor",
            by_seed(lossy, one, small),
            "times",
            Bar(high=0.5),
        ),
        Check(
            "RoCEv2, 1 QP, loss 0.1 % over none, largest size",
            "barely hurt",
            _at_largest(lossy, one),
            "times",
            Bar(low=0.8),
        ),
        Check(
            f"{MRC}, loss 0.1 % over none, {large} MB",
            "not published",
            by_seed(get((MRC, "0.1 %")), get((MRC, "0")), large),
            "times",
        ),
    ]
    return Finding(_judged(checks, data), draw(found), WHY_PAIRS)


B16 = Experiment(
    "B16",
    "all-to-all of 64",
    "Fig. 17, cluster C",
    "The same for an all-to-all. RoCE with 16 QPs is slightly worse than with 1, and falls above "
    "2; MRC is best at all sizes. With 0.1 % loss RoCE is barely hurt at large sizes and very poor "
    "at small ones; MRC is much better.",
    SCALED + " Sizes end at 1 GB, 16 MB from each NIC to each other.",
    cases(
        ALL_TO_ALL,
        {(MRC, loss): 1000 for loss in LOSSES}
        | {(MRC_ONE, loss): 256 for loss in LOSSES}
        | {(roce(q), "0"): 1000 if q in (1, 2, 16) else 64 for q in QPS}
        | {(roce(q), "0.1 %"): 1000 if q == 1 else 64 for q in (1, 16)}
        | {(roce(q), "1 %"): 16 for q in (1,)},
    ),
    _all_to_all,
)
