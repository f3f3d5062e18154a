"""The common part of the experiments with collectives of 64 NICs: MRC beside RoCEv2 with 1 to 16
QPs.

Small collectives are repeated, each rank starting again as soon as it has ended: their mean times
are compared, as the usual benchmarks of collectives print them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from openmrc.paper import style
from openmrc.paper.case import FEW, Case
from openmrc.paper.data import Data
from openmrc.paper.series import listed
from openmrc.paper.verdict import Bar, Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS = 64
POSSIBLE_GBPS = 400 * 4096 / 4262  # of MRC
ROCE_GBPS = 400 * 4096 / 4178  # of RoCEv2, whose headers are shorter
SIZES_MB = (4, 16, 64, 256, 1000, 4000, 16_000)
QUICK_MB = (4,)
LEAST_GBPS = 0.1  # the lower end of a logarithmic axis: RoCEv2 with 1 % of loss has some 0.2
SEEDS_MB = 4000  # sizes up to here have several seeds, larger ones one
LOSSES = {"0": 0.0, "0.1 %": 0.001, "1 %": 0.01}
QPS = (1, 2, 4, 8, 16)
MRC, MRC_ONE = "MRC, 4 ports", "MRC, 1 port"  # one QP; of 100 Gb/s each, and of 400
ONE_PORT = {"fabric.planes": 1, "fabric.port_rate": "400Gbps"}
# Bytes that a NIC sends for each byte of the size.
FACTOR = {
    "ring-all-reduce": 2 * (RANKS - 1) / RANKS,
    "all-to-all": (RANKS - 1) / RANKS,
    "send-recv": 1.0,  # a step
}


class Kind(NamedTuple):
    """A collective: its scenario files, and how often it is run in succession, by size in MB.

    Only a ring can be repeated: as more steps of the same.
    """

    files: str
    times: Mapping[int, int] = {}


# As many all-reduces in succession as make 80 MB.
ALL_REDUCE = Kind("B15_all_reduce", {4: 20, 16: 5})
ALL_TO_ALL = Kind("B16_all_to_all")
RING_STEPS = 2 * (RANKS - 1)
Curve = dict[int, list[float]]  # Gb/s of each seed, by size in MB
Found = dict[tuple[str, str], Curve]  # by name of the curve, and loss


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
                change = of_size(kind, size) | of_curve(curve) | {"fault[0].rate": rate}
                quick = size in QUICK_MB and curve in (*OF_MRC, roce(1), roce(8)) and loss != "1 %"
                found.append(
                    Case(
                        tag(curve, loss, size),
                        file_of(kind, curve),
                        change,
                        seeds=FEW if size <= SEEDS_MB else 1,
                        quick={} if quick else None,
                    )
                )
    return found


def file_of(kind: Kind, curve: str) -> str:
    """Return the scenario file of a curve."""
    return f"{kind.files}_{'mrc' if curve in OF_MRC else 'roce'}"


def of_curve(curve: str) -> dict[str, Any]:
    """Return what a scenario changes for that curve."""
    if curve in OF_MRC:
        return ONE_PORT if curve == MRC_ONE else {}
    return {"transport.qps": QPS[CURVES.index(curve) - len(OF_MRC)]}


def of_size(kind: Kind, size_mb: int) -> dict[str, Any]:
    """Return what a scenario of that kind changes to run a size, with its repetitions."""
    if size_mb not in kind.times:
        return {"workload.size": f"{size_mb}MB"}
    return ring_steps(size_mb, RING_STEPS * kind.times[size_mb])


def ring_steps(size_mb: int, steps: int) -> dict[str, Any]:
    """What a scenario changes to run so many steps of a ring all-reduce of that size: in each step
    every NIC passes a 64th to the next.
    """
    return {
        "workload.kind": "send-recv",
        "workload.size": f"{size_mb * 1_000_000 // RANKS}B",
        "workload.steps": steps,
    }


def tag(curve: str, loss: str, size_mb: int) -> str:
    """Return the tag of a case."""
    return f"{curve}, loss {loss}, {size_mb} MB"


def gbps(row: dict[str, Any]) -> float:
    """Return the Gb/s that a NIC sent until the last NIC had everything; 0 if that never
    happened.
    """
    if row["flows.completed"] < row["flows.total"]:
        return 0.0
    kind = row["workload.kind"]
    steps = row["workload.steps"] if kind == "send-recv" else 1
    sent_bytes = row["workload.size"] * FACTOR[kind] * steps
    last_us = row["slowdown_p100"] * row["ideal_us"]
    return float(sent_bytes * 8e-3 / last_us)


def curves(data: Data) -> Found:
    """Return every curve by name and loss: Gb/s of a NIC by size, each seed."""
    found: Found = {}
    for curve in CURVES:
        for loss in LOSSES:
            points = {
                size: [gbps(row) for row in data.rows(tag(curve, loss, size))]
                for size in SIZES_MB
                if tag(curve, loss, size) in data.tags
            }
            if points:
                found[curve, loss] = points
    return found


def ratios(over: Curve | None, under: Curve | None, sizes: list[int]) -> list[float]:
    """Return the ratio of the medians at each size that both have."""
    if over is None or under is None:
        return []
    both = [size for size in sizes if size in over and size in under]
    return [ratio(median(over[size]), median(under[size])) for size in both]


def by_seed(over: Curve | None, under: Curve | None, size: int) -> list[float]:
    """Return the ratio at one size, seed by seed; none if one of the two lacks it."""
    if over is None or under is None or size not in over or size not in under:
        return []
    return [ratio(a, b) for a, b in zip(over[size], under[size], strict=True)]


def ratio(a: float, b: float) -> float:
    """Return a over b; infinite where b is 0."""
    return a / b if b else math.inf


def best_roce(found: Found, loss: str) -> Curve | None:
    """Return, size by size, the RoCEv2 of the highest median; None if none was run."""
    mine = [curve for (name, at), curve in found.items() if name not in OF_MRC and at == loss]
    best: Curve = {}
    for curve in mine:
        for size, values in curve.items():
            if size not in best or median(values) > median(best[size]):
                best[size] = values
    return best or None


def figure(extra: int = 0) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each loss, and `extra` more."""
    columns = len(LOSSES) + extra
    return style.figure(columns, width=9.5 if not extra else 3.1 * columns, height=3.6)


