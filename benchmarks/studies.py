"""The studies of docs/studies.md: their scenarios are run, and their tables are printed.

    .venv/bin/python benchmarks/studies.py points [--row ROW ...]
    .venv/bin/python benchmarks/studies.py jobs [--row ROW ...]
    .venv/bin/python benchmarks/studies.py points --draw
    .venv/bin/python benchmarks/studies.py jobs --draw

`points`: `examples/operating_points.toml` at NICs of 400 Gb/s to 1.6 Tb/s, on 4 and 8 planes, with
links from 500 ns, a hall, to 500 us, 100 km; a flow has the bytes of eight round trips, at least
16 MB and at most 512 MB. It runs whole, and with a T0-T1 link that is cut in the middle. `jobs`:
`examples/neighbours.toml`, the first job alone, and beside one that shares its switches. `--draw`
runs nothing: it draws the page's table, as SVG and PNG, in `docs/studies/`.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.paper import style
from openmrc.report.picture import png, svg
from openmrc.run.estimate import world_memory
from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.sim.mrc.transport import Transport
from openmrc.units import PS_BITS, US

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PAGE, PICTURES = ROOT / "examples", ROOT / "docs/studies.md", ROOT / "docs/studies"
ROUND_TRIPS, LEAST_BYTES, MOST_BYTES = 8, 16_000_000, 512_000_000

POINTS = {
    f"{planes} x {gbps}G, {delay}": (planes, gbps, delay)
    for planes, gbps in ((4, 100), (8, 100), (4, 200), (8, 200), (4, 400))
    for delay in ("500ns", "5us", "50us", "500us")
}
POINT_COLUMNS = (
    "Planes", "Link", "Base RTT, us", "BDP, MB", "Window, packets", "QP, kB", "Flow, MB",
    "Goodput / rate", "p100 / ideal", "Cut: p100 later, RTTs", "Path left after, RTTs", "Lost",
    "False alarms",
)  # fmt: skip

# The job beside the first one: None is the one of the example.
NOISES: dict[str, dict[str, Any] | None] = {
    "all-to-all": None,
    "incast": {"name": "noise", "kind": "incast", "nics": "odd", "n": 31, "size": "8MB"},
}
JOB_COLUMNS = (
    "Second job", "Transport", "Alone, us", "Together, us", "Longer by",
    "Slowest message alone, us", "Together, us",
)  # fmt: skip


def example(name: str) -> dict[str, Any]:
    """The tables of an example's scenario."""
    return tomllib.loads((EXAMPLES / name).read_text(encoding="utf-8"))


def point(planes: int, gbps: int, delay: str, size_bytes: int) -> dict[str, Any]:
    """The first study's scenario at one point."""
    tables = example("operating_points.toml")
    tables["fabric"] |= {"planes": planes, "port_rate": f"{gbps}Gbps", "link_delay": delay}
    tables["workload"]["size"] = f"{size_bytes}B"
    return tables


def flow_bytes(planes: int, gbps: int, base_ps: int) -> int:
    """What a flow has: the bytes of eight round trips, within the bounds."""
    bdp_bytes = planes * gbps * 10**9 * base_ps / PS_BITS
    return int(min(max(LEAST_BYTES, ROUND_TRIPS * bdp_bytes), MOST_BYTES))


def qp_bytes(planes: int, gbps: int, delay: str, size_bytes: int) -> float:
    """Memory of a QP, both ends: its records, paths and window (docs/costs.md), without a run."""
    scenario = make_scenario(point(planes, gbps, delay, size_bytes))
    built, transport = scenario.build(), scenario.transport(0)
    assert isinstance(transport, Transport)
    memory = world_memory(scenario, built, transport)
    return sum(memory[part] for part in ("QPs", "slots", "EVs")) / built[1].n_qps


