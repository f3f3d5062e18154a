"""B15: a ring all-reduce of 64 NICs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import harmonic_mean
from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.experiments import collectives
from openmrc.paper.verdict import Bar, Check, around

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A size so large that only some of its 126 steps are run, all of which are alike; and the same for
# a size that is run in full, as a check.
STEPPED = {16_000: 4, 1000: 8}
HUGE_MB, WHOLE_MB = STEPPED
LARGE_MB = 64  # and above
# Fabrics that 64 NICs fit on, from the one with the most uplinks: RoCEv2's share depends on them,
# and on the hash.
FABRICS = {
    "4 T0s, 64 uplinks each": {},
    "4 T0s, 32": {"fabric.t0_up": 32},
    "2 T0s, 32": {"fabric.t0_down": 32, "fabric.t0_up": 32},
    "4 T0s, 16": {"fabric.t0_up": 16},
}
DRAWS = 8  # seeds of each: other salts of the hash, another order of ranks
DRAWN = {collectives.MRC: collectives.POSSIBLE_GBPS} | {
    collectives.roce(qps): collectives.ROCE_GBPS for qps in (1, 8, 16)
}


def _some(size_mb: int) -> str:
    return f"{STEPPED[size_mb]} steps of {size_mb} MB"


def _case(tag: str, curve: str, size_mb: int, change: dict[str, Any], seeds: int = 1) -> Case:
    """The case of some steps: each NIC passes a 64th of the size to the next."""
    steps = collectives.ring_steps(size_mb, STEPPED[size_mb])
    file = collectives.file_of(collectives.ALL_REDUCE, curve)
    return Case(tag, file, steps | change, seeds=seeds, quick=None)


def stepped_tag(loss: str, size_mb: int) -> str:
    """Return the tag of the case that runs some steps of MRC's ring alone."""
    return f"{collectives.MRC}, loss {loss}, {_some(size_mb)}"


def stepped() -> list[Case]:
    """Return the cases of single steps, by size and loss."""
    return [
        _case(stepped_tag(loss, size), collectives.MRC, size, {"fault[0].rate": rate})
        for size in STEPPED
        for loss, rate in collectives.LOSSES.items()
    ]


def fabric_tag(where: str, curve: str) -> str:
    """Return the tag of the case that runs some steps on a fabric."""
    return f"{curve}, {_some(WHOLE_MB)}, {where}"


def on_fabrics() -> list[Case]:
    """Return the cases that run some steps on each fabric, without loss."""
    tag, of_curve = fabric_tag, collectives.of_curve
    return [
        _case(tag(where, curve), curve, WHOLE_MB, change | of_curve(curve), DRAWS)
        for where, change in FABRICS.items()
        for curve in DRAWN
    ]


def _drawn(data: Data) -> dict[str, collectives.Curve]:
    """Gb/s of each draw, by curve and number of the fabric; nothing in the reduced set."""
    return {
        curve: {
            number: [collectives.gbps(row) for row in data.rows(fabric_tag(where, curve))]
            for number, where in enumerate(FABRICS)
            if fabric_tag(where, curve) in data.tags
        }
        for curve in DRAWN
    }


def by_steps(data: Data, loss: str, size_mb: int) -> list[float]:
    """Return Gb/s of a NIC in some steps of a size, each seed; none if they were not run."""
    tag = stepped_tag(loss, size_mb)
    return [collectives.gbps(row) for row in data.rows(tag)] if tag in data.tags else []


def _all_reduce(data: Data) -> Finding:
    found, drawn = collectives.curves(data), _drawn(data)
    at_huge = {loss: by_steps(data, loss, HUGE_MB) for loss in collectives.LOSSES}
    checks = [
        *_of_roce(found),
        *fabric_checks(drawn),
        *_of_mrc(found),
        *_by_steps(
            found, at_huge, {loss: by_steps(data, loss, WHOLE_MB) for loss in collectives.LOSSES}
        ),
    ]
    shown = {
        "by_loss": collectives.drawn(found),
        "by_steps": {loss: series.listed(values[:1]) for loss, values in at_huge.items()},
        "by_fabric": {
            curve: [series.listed((min(v), harmonic_mean(v), max(v))) for v in rates.values()]
            for curve, rates in drawn.items()
        },
    }
    words = [*WHY[:1], _table(drawn), *WHY[1:]] if drawn[collectives.MRC] else WHY
    return Finding(collectives.judged(checks, data), shown, words)


