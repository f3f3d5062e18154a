"""B20 and S1: fifteen senders to one under DCQCN and PFC; the incast of another simulator."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from openmrc.paper import series, style
from openmrc.paper.case import FEW, Case
from openmrc.paper.data import Data
from openmrc.paper.experiment import Experiment, Finding
from openmrc.paper.verdict import Bar, Check, around, relative

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUEUES = {"default": "1.5 BDP", "deep": "20 MB"}  # at the receiver's port


def _s1(data: Data) -> Finding:
    checks = []
    drawn, trimmed = {}, {}
    for tag, queue in QUEUES.items():
        rows = data.rows(tag)
        trimmed[tag] = median(row["packets.trimmed"] for row in rows)
        drawn[tag] = [series.listed(flows["fct_us"].sort()) for flows in data.tables(tag, "flows")]
        figures = (
            ("aggregate rate", "goodput_gbps.total", 709.4, "Gb/s"),
            ("mean completion time", "flows.fct_us.mean", 80.4, "us"),
            ("99th percentile", "flows.fct_us.p99", 93.7, "us"),
        )
        checks += [
            Check(
                f"{what}, port of {queue}",
                f"{value} {unit} (ns-3)",
                [float(row[key]) for row in rows],
                unit,
                relative(value, 0.05) if tag == "deep" else None,
            )
            for what, key, value, unit in figures
        ]
    return Finding(
        checks,
        drawn,
        [
            "With the default here, 1.5 BDP at the receiver's port and trimming beyond, 127 "
            f"senders at line rate have some {trimmed['default']:,.0f} packets trimmed for 2,032 "
            "of data. Each trim cuts a window, and when most senders have finished, the windows of "
            "the others are too small to fill the port. The second case confirms this cause: with "
            "a port that holds all packets the figures are those of the ns-3 model."
        ],
    )


def _draw_s1(drawn: Any) -> Figure:
    fig, panels = style.figure(2, height=3.8)
    for axes, (tag, queue) in zip(panels, QUEUES.items(), strict=True):
        for number, done in enumerate(drawn[tag]):
            label = f"simulated, seed {number + 1}"
            style.steps(axes, done, range(1, len(done) + 1), number, label=label)
        for us, dash, words in ((80.4, (5, 1.5, 1, 1.5), "mean"), (93.7, (7, 3), "p99")):
            looks = style.PUBLISHED | {"linestyle": (0, dash)}
            axes.axvline(us, **looks, label=f"ns-3: {words} {us} us")
        axes.set(
            xlabel="completion time, us",
            ylabel="flows completed of 127",
            title=f"receiver's port holds {queue}",
            xlim=(0, 150),
            ylim=(0, 135),
        )
        style.legend(axes, loc="upper left")
    return fig


S1 = Experiment(
    "S1",
    "127:1 incast, beside another simulator",
    "A model of MRC for ns-3, by others",
    "127 NICs of a fat tree of eight-port switches at 800 Gb/s send 64 KiB each to one.",
    "The same fabric, sizes and rates. Delays, queues and thresholds of the other model are not "
    "published: the defaults here are shown without a verdict, and again with a deep queue.",
    [
        Case("default", "S1_incast_127", keep=("flows",)),
        Case("deep", "S1_incast_127", {"fabric.queue_last_hop": "20MB"}, keep=("flows",)),
    ],
    _s1,
    _draw_s1,
)

STEP_MS, QUICK_STEP_MS = 20.0, 4.0  # between two flows
FLOWS, CONTROLLED = 15, 9
COUNTED = range(3, 14)  # flows after which pauses are counted
# Buffers of a switch. The original's were virtual ones that share the buffer of one of 51.2 Tb/s,
# 165 MB. Others show its influence: that of the model by which the profiles were chosen, and eight
# ports' part.
BUFFERS: dict[str, dict[str, str]] = {
    "165 MB": {},
    "16 MB": {"transport.buffer": "16MB"},
    "10 MB": {"transport.buffer": "10MB"},
}
LINE_GBPS = 400 * 4096 / 4178  # of RoCEv2: one IPv6 header, no METH, no TSETH
PROFILES = {"default": "lenient", "aggressive": "aggressive", "most-aggressive": "most-aggressive"}
LOST = {"aggressive": 10, "most-aggressive": 20}


def _b20(data: Data) -> Finding:
    step_ms = QUICK_STEP_MS if data.quick else STEP_MS
    rates = {name: [_rates(t, step_ms) for t in data.tables(name, "timeline")] for name in PROFILES}
    drawn = {
        name: {
            "gbps": series.listed(rates[name][0]),
            "queue_mb": series.listed(_queues_mb(data.tables(name, "queues")[0], step_ms)),
        }
        for name in PROFILES
    }
    full = [100 * fmean(run[CONTROLLED:]) / LINE_GBPS for run in rates["default"]]
    checks = [
        Check("default: rate of 10 to 15 flows", "line rate", full, "% of line rate", Bar(low=98)),
        *(
            Check(
                f"default: most flows that settle without pauses, switch of {buffer}",
                "not published" if change else f"below 10: {CONTROLLED}",
                _most_calm(data, buffer),
                "",
                None if change else around(CONTROLLED, 1),
            )
            for buffer, change in BUFFERS.items()
        ),
        Check(
            "default: pauses of ports with up to 15",
            "then PFC",
            _counters(data, "default", "roce.pauses"),
            "",
            Bar(low=1),
            calibrated=True,
        ),
    ]
    for name, lost in LOST.items():
        found = [100 * (1 - fmean(run[1:]) / LINE_GBPS) for run in rates[name]]
        checks.append(
            Check(
                f"{name}: lost, mean of 2 to 15 flows",
                f"about {lost} %",
                found,
                "%",
                around(lost, 5),
                calibrated=True,
            )
        )
    drops = [value for name in PROFILES for value in _counters(data, name, "dropped_queue")]
    checks.append(
        Check("packets dropped in queues, all profiles", "lossless", drops, "", Bar(high=0))
    )
    return Finding(
        checks,
        drawn,
        [
            "The settings of the three profiles are not published, only their behaviour: the "
            "settings here were chosen to reproduce it in a model of one port "
            "(`docs/roce_rates.md`). This experiment adds that they also do so in a fabric of two "
            "tiers. The number of flows at which PFC takes over depends on the buffer of the "
            "switch. The original's racks and spines are parts of switches of 51.2 Tb/s, whose "
            "buffer of 165 MB they share; with a smaller buffer PFC takes over earlier, as the "
            "other two rows show."
        ],
    )


def _draw_b20(drawn: Any) -> Figure:
    fig, (left, right) = style.figure(2, height=3.8)
    flows = range(1, FLOWS + 1)
    for number, name in enumerate(PROFILES):
        looks = style.line(number, marked=True)
        left.plot(flows, drawn[name]["gbps"], **looks, label=name)
        right.plot(flows, drawn[name]["queue_mb"], **looks, label=name)
    for lost, dash in ((0, (5, 1.5, 1, 1.5)), *zip(LOST.values(), ((4, 3), (1, 1.5)), strict=True)):
        looks = style.PUBLISHED | {"linestyle": (0, dash)}
        words = f"about {lost} % less" if lost else "line rate"
        left.axhline(LINE_GBPS * (1 - lost / 100), **looks, label=f"published: {words}")
    words = "published: default controls it below 10"
    right.axvline(CONTROLLED + 0.5, **style.PUBLISHED, label=words)
    left.set(xlabel="flows", ylabel="goodput of all, Gb/s", ylim=(0, 450))
    right.set(xlabel="flows", ylabel="longest queue at the receiver's port, MB")
    right.set_ylim(top=1.45 * right.get_ylim()[1])
    style.legend(left, loc="lower left")
    style.legend(right, loc="upper left")
    return fig


def _rates(timeline: series.Timeline, step_ms: float) -> list[float]:
    """Goodput with 1, 2 ... 15 flows, Gb/s: the last 60 % of each step."""
    t_ms, gbps = series.column(timeline, "goodput_gbps")
    ends = [step_ms * (flow + 1) for flow in range(FLOWS)]
    return [series.mean_between(t_ms, gbps, end - 0.6 * step_ms, end) for end in ends]


def _queues_mb(queues: series.Timeline, step_ms: float) -> list[float]:
    """The longest queue towards a NIC with 1, 2 ... 15 flows, MB: the last 60 % of each step."""
    import polars as pl

    last_hop = queues.filter((pl.col("row") == 0) & pl.col("down")).sort("t_us")
    t_ms, queue = last_hop["t_us"].to_numpy() / 1e3, last_hop["queue_bytes"].to_numpy() / 1e6
    ends = [step_ms * (flow + 1) for flow in range(FLOWS)]
    return [float(queue[(t_ms >= e - 0.6 * step_ms) & (t_ms < e)].mean()) for e in ends]


def _until(stop_ms: float, buffer: str) -> str:
    """The tag of the case that ends at this time."""
    return f"default, switch of {buffer}, until {stop_ms:g} ms"


def _read_ms(flows: int) -> tuple[float, float]:
    """The interval in which this many flows are read, ms: the last 60 % of their step."""
    return STEP_MS * (flows - 0.6), STEP_MS * flows


def _most_calm(data: Data, buffer: str) -> list[float]:
    """The largest number of flows that PFC does not pause once they have settled, below the first
    that it does; none if that was not run.
    """
    if _until(_read_ms(COUNTED[0])[0], buffer) not in data.tags:
        return []
    calm = 0
    for flows in COUNTED:
        pauses = [_counters(data, _until(ms, buffer), "roce.pauses") for ms in _read_ms(flows)]
        if pauses[0] != pauses[1]:
            break
        calm = flows
    return [float(calm)]


def _counters(data: Data, tag: str, name: str) -> list[float]:
    """A counter of each seed."""
    import polars as pl

    tables = data.tables(tag, "counters")
    return [float(t.filter(pl.col("counter") == name)["value"].sum()) for t in tables]


def _quick(stop_ms: float) -> dict[str, str]:
    """A flow joins every 4 ms."""
    starts = {f"workload.{n + 1}.start": f"{QUICK_STEP_MS * n:.0f}ms" for n in range(FLOWS)}
    return {"stop.time": f"{stop_ms:.0f}ms"} | starts


B20 = Experiment(
    "B20",
    "15:1 incast under DCQCN",
    "Fig. 22, cluster D",
    "Fifteen servers send to one, with one more flow every 5 s, under three profiles of DCQCN. The "
    "default controls its queue below 10 flows; above that PFC does, at line rate. Aggressive "
    "gives up about 10 % of the rate, most aggressive 20 %.",
    "The same 16 servers, racks and spines. A flow joins every 20 ms instead of 5 s: the timers of "
    "DCQCN are tens to hundreds of microseconds, and rates are read in the last 12 ms.",
    [
        *(
            Case(
                name,
                "B20_incast",
                {"transport.profile": profile},
                seeds=FEW,
                keep=("timeline", "queues", "counters"),
                quick=_quick(QUICK_STEP_MS * FLOWS),
            )
            for name, profile in PROFILES.items()
        ),
        *(
            Case(
                _until(stop_ms, buffer),
                "B20_incast",
                {"stop.time": f"{stop_ms:.0f}ms"} | change,
                seeds=1,
                keep=("counters",),
                quick=None,
            )
            for buffer, change in BUFFERS.items()
            for flows in COUNTED
            for stop_ms in _read_ms(flows)
        ),
    ],
    _b20,
    _draw_b20,
)