def operate(
    planes: int, gbps: int, delay: str, size_bytes: int, cut_us: float | None = None
) -> TransportResult:
    """Run the first study's scenario at one point; its link is cut at `cut_us`, or never."""
    tables = point(planes, gbps, delay, size_bytes)
    if cut_us is None:
        del tables["fault"]
    else:
        tables["fault"][0]["at"] = f"{cut_us:.3f}us"
    return simulate(make_scenario(tables), sampled=cut_us is not None).transports[0]


def left_us(run: TransportResult, below: int) -> float:
    """When the last sender set aside the path that was cut. Its link is at the T0 of the NICs
    below number `below`; each sender's first path to be set aside is the dead one.
    """
    assert run.testimony is not None
    events = run.testimony.events
    first: dict[int, float] = {}
    for at_ps, qp, src, dst in zip(
        *(events[key].tolist() for key in ("at_ps", "qp", "src", "dst")), strict=True
    ):
        if (src < below) != (dst < below):
            first.setdefault(qp, at_ps / US)
    return max(first.values())


def point_row(planes: int, gbps: int, delay: str) -> list[str]:
    """A point of operation: the run without a cut, and what one changes."""
    rate_bps = planes * gbps * 1e9
    base_ps = operate(planes, gbps, delay, LEAST_BYTES).derived["base_rtt_ps"]
    size_bytes = flow_bytes(planes, gbps, base_ps)
    whole = operate(planes, gbps, delay, size_bytes)
    cut_us = int(whole.fct_ps.max()) / US / 2
    cut = operate(planes, gbps, delay, size_bytes, cut_us)
    below = example("operating_points.toml")["fabric"]["t0_down"]
    later_ps = int(cut.fct_ps.max()) - int(whole.fct_ps.max())
    return [
        f"{planes} x {gbps}G",
        delay.replace("us", " us").replace("ns", " ns"),
        f"{base_ps / US:,.1f}",
        f"{rate_bps * base_ps / PS_BITS / 1e6:,.2f}",
        f"{whole.derived['mpr_packets']:,}",
        f"{qp_bytes(planes, gbps, delay, size_bytes) / 1e3:,.0f}",
        f"{size_bytes / 1e6:,.0f}",
        f"{size_bytes * PS_BITS / int(whole.fct_ps.max()) / rate_bps:.3f}",
        f"{whole.summary()['slowdown_p100']:.3f}",
        f"{later_ps / base_ps:.1f}",
        f"{(left_us(cut, below) - cut_us) * US / base_ps:.2f}",
        f"{cut.counters['dropped_fault']:,}",
        f"{cut.counters['false_alarms']:,}",
    ]


def job_rows(noise: str, only: str | None = None) -> list[list[str]]:
    """Each transport, or `only` one: the first job alone, and beside this one."""
    together = example("neighbours.toml")
    together["transport"] = [each for each in together["transport"] if only in (None, each["name"])]
    jobs = together["workload"]["job"]
    beside = NOISES[noise]
    together["workload"]["job"] = [jobs[0], jobs[1] if beside is None else beside]
    alone = together | {"workload": together["workload"] | {"job": [jobs[0]]}}
    rows = []
    for one, two in zip(
        simulate(make_scenario(alone)).transports,
        simulate(make_scenario(together)).transports,
        strict=True,
    ):
        before, after = (run.summary()["jobs"][jobs[0]["name"]] for run in (one, two))
        slowest = [job["flows"]["fct_us"]["p100"] for job in (before, after)]
        rows.append(
            [
                noise,
                one.name,
                f"{before['time_us']:,.0f}",
                f"{after['time_us']:,.0f}",
                f"{after['time_us'] / before['time_us'] - 1:.1%}",
                *(f"{us:,.1f}" for us in slowest),
            ]
        )
    return rows


def table(columns: tuple[str, ...]) -> list[list[str]]:
    """The page's table with these columns, without its head."""
    page = PAGE.read_text(encoding="utf-8").splitlines()
    start = page.index(line(columns)) + 2
    return [row.strip("| ").split(" | ") for row in takewhile(lambda x: x[:1] == "|", page[start:])]