def _draw(shown: Any) -> Figure:
    fig, panels = collectives.figure(extra=1)
    collectives.draw(panels[:-1], shown["by_loss"])
    for axes, values in zip(panels, shown["by_steps"].values(), strict=False):
        if values:
            axes.plot(HUGE_MB, values[0], **style.line(0, marked=True) | {"fillstyle": "none"})
    # as text, at the largest size: RoCEv2 with one QP about half; MRC nearly unchanged, a third
    half, third = collectives.ROCE_GBPS / 2, collectives.POSSIBLE_GBPS / 3
    panels[0].plot(HUGE_MB, half, **style.POINT, label="published, about")
    panels[1].plot(HUGE_MB, collectives.POSSIBLE_GBPS, **style.POINT)
    panels[2].plot(HUGE_MB, third, **style.POINT)
    _draw_fabrics(panels[-1], shown["by_fabric"])
    collectives.legend(fig, panels[0])
    return fig


def _of_roce(found: collectives.Found) -> list[Check]:
    """The rows of RoCEv2 alone."""
    one = found.get((collectives.roce(1), "0"), {})
    lossy = found.get((collectives.roce(1), "1 %"), {})
    large = [values for size, values in one.items() if size >= LARGE_MB]
    return [
        _shares(f"1 QP, {LARGE_MB} MB and above", "about half", large, around(50, 15)),
        collectives.by_qps(found, 8, 1, "large sizes", "better", Bar(low=1.05)),
        collectives.by_qps(found, 16, 8, "large sizes", "little gain", around(1, 0.1)),
        _shares("1 QP, loss 1 %, all sizes", "unusable", lossy.values(), Bar(high=10)),
    ]


def _shares(what: str, published: str, rates: Iterable[list[float]], bar: Bar) -> Check:
    """The row of RoCEv2's share of what is possible."""
    values = [100 * rate / collectives.ROCE_GBPS for seeds in rates for rate in seeds]
    return Check(f"RoCEv2, {what}", published, values, "% of possible", bar)


def fabric_checks(drawn: dict[str, collectives.Curve]) -> list[Check]:
    """Return the rows of MRC beside RoCEv2 on each fabric that was run: over all draws, and in the
    slowest of each.
    """
    checks = []
    baselines = [curve for curve in DRAWN if curve != collectives.MRC]
    for number, where in enumerate(FABRICS):
        if number not in drawn[collectives.MRC]:
            continue
        for what, of in (("mean of the draws", harmonic_mean), ("slowest draws", min)):
            best = max(of(drawn[curve][number]) for curve in baselines)
            over = collectives.ratio(of(drawn[collectives.MRC][number]), best)
            name = f"{collectives.MRC}, over the best RoCEv2, {WHOLE_MB} MB, {where}: {what}"
            checks.append(Check(name, "MRC better", [over], "times", Bar(low=1)))
    return checks


def _of_mrc(found: collectives.Found) -> list[Check]:
    """The rows of MRC beside RoCEv2, by loss, and beside itself."""
    sizes = sorted({size for curve in found.values() for size in curve})
    large = [size for size in sizes if size >= LARGE_MB]
    top = max(found.get((collectives.MRC, "0"), {}), default=sizes[-1])
    third = "about a third (at 16 GB)"
    return [
        *collectives.over_best(found, sizes, dict.fromkeys(collectives.LOSSES, "MRC better")),
        *collectives.over_best(found, large, {"0": "MRC better"}, f"{LARGE_MB} MB and above"),
        collectives.by_loss(found, collectives.MRC, "0.1 %", top, "nearly unchanged", Bar(low=0.9)),
        collectives.by_loss(found, collectives.MRC, "1 %", top, third, around(1 / 3, 0.1)),
    ]


def _by_steps(
    found: collectives.Found,
    huge: dict[str, list[float]],
    whole: dict[str, list[float]],
) -> list[Check]:
    """The rows of the size that is run by steps, and of how well steps represent the whole."""
    checks = []
    for loss, published, bar in (
        ("0.1 %", "nearly unchanged", Bar(low=0.9)),
        ("1 %", "about a third", around(1 / 3, 0.1)),
    ):
        values = [collectives.ratio(a, b) for a, b in zip(huge[loss], huge["0"], strict=True)]
        what = f"{collectives.MRC}, loss {loss} over none, {HUGE_MB} MB by {STEPPED[HUGE_MB]} steps"
        checks.append(Check(what, published, values, "times", bar))
    of_steps = [
        collectives.ratio(values[0], found[collectives.MRC, loss][WHOLE_MB][0])
        for loss, values in whole.items()
        if values
    ]
    what = f"extrapolation: {WHOLE_MB} MB by {STEPPED[WHOLE_MB]} steps over all 126, each loss"
    checks.append(Check(what, "1", of_steps, "times", around(1, 0.1)))
    return checks


def _draw_fabrics(axes: Axes, shown: Mapping[str, list[list[float]]]) -> None:
    """Draw each fabric's draws: the mean, and a bar from the least to the largest."""
    for place, (curve, rates) in enumerate(shown.items()):
        look = style.line(collectives.CURVES.index(curve), marked=True)
        at = [fabric + 0.16 * (place - 1.5) for fabric in range(len(rates))]
        axes.plot(at, [mean for _, mean, _ in rates], **look | {"linestyle": "none"})
        bars = [least for least, _, _ in rates], [most for _, _, most in rates]
        axes.vlines(at, *bars, color=look["color"], linewidth=1.2)
    names = [where.replace(", ", "\n").replace(" each", "") for where in FABRICS]
    axes.set_xticks(range(len(FABRICS)), names, fontsize=7.5)
    axes.set(title=f"loss 0, {WHOLE_MB} MB, by fabric", ylim=(0, 420))


