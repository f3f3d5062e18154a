"""S1: the incast of another simulator, for comparison."""

from __future__ import annotations

from openmrc.paper import style
from openmrc.paper.data import Data
from openmrc.paper.experiment import SEVERAL, Case, Experiment, Finding
from openmrc.paper.verdict import Check

BITS = 127 * 65_536 * 8
OTHERS = {"MRC": 709.4, "UEC": 703.8, "RoCEv2": 753.7, "veRoCE": 730.2, "Falcon": 664.5}


def _s1(data: Data) -> Finding:
    rows = data.rows("mrc", "mrc")
    total = [row["goodput_gbps.total"] for row in rows]
    fig, (axes,) = style.figure()
    for number, flows in enumerate(data.tables("mrc", "flows", "mrc")):
        done = flows["fct_us"].sort().to_numpy()
        axes.plot(
            done,
            range(1, len(done) + 1),
            **style.line(number),
            drawstyle="steps-post",
            label=f"seed {number + 1}",
        )
    style.event(axes, 80.4, "ns-3: mean 80.4", 0.4)
    style.event(axes, 93.7, "ns-3: p99 93.7", 0.2)
    axes.set(xlabel="completion time, us", ylabel="flows completed of 127", ylim=(0, 135))
    style.legend(axes)
    return Finding(
        [
            Check(
                "aggregate, all bytes over the last completion", "709.4 Gb/s (ns-3)", total, "Gb/s"
            ),
            Check(
                "mean completion time",
                "80.4 us (ns-3)",
                [row["flows.fct_us.mean"] for row in rows],
                "us",
            ),
            Check(
                "99th percentile", "93.7 us (ns-3)", [row["flows.fct_us.p99"] for row in rows], "us"
            ),
        ],
        fig,
    )


S1 = Experiment(
    "S1",
    "127:1 incast, beside another simulator",
    "A model of MRC for ns-3, by others",
    "127 NICs of a fat tree of eight-port switches at 800 Gb/s send 64 KiB each to one.",
    "The same fabric, sizes and rates. Delays, queues and thresholds of the other model are not "
    "published, so nothing is judged here: the figures stand side by side.",
    [Case("mrc", "S1_incast_127", seeds=SEVERAL, keep=("flows",))],
    _s1,
)
