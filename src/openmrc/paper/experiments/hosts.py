"""B5: latency and bandwidth between two NICs, and the host's part of it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Check, around, relative

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCAL_US, ACROSS_US = 5.09, 6.54  # published, of writes of 2 B
WAYS = ("local", "across")
WORDS = {"local": "below one T0", "across": "across a T1"}


def _half_us(data: Data, way: str) -> list[float]:
    """Half of the time from posting to completion, us, each seed."""
    return [value / 2 for value in data.values(f"latency {way}", "flows.fct_us.p100")]


def _steady_gbps(data: Data, way: str) -> list[float]:
    """Goodput in the middle three fifths of the transfer, Gb/s, each seed."""
    found = []
    for t_ms, gbps in series.goodputs(data, f"bandwidth {way}"):
        end = float(t_ms[-1])
        found.append(series.mean_between(t_ms, gbps, 0.2 * end, 0.8 * end))
    return found


def _b5(data: Data) -> Finding:
    halves = {way: _half_us(data, way) for way in WAYS}
    rates = {way: _steady_gbps(data, way) for way in WAYS}
    more = [across - local for local, across in zip(*halves.values(), strict=True)]
    host_us = LOCAL_US - median(halves["local"])
    predicted = [host_us + value for value in halves["across"]]
    drawn = {
        "network_us": series.listed(median(halves[way]) for way in WAYS),
        "host_us": host_us,
        "gbps": series.listed(median(rates[way]) for way in WAYS),
    }
    checks = [
        Check(
            f"goodput of 32 KiB writes, {WORDS[way]}",
            "about 770 Gb/s",
            rates[way],
            "Gb/s",
            relative(series.LINE_GBPS, 0.005),
        )
        for way in WAYS
    ]
    return Finding(
        [
            *checks,
            Check("2 B: what a T1 adds", "1.45 us", more, "us", around(1.45, 0.15)),
            Check("2 B below one T0, network alone", "5.09 us with hosts", halves["local"], "us"),
            Check("both hosts' share", "not published", [host_us], "us", calibrated=True),
            Check(
                "2 B across a T1, with that share",
                "6.54 us",
                predicted,
                "us",
                relative(ACROSS_US, 0.03),
            ),
        ],
        drawn,
        [
            f"The simulator has no hosts, so the one number that was fitted is their share: "
            f"{host_us:.2f} us make the write below one T0 last {LOCAL_US} us. The other latency "
            "then follows from the fabric's default delays (500 ns a link, 250 ns a switch), which "
            "were not fitted: crossing a T1 adds two links and two switches each way."
        ],
    )


def _draw(drawn: Any) -> Figure:
    fig, (left, right) = style.figure(2, height=3.8)
    names = [WORDS[way] for way in WAYS]
    network, host_us = drawn["network_us"], drawn["host_us"]
    bars: dict[str, Any] = {"width": 0.5, "edgecolor": "black"}
    blue = style.line(0)["color"]
    left.bar(names, network, color=blue, **bars, label="network, simulated")
    words = f"hosts, calibrated: {host_us:.2f} us"
    left.bar(names, host_us, bottom=network, color="white", **bars, hatch="//", label=words)
    left.plot(names, [LOCAL_US, ACROSS_US], **style.POINT, label="published: 5.09 and 6.54 us")
    left.set(ylabel="half round trip of 2 B, us", ylim=(0, 10))
    style.legend(left, loc="upper left")
    right.bar(names, drawn["gbps"], color=blue, **bars, label="simulated")
    style.level(right, series.LINE_GBPS, "4096 / 4262 of 800: 768.8 Gb/s")
    right.plot(names, [770, 770], **style.POINT, label="published: about 770 Gb/s")
    right.set(ylabel="goodput of 32 KiB writes, Gb/s", ylim=(0, 1150))
    style.legend(right, loc="upper left")
    return fig


_CROSS = {"workload.dst": 31}
B5 = Experiment(
    "B5",
    "latency and bandwidth",
    "Table of perftest results, cluster B",
    "A write of 2 B takes 5.09 us below one T0 and 6.54 us across a T1 (half of the time from "
    "posting to completion); writes of 32 KB on four QPs reach about 770 Gb/s in both places, 96 % "
    "of 800.",
    "Nothing but the fabric around the two NICs, which is idle in the original too.",
    [
        Case("latency local", "B5_latency"),
        Case("latency across", "B5_latency", _CROSS),
        Case("bandwidth local", "B5_bandwidth", keep=("timeline",)),
        Case(
            "bandwidth across",
            "B5_bandwidth",
            {"workload.write_bw.nics": "0, 31"},
            keep=("timeline",),
        ),
    ],
    _b5,
    _draw,
)
