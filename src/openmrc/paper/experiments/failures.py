"""B1, B3, B12: dead links, a flapping transceiver, and a path that loses packets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from openmrc.paper import series, style
from openmrc.paper.case import FEW, Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure


B1_SHARES = {"start": "0.5 %", "0.2 %": "0.2 %", "1 %": "1 %"}  # dead links, by case


def _b1(data: Data) -> Finding:
    rows = data.rows("start")
    per_qp = [row["packets.retransmitted"] / row["flows.total"] for row in rows]
    worst = [
        float(flows["retransmitted"].to_numpy().max()) for flows in data.tables("start", "flows")
    ]
    late, decay = [], []
    nics = rows[0]["fabric.nics"]
    drawn = []
    for timeline in data.tables("start", "timeline"):
        t_ms, lost = series.column(timeline, "retransmitted")
        half = t_ms >= t_ms[-1] / 2
        sent = series.column(timeline, "goodput_gbps")[1][half].mean() * 1e9 / 8 / 4096
        late.append(float(lost[half].mean()) / (t_ms[1] - t_ms[0]) * 1e3 / sent * 25e6)
        total = np.cumsum(lost)
        decay.append(1e3 * float(t_ms[np.searchsorted(total, 0.9 * total[-1])]))
        rate = lost / (t_ms[1] - t_ms[0]) * 1e3 / nics
        end_us = 1e3 * (t_ms + t_ms[1])
        end_of = {"end_us": series.listed(end_us[rate > 0]), "rate": series.listed(rate[rate > 0])}
        drawn.append(end_of | {"stop_us": 1e3 * float(t_ms[-1])})
    return Finding(
        [
            Check("packets lost per QP, mean", "< 5 in the first minute", per_qp, "", Bar(high=5)),
            *(
                Check(
                    f"the same with {B1_SHARES[tag]} of the links dead",
                    "in proportion",
                    [r["packets.retransmitted"] / r["flows.total"] for r in data.rows(tag)],
                )
                for tag in data.tags
                if tag != "start"
            ),
            Check("packets lost per QP, worst QP", "not published", worst),
            Check(
                "packets lost for each dead path that a QP left",
                "about 1, where QPs are not at full rate",
                [row["packets.retransmitted"] / row["paths.assumed_bad"] for row in rows],
            ),
            Check(
                "lost in the second half, of 25 million packets",
                "well below 1 after 2 minutes",
                late,
                "",
                Bar(high=1),
            ),
            Check(
                "nine tenths of all losses come within",
                "about 2 minutes, with the job's start",
                decay,
                "us",
            ),
        ],
        drawn,
        [
            "A packet counts as lost when its NIC sends it again; a point is drawn for each 10 us "
            "with a loss. Later losses are mostly of probes on dead paths, which carry no data. "
            "The original decays over minutes because a job begins to use its QPs over minutes. A "
            "dead path costs about two packets here: at full rate its turn comes every 5 us, and "
            "the first loss is known only after more than a round trip of 6 us."
        ],
    )


def _draw_b1(drawn: Any) -> Figure:
    fig, (axes,) = style.figure()
    for number, seed in enumerate(drawn):
        looks = style.line(number, marked=True)
        axes.plot(seed["end_us"], seed["rate"], **looks, label=f"simulated, seed {number + 1}")
    style.published(axes, 1.0, "well below 1 after 2 minutes")
    axes.set(
        xlabel="simulated time, us",
        ylabel="packets lost a second and NIC",
        xscale="log",
        yscale="log",
        xlim=(8, drawn[0]["stop_us"]),
        ylim=(0.3, 1e7),
    )
    style.legend(axes, loc="upper right")
    return fig


B1 = Experiment(
    "B1",
    "a job starts on dead links",
    "Fig. 4, cluster A",
    "A job starts on a fabric with dead links that nobody has listed. The loss rate decays as each "
    "QP leaves its dead paths: fewer than 5 packets are lost per QP in the first minute, and well "
    "below one per second and NIC (1 in 25 million packets) after about two.",
    "256 NICs instead of 75,000, all of them at full rate from the first instant, so minutes "
    "become milliseconds: a QP learns of a dead path by sending on it, and each has used all of "
    "its 128 paths within 6 us. 0.5 % of the links between switches are dead, drawn anew for each "
    "seed; the original's share is not published, and the packets lost are in proportion to it. "
    "The size of the fabric matters only through the number of paths of a QP, which is the "
    "original's.",
    [
        Case(
            "start",
            "B1_job_start",
            seeds=FEW,
            keep=("flows", "timeline"),
            quick={"fabric.nics": 128, "stop.time": "1ms"},
        ),
        *(
            Case(tag, "B1_job_start", {"fault[0].share": share}, seeds=1, quick=None)
            for tag, share in (("0.2 %", 0.002), ("1 %", 0.01))
        ),
    ],
    _b1,
    _draw_b1,
)

B3_BEGIN_MS, B3_END_MS, B3_STOP_MS = 4.0, 12.0, 18.0
B3_NICS = 31  # in the job
B3_ROUND_MS = 3.0  # more than a round of the ring: by then every NIC waits for the slow ones
B3_TAGS = {"flapping": "down half of the time", "down": "down all the time"}


def _b3(data: Data) -> Finding:
    checks = []
    worst_nics, drawn = [], {}
    for tag, words in B3_TAGS.items():
        loss, settle, errors = [], [], []
        runs = series.goodputs(data, tag)
        for (t_ms, gbps), row in zip(runs, data.rows(tag), strict=True):
            before = series.mean_between(t_ms, gbps, 1.0, B3_BEGIN_MS)
            during = series.mean_between(t_ms, gbps, B3_BEGIN_MS + B3_ROUND_MS, B3_END_MS)
            loss.append(100 * (1 - during / before))
            settle.append(_settled(t_ms, gbps, before))
            errors.append(float(len(row["qp_errors"])))
        worst_nics += [_share_of_worst(flows) for flows in data.tables(tag, "flows")]
        t_ms, gbps = series.rebinned(*runs[0], 200)
        drawn[tag] = {
            "t_ms": series.listed(t_ms),
            "gbps": series.listed(gbps / B3_NICS),
            "before_gbps": before / B3_NICS,
        }
        published = "about 25 %" if tag == "down" else "about 25 % (flapping, duty unknown)"
        bar = around(25, 3) if tag == "down" else None
        checks += [
            Check(f"throughput lost, {words}", published, loss, "%", bar),
            Check(
                f"back at full rate after the last flap, {words}",
                "then full",
                settle,
                "ms",
                Bar(high=1000),
            ),
            Check(f"QP errors, {words}", "no QP failed", errors, "", Bar(high=0)),
        ]
    checks.append(
        Check(
            "losses on the 4 NICs that lost most, of all",
            "flapped nodes and their senders",
            worst_nics,
            "%",
        )
    )
    return Finding(
        checks,
        drawn,
        [
            "The whole job is as slow as its slowest NIC: three of the 31 NICs lose a plane, and "
            "all of them lose a quarter of the rate. How often the original's transceiver was up "
            "during its minute is not published; links that train for seconds after each flap are "
            "down nearly all of the time, which is the case on the right."
        ],
    )


def _draw_b3(drawn: Any) -> Figure:
    fig, panels = style.figure(2)
    for axes, (tag, words) in zip(panels, B3_TAGS.items(), strict=True):
        style.steps(axes, drawn[tag]["t_ms"], drawn[tag]["gbps"], label="simulated, seed 1")
        style.published(axes, drawn[tag]["before_gbps"] * 0.75, "about 25 % less")
        lines = f"four links\n{words.replace(' of the', chr(10) + 'of the')}"
        style.event(axes, B3_BEGIN_MS, lines, 0.5)
        style.event(axes, B3_END_MS, "up", 0.5)
        axes.set(
            xlabel="simulated time, ms", ylabel="goodput of a NIC in the job, Gb/s", ylim=(0, 850)
        )
        style.legend(axes, loc="lower left")
    return fig


def _settled(t_ms: series.FloatArray, gbps: series.FloatArray, steady: float) -> float:
    """The time from the last flap to the last bin of 100 us below 95 % of the rate before, ms."""
    t, mean = series.rebinned(t_ms, gbps, len(t_ms) // max(1, round(0.1 / (t_ms[1] - t_ms[0]))))
    low = (t >= B3_END_MS) & (mean < series.DIP * steady)
    if not low.any():
        return 0.0
    last = float(t[low][-1] + t[1] - t[0])
    return last - B3_END_MS if last < B3_STOP_MS - 0.2 else float("inf")


def _share_of_worst(flows: pl.DataFrame) -> float:
    """The percentage of the retransmissions that the four NICs with the most of them sent."""
    sent = np.bincount(flows["src"].to_numpy(), flows["retransmitted"].to_numpy(), 64)
    return 100 * float(np.sort(sent)[-4:].sum() / max(1, sent.sum()))


B3 = Experiment(
    "B3",
    "a transceiver of a T0 flaps",
    "Figs. 6 and 7, cluster A",
    "A transceiver of a T0 flaps and takes the links of four nodes with it, three of which are in "
    "a job of 50,000 GPUs. For about a minute the job runs about 25 % slower, then at full rate; "
    "no QP fails.",
    "A ring of 31 NICs, in which each step of 4 MB waits for the previous one, instead of a job of "
    "50,000: both run as fast as their slowest member, so the number of those that wait does not "
    "matter. The minute became 8 ms, a thousand round trips and more than four rounds of the ring; "
    "the loss of throughput is read after the first round, when all wait for the slow ones. Flaps "
    "come every 0.5 ms.",
    [
        Case("flapping", "B3_transceiver", seeds=FEW, keep=("flows", "timeline")),
        Case(
            "down",
            "B3_transceiver",
            {"fault[0].period": "8ms", "fault[0].duty": 0.9999},
            seeds=FEW,
            keep=("flows", "timeline"),
        ),
    ],
    _b3,
    _draw_b3,
)
