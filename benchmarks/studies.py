"""The studies of docs/studies.md: their scenarios are run, and their tables are printed.

    .venv/bin/python benchmarks/studies.py points [--row ROW ...]
    .venv/bin/python benchmarks/studies.py jobs [--row ROW ...]

`points`: `examples/operating_points.toml` at NICs of 400 Gb/s to 1.6 Tb/s, on 4 and 8 planes, with
links from 500 ns, a hall, to 500 us, 100 km; a flow has the bytes of eight round trips, at least
16 MB and at most 512 MB. It runs whole, and with a T0-T1 link that is cut in the middle. `jobs`:
`examples/neighbours.toml`, the first job alone, and beside one that shares its switches.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.units import PS_BITS, US

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUND_TRIPS, LEAST_BYTES, MOST_BYTES = 8, 16_000_000, 512_000_000

POINTS = {
    f"{planes} x {gbps}G, {delay}": (planes, gbps, delay)
    for planes, gbps in ((4, 100), (8, 100), (4, 200), (8, 200), (4, 400))
    for delay in ("500ns", "5us", "50us", "500us")
}
POINT_COLUMNS = (
    "Planes", "Link", "Base RTT, us", "BDP, MB", "Window, packets", "Flow, MB", "Goodput / rate",
    "p100 / ideal", "Cut: p100 later, RTTs", "Path left after, RTTs", "Lost", "False alarms",
)  # fmt: skip

# The job beside the first one: None is the one of the example.
NOISES: dict[str, dict[str, Any] | None] = {
    "all-to-all": None,
    "incast": {"name": "noise", "kind": "incast", "nics": "odd", "n": 31, "size": "8MB"},
}
JOB_COLUMNS = (
    "Beside it", "Transport", "Alone, us", "Together, us", "Longer by",
    "Slowest message alone, us", "Together, us",
)  # fmt: skip


def example(name: str) -> dict[str, Any]:
    """The tables of an example's scenario."""
    return tomllib.loads((EXAMPLES / name).read_text(encoding="utf-8"))


def operate(
    planes: int, gbps: int, delay: str, size_bytes: int, cut_us: float | None = None
) -> TransportResult:
    """Run the first study's scenario at one point; its link is cut at `cut_us`, or never."""
    tables = example("operating_points.toml")
    tables["fabric"] |= {"planes": planes, "port_rate": f"{gbps}Gbps", "link_delay": delay}
    tables["workload"]["size"] = f"{size_bytes}B"
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
    bdp_bytes = rate_bps * base_ps / PS_BITS
    size_bytes = int(min(max(LEAST_BYTES, ROUND_TRIPS * bdp_bytes), MOST_BYTES))
    whole = operate(planes, gbps, delay, size_bytes)
    cut_us = int(whole.fct_ps.max()) / US / 2
    cut = operate(planes, gbps, delay, size_bytes, cut_us)
    below = example("operating_points.toml")["fabric"]["t0_down"]
    later_ps = int(cut.fct_ps.max()) - int(whole.fct_ps.max())
    return [
        f"{planes} x {gbps}G",
        delay.replace("us", " us").replace("ns", " ns"),
        f"{base_ps / US:,.1f}",
        f"{bdp_bytes / 1e6:,.2f}",
        f"{whole.derived['mpr_packets']:,}",
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


def line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study", choices=("points", "jobs"))
    parser.add_argument("--row", nargs="+", metavar="ROW", help="some rows of the table, by name")
    options = parser.parse_args()
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