def drawn(found: Found) -> dict[str, dict[str, Any]]:
    """Return the content of a figure, by loss and curve: sizes, and the smallest, median and
    largest Gb/s of a NIC over the seeds.
    """
    shown: dict[str, dict[str, Any]] = {loss: {} for loss in LOSSES}
    for (name, loss), curve in found.items():
        shown[loss][name] = {"size_mb": list(curve)} | {
            what: listed(of(values) for values in curve.values())
            for what, of in (("least", min), ("middle", median), ("most", max))
        }
    return shown


def draw(panels: list[Axes], shown: Mapping[str, Any]) -> None:
    """Draw a panel for each loss: Gb/s of a NIC over size, a line for each curve, with the range
    over its seeds as a bar. With loss RoCEv2 is so far below that only a logarithmic axis shows it.
    """
    for axes, loss in zip(panels, LOSSES, strict=False):
        for number, name in enumerate(CURVES):
            if name in shown[loss]:
                curve = shown[loss][name]
                looks = style.line(number, marked=True)
                axes.plot(curve["size_mb"], curve["middle"], **looks, label=name)
                bars = curve["size_mb"], curve["least"], curve["most"]
                axes.vlines(*bars, color=looks["color"], linewidth=1.0, alpha=0.6)
        axes.axhline(POSSIBLE_GBPS, color=style.GREY, linewidth=1, linestyle=(0, (1, 2)))
        axes.set(xlabel="size, MB", title=f"loss {loss}", xscale="log", ylim=(0, 420))
        if LOSSES[loss]:
            axes.set(yscale="log", ylim=(LEAST_GBPS, 600))
    panels[0].set_ylabel("Gb/s of a NIC")


def legend(fig: Figure, axes: Axes) -> None:
    """Draw one legend below all panels, of the curves of `axes`."""
    shown = axes.get_legend_handles_labels()
    fig.legend(*shown, loc="outside lower center", ncols=4, **style.LEGEND)


def over_best(
    found: Found,
    sizes: list[int],
    published: Mapping[str, str],
    where: str = "least of all sizes",
) -> list[Check]:
    """Return the rows of MRC over the best RoCEv2, the smallest over these sizes, by loss."""
    return [
        Check(
            f"{name}, over the best RoCEv2, loss {loss}, {where}",
            words,
            least(ratios(found.get((name, loss)), best_roce(found, loss), sizes)),
            "times",
            Bar(low=1),
        )
        for name in OF_MRC
        for loss, words in published.items()
    ]


def by_qps(found: Found, many: int, few: int, where: str, published: str, bar: Bar) -> Check:
    """Return the row of RoCEv2 with many QPs over few, without loss, at the largest size."""
    ratios = at_largest(found.get((roce(many), "0")), found.get((roce(few), "0")))
    return Check(f"RoCEv2, {many} QPs over {few}, {where}", published, ratios, "times", bar)


def by_loss(
    found: Found, name: str, loss: str, size_mb: int | None, published: str, bar: Bar | None = None
) -> Check:
    """Return the row of a curve with loss over the same without, at a size, the largest if None."""
    some, none = found.get((name, loss)), found.get((name, "0"))
    where = "largest size" if size_mb is None else f"{size_mb} MB"
    ratios = at_largest(some, none) if size_mb is None else by_seed(some, none, size_mb)
    return Check(f"{name}, loss {loss} over none, {where}", published, ratios, "times", bar)


def judged(checks: list[Check], data: Data) -> list[Check]:
    """Return them; without bars in the reduced set, because those are for large sizes."""
    return [replace(check, bar=None) for check in checks] if data.quick else checks


def at_largest(over: Curve | None, under: Curve | None) -> list[float]:
    """Return the ratio at the largest size that both have, seed by seed."""
    both = set(over or {}) & set(under or {})
    return by_seed(over, under, max(both)) if both else []


def least(values: list[float]) -> list[float]:
    """Return the smallest alone; none of none."""
    return [min(values)] if values else []


SCALED = (
    "64 NICs, as in the original, below 4 T0s; how many the original had is not published. Its "
    "switches were of 51.2 Tb/s, so a T0 has 64 uplinks of 400 Gb/s here, or 64 of 100 Gb/s in "
    "each of four planes: the 256 paths that MRC had. RoCEv2's NICs have one port of 400 Gb/s, "
    "MRC's have four of 100, and in a second line one of 400: the same capacity. Ranks are NICs in "
    "random order, so that most neighbours are below different T0s: the original's order is not "
    "published. Each message of a step is sent as a whole. Losses are drawn for every packet, data "
    "and control, that arrives at a NIC."
)