def number(cell: str) -> float:
    return float(cell.replace(",", "").removesuffix("%"))


def draw_points(rows: list[list[str]]) -> Figure:
    """Goodput, time to leave a dead path and memory of a QP over the delay of a link."""
    fig, panels = style.figure(3, width=10.5, height=4.0)
    columns = ("Goodput / rate", "Path left after, RTTs", "QP, kB")
    names = list(dict.fromkeys(row[0] for row in rows))
    delays = {"500 ns": 0.5, "5 us": 5.0, "50 us": 50.0, "500 us": 500.0}
    for axes, column in zip(panels, columns, strict=True):
        at = POINT_COLUMNS.index(column)
        for place, name in enumerate(names):
            mine = [row for row in rows if row[0] == name]
            looks = style.line(place, marked=True) | {"label": name.replace("G", " Gb/s")}
            axes.plot([delays[row[1]] for row in mine], [number(row[at]) for row in mine], **looks)
        axes.set(xlabel="delay of a link", xscale="log", ylim=(0, None))
        axes.set_xticks(list(delays.values()), list(delays))
        axes.minorticks_off()
    panels[2].set(yscale="log", ylim=(7, 3000), ylabel="memory of a QP, kB")
    panels[1].set(ylabel="dead path left after, base RTTs")
    panels[0].set(ylabel="goodput of the slowest flow / rate", ylim=(0, 1))
    shown = panels[0].get_legend_handles_labels()
    fig.legend(*shown, loc="outside lower center", ncols=5, **style.LEGEND)
    return fig


def draw_jobs(rows: list[list[str]]) -> Figure:
    """The first job's time alone and together, a panel for each job beside it."""
    fig, panels = style.figure(len(NOISES), height=3.8)
    bars: dict[str, Any] = {"width": 0.38, "edgecolor": "black"}
    for axes, noise in zip(panels, NOISES, strict=True):
        mine = [row for row in rows if row[0] == noise]
        places = range(len(mine))
        alone, together = ([number(row[at]) for row in mine] for at in (2, 3))
        axes.bar([at - 0.2 for at in places], alone, color="white", **bars, label="alone")
        color = style.line(0)["color"]
        axes.bar([at + 0.2 for at in places], together, color=color, **bars, label="together")
        for at, row in zip(places, mine, strict=True):
            axes.annotate(
                f"+{row[4]}",
                (at + 0.2, number(row[3])),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        axes.set_xticks(places, [row[1] for row in mine])
        axes.set(title=f"beside it: {noise}", ylabel="time of the first job, us", ylim=(0, 4600))
        style.legend(axes, loc="upper left")
    return fig


def draw(study: str) -> Figure:
    """The page's picture of a study, from the page's table."""
    if study == "points":
        return draw_points(table(POINT_COLUMNS))
    return draw_jobs(table(JOB_COLUMNS))


def line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", choices=("points", "jobs"))
    parser.add_argument("--row", nargs="+", metavar="ROW", help="some rows of the table, by name")
    words = "run nothing: draw the page's table, in docs/studies"
    parser.add_argument("--draw", action="store_true", help=words)
    options = parser.parse_args()
    if options.draw:
        PICTURES.mkdir(exist_ok=True)
        for ending, image in (("svg", svg), ("png", png)):
            (PICTURES / f"{options.study}.{ending}").write_bytes(image(draw(options.study)))
        return
    names = list(POINTS if options.study == "points" else NOISES)
    chosen = options.row or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no row {unknown[0]!r}: {', '.join(names)}")
    columns = POINT_COLUMNS if options.study == "points" else JOB_COLUMNS
    print(line(columns), line(["---"] * len(columns)), sep="\n")
    for name in chosen:
        print(name, end="\r", file=sys.stderr, flush=True)
        rows = [point_row(*POINTS[name])] if options.study == "points" else job_rows(name)
        for row in rows:
            print(line(row), flush=True)


if __name__ == "__main__":
    main()