def _table(drawn: dict[str, collectives.Curve]) -> str:
    """The share of what is possible on each fabric, in Markdown."""
    lines = [
        f"{WHOLE_MB} MB without loss, {DRAWS} draws of hash and order: percent of what is "
        "possible, mean (least to largest).\n",
        "| T0s and uplinks of each | " + " | ".join(DRAWN) + " |",
        "| --- " * (1 + len(DRAWN)) + "|",
    ]
    for number, where in enumerate(FABRICS):
        cells = []
        for curve, possible in DRAWN.items():
            rates = [100 * rate / possible for rate in drawn[curve][number]]
            cells.append(f"{harmonic_mean(rates):.1f} ({min(rates):.1f} to {max(rates):.1f})")
        lines.append(f"| {where} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


WHY = [
    "A ring is as fast as its slowest link. With one QP a hash puts each of 64 flows on one of its "
    "T0's uplinks and on one downlink. With 64 uplinks two flows share some link, so RoCEv2 "
    "reaches half of what is possible; with fewer uplinks two to four flows do. The parts of 8 QPs "
    "collide with those of others on different links. With as many uplinks as NICs, full "
    "bisection, 16 QPs gain something over 8, as in the original; with four times as many, 8 fill "
    "the ports and 16 add nothing. MRC reaches the same on all of these fabrics.",
    "So without loss MRC is best on a fabric that is no larger than necessary, in the mean of the "
    "draws and even more in the slowest. With so many links that 8 or 16 parts of a flow hardly "
    "collide, it is behind by its longer headers, 2 % of a packet, as the row of one port of 400 "
    "Gb/s shows; other losses of real NICs and switches are not modelled. At 4 MB a step is 16 "
    "packets, each of which RoCEv2 sends in a quarter of the time: over four ports of 100 Gb/s "
    "storing and forwarding MRC's takes longer, by 1 us in 4.",
    "With 0.1 % loss and small sizes most of RoCEv2's steps lose nothing that matters. But when "
    "the last packet of a message is lost and nothing follows it, only its NIC's first timer of "
    "8.4 ms detects the loss (`docs/roce.md`), ten times as long as MRC takes for everything: the "
    "mean of 20 contains some of these.",
    "With 1 % loss MRC keeps much more than the published third. At small sizes it loses the round "
    "trips until the last packets of a step are found missing. With 64 paths between two NICs "
    "instead of 256 it keeps three quarters at 1 GB: there one step of 60 MB takes 18 % longer "
    "with 1 % loss; 8 % with a window of 8192 packet numbers instead of 512, and 9 % without a "
    'congestion window (`cc = "none"`); with two NICs alone on the fabric hardly anything. So the '
    "causes are holes, which stop the window of packet numbers, and paths that leave and return, "
    "which load the fabric unevenly. What limited the original is not published.",
]

B15 = Experiment(
    "B15",
    "ring all-reduce of 64",
    "Fig. 16, cluster C",
    "64-way ring all-reduce, 4 MB to 16 GB, with 0, 0.1 and 1 % of packets dropped at all NICs. "
    "RoCE reaches about half of what is possible with one QP, more with 8, and little more with "
    "16; MRC with one QP is best. With 0.1 % loss MRC is nearly unchanged at large sizes; with 1 % "
    "it keeps about a third, and RoCE is unusable.",
    collectives.SCALED
    + " That fabric has four times the uplinks that 64 NICs need; the panel on the right also "
    "shows smaller ones, down to full bisection. All-reduces of 4 and 16 MB are run 20 and 5 "
    "times in a row, and their mean counts, as in the usual benchmarks of collectives. The "
    "largest size that is run in full is 1 GB. 16 GB are 4 of the 126 steps (the open circles), "
    "which are all alike; that this extrapolates is checked with 8 steps of 1 GB against all of "
    "them.",
    collectives.cases(
        collectives.ALL_REDUCE,
        {(collectives.MRC, loss): 1000 for loss in collectives.LOSSES}
        | {(collectives.MRC_ONE, loss): 256 for loss in collectives.LOSSES}
        | {(collectives.roce(q), "0"): 1000 if q in (1, 8, 16) else 256 for q in collectives.QPS}
        | {(collectives.roce(q), "0.1 %"): 256 for q in (1, 8, 16)}
        | {(collectives.roce(q), "1 %"): 64 for q in (1, 8)},
    )
    + stepped()
    + on_fabrics(),
    _all_reduce,
    _draw,
)
