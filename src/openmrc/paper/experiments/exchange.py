"""B14: every NIC sends to its neighbour in a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import FEW, Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES_MB = (1, 4, 16, 64, 256, 1000, 2000)
LARGE_MB = 1000
QUICK_MB = 64


def _exchange(data: Data) -> Finding:
    sizes = [int(tag) for tag in data.tags]
    gb_per_s = {
        size: [size / 1e3 / (us / 1e6) for us in data.values(str(size), "flows.fct_us.p100")]
        for size in sizes
    }
    middle = [sorted(gb_per_s[size])[len(gb_per_s[size]) // 2] for size in sizes]
    large = [
        value * 8 / series.LINE_GBPS * 100 for s in sizes if s >= LARGE_MB for value in gb_per_s[s]
    ]
    best = [max(values) for values in zip(*(gb_per_s[s][:1] for s in sizes), strict=True)]
    return Finding(
        [
            Check("most of a NIC, any size", "92 GB/s with hosts", best, "GB/s", Bar(low=92)),
            Check(
                "slowest NIC, 1 GB and above",
                "92 of 96.1 GB/s: 95.7 %",
                large,
                "% of 768.8 Gb/s",
                Bar(low=95),
            ),
        ],
        {"size_mb": sizes, "gb_per_s": series.listed(middle)},
        [
            "The simulator has no hosts: no GPU fills or empties a buffer. So the measured value "
            "is the network's share of 96.1 GB/s, and the published 92 GB/s lie below it."
        ],
    )


def _draw(drawn: Any) -> Figure:
    fig, (axes,) = style.figure()
    looks = style.line(0, marked=True)
    axes.plot(drawn["size_mb"], drawn["gb_per_s"], **looks, label="simulated, slowest NIC")
    style.published(axes, 92, "up to 92 GB/s, from 64 MB to 2 GB")
    style.level(axes, series.LINE_GBPS / 8, "4096 / 4262 of 800 Gb/s: 96.1 GB/s")
    axes.set(xlabel="message, MB", ylabel="GB/s of a NIC", xscale="log", ylim=(0, 105))
    style.legend(axes, loc="lower right")
    return fig


B14 = Experiment(
    "B14",
    "exchange between neighbours",
    "Fig. 15, cluster B",
    "NCCL's send-recv over 42,000 GPUs, each with its neighbour, from 64 MB to 2 GB: up to 92 GB/s "
    "of a NIC.",
    "64 NICs in place of 42,000. Each sends to one and receives from one, in random order, so that "
    "nearly all of it crosses the fabric; with full bisection the load of a link does not depend "
    "on how many NICs there are.",
    [
        Case(
            str(size),
            "B14_send_recv",
            {"workload.size": f"{size}MB"},
            seeds=1 if size >= LARGE_MB else FEW,
            quick={} if size <= QUICK_MB else None,
        )
        for size in SIZES_MB
    ],
    _exchange,
    _draw,
)
