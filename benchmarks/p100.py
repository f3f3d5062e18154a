"""The slowest transfer, where something is broken or many send to one: one row per scenario.

    .venv/bin/python benchmarks/p100.py [--row WORD ...] [--seeds 1 2 3 4 5]
                                        [--set KEY=VALUE ...] [--baselines [NAME ...]]
                                        [--json | --markdown]
    .venv/bin/python benchmarks/p100.py --drawn N [--from K]

Only MRC is run, with its defaults, unless `--baselines` asks for others beside it. Times are of
all completed flows of all seeds together, in us; `/ideal` is the worst seed's `slowdown_p100`,
`packets` all that any NIC sent, `data` those with payload, `needless` copies of what had arrived,
and `lost` what no queue had room for, headers too. A row's goal stands beside it. Rows of half a
gigabyte and more of traffic take minutes each:

incast 8 ... incast 255    so many NICs of 256 send 1 MB to one: makespan over ideal, Jain's index
dead 64KB ... dead 16MB    a permutation of 1,024 NICs, 0.5 % of the T0-T1 links dead from the start
checked 64KB ...           the same; each path was probed when its QP connected, 60 us before
healthy 64KB ...           the same, whole
silent plane               all-to-all of 256 NICs, 64 KiB to each, the T0s of one plane silent
falling plane              a permutation of 8 MB over 128 NICs; the T0s of one plane fall silent
slow links                 one plane of 800 Gb/s, 256 NICs, 4 MB each; 2 % of the links at a quarter

`--drawn N` runs N scenarios that are drawn (`p100_drawn.py`), beside other transports; `--from K`
begins with another number. It prints each p100, and two ratios: MRC's over the least of those that
are not told where the faults are, and that of MRC that tried its paths over the least of all.

RoCEv2 stands there as its users run it, and with routing that knows of a fault in the same instant;
so do switches that balance.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from p100_drawn import drawn, ratios, summary

from openmrc.errors import OpenMrcError
from openmrc.run.figures import nearest_rank
from openmrc.run.outcome import TransportResult
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario

FABRIC = """
    [fabric]
    nics = {nics}
    planes = 8
    port_rate = "100Gbps"
    t0_down = 64
"""
INCAST = FABRIC.format(nics=256) + '[workload]\nkind = "incast"\nn = {n}\nsize = "1MB"\n'
PERMUTATION = FABRIC.format(nics=1024) + '[workload]\nkind = "permutation"\nsize = "{size}"\n'
CHECKED = (
    FABRIC.format(nics=1024)
    + """
    [workload]
    kind = "jobs"
    [[workload.job]]
    kind = "permutation"
    start = "60us"
    size = "{size}"
"""
)
DEAD_LINKS = """
    [[fault]]
    at = "0s"
    kind = "link-down"
    where = "plane * t0 * - t1 *"
    share = 0.005
"""
SILENT_PLANE = (
    FABRIC.format(nics=256)
    + """
    [workload]
    kind = "all-to-all"
    size = "16MiB"
    [[fault]]
    at = "0s"
    kind = "switch-silent"
    where = "plane 0 t0 *"
"""
)
FALLING_PLANE = (
    FABRIC.format(nics=128)
    + """
    [workload]
    kind = "permutation"
    size = "8MB"
    [[fault]]
    at = "50us"
    kind = "switch-silent"
    where = "plane 0 t0 *"
"""
)
SLOW_LINKS = """
    [fabric]
    nics = 256
    planes = 1
    port_rate = "800Gbps"
    t0_down = 64
    [workload]
    kind = "permutation"
    size = "4MB"
    [[fault]]
    at = "0s"
    kind = "link-slow"
    where = "plane * t0 * - t1 *"
    share = 0.02
    factor = 0.25
"""
BASELINES = {  # name, and keys of the transport
    "oblivious": 'paths = "oblivious"',
    "reps": 'paths = "reps"',
    "single": 'paths = "single"',
    "roce": 'kind = "roce"',
    "roce 8 QPs": 'kind = "roce"\nqps = 8',
    "roce converged": 'kind = "roce"\nconvergence = "instant"',
    "roce 8 converged": 'kind = "roce"\nqps = 8\nconvergence = "instant"',
    "adaptive": 'kind = "roce"\nrouting = "adaptive"',
    "adaptive converged": 'kind = "roce"\nrouting = "adaptive"\nconvergence = "instant"',
    "spray": 'kind = "roce"\nrouting = "spray"',
}


@dataclass(frozen=True)
class Row:
    """A scenario, and what is hoped of it."""

    scenario: str
    goal: str
    mrc: str = ""  # keys of its transport

    def text(self, baselines: Iterable[str]) -> str:
        """The scenario, with MRC and these others beside it."""
        keys = {"mrc": self.mrc} | {name: BASELINES[name] for name in baselines}
        tables = (f'[[transport]]\nname = "{name}"\n{each}\n' for name, each in keys.items())
        return self.scenario + "".join(tables)


ROWS = {
    **{
        f"incast {n}": Row(INCAST.format(n=n), goal)
        for n, goal in (
            (8, "1.08"), (16, "1.10"), (32, "1.08"), (64, "1.08"), (255, "1.12, no header lost")
        )
    },
    "dead 64KB": Row(PERMUTATION.format(size="64KB") + DEAD_LINKS, "p99 22, p100 30"),
    "dead 1MB": Row(PERMUTATION.format(size="1MB") + DEAD_LINKS, "28 / 42 / 55, p99.9 55"),
    "dead 16MB": Row(PERMUTATION.format(size="16MB") + DEAD_LINKS, "p100 within 1.25 of healthy"),
    **{
        f"checked {size}": Row(
            CHECKED.format(size=size) + DEAD_LINKS, f"{goal}, 1.05 of healthy", "check_paths = true"
        )
        for size, goal in (("64KB", "9.8"), ("1MB", "27"), ("16MB", "225"))
    },
    "healthy 64KB": Row(PERMUTATION.format(size="64KB"), "9.3"),
    "healthy 1MB": Row(PERMUTATION.format(size="1MB"), "26"),
    "healthy 16MB": Row(PERMUTATION.format(size="16MB"), "214"),
    "silent plane": Row(SILENT_PLANE, "1.5 of 7/8 of the fabric"),
    "falling plane": Row(FALLING_PLANE, "98"),
    "slow links": Row(SLOW_LINKS, "p50 49"),
}  # fmt: skip
SHARES = (50, 99, 99.9, 100)
PERCENTILES = [f"p{share:g}" for share in SHARES]
# Columns, and what counts in them: of MRC, of RoCEv2.
COUNTED = {
    "packets": ("injected",),
    "data": ("data", "retransmitted"),
    "sent again": ("retransmitted",),
    "needless": ("duplicates",),
    "false": ("false_alarms",),
    "probes": ("probe",),
    "RTO": ("timeouts", "roce.timeouts"),
    "lost": ("dropped_queue",),
}


def figures(runs: list[TransportResult]) -> dict[str, float]:
    """What is told of one transport's runs of a row, one for each seed."""
    fct_ps = np.concatenate([run.fct_ps for run in runs])
    found = {
        key: nearest_rank(fct_ps, share / 100) / 1e6
        for key, share in zip(PERCENTILES, SHARES, strict=True)
    }
    found["/ideal"] = max(run.summary()["slowdown_p100"] for run in runs)
    rates = [run.flows["bytes"][run.completed] / run.fct_ps for run in runs]
    found["Jain"] = min(float(each.sum() ** 2 / (len(each) * (each**2).sum())) for each in rates)
    for column, keys in COUNTED.items():
        found[column] = sum(
            run.counters[key] for run in runs for key in keys if key in run.counters
        )
    found["open"] = sum(run.n_failed + run.n_unfinished for run in runs)
    return found


def line(name: str, transport: str, goal: str, found: dict[str, float]) -> str:
    """One line of the table."""
    times = " ".join(f"{found[key]:8.1f}" for key in PERCENTILES)
    counts = " ".join(f"{found[column]:10,.0f}" for column in (*COUNTED, "open"))
    relative = f"{found['/ideal']:8.3f} {found['Jain']:6.3f}"
    return f"{name:13} {transport:11} {times} {relative} {counts}  {goal}"


def markdown(table: dict[str, dict[str, dict[str, float]]]) -> str:
    """A table for a page: what each transport needs, the least of a scenario in bold."""
    lines = [
        "| Scenario | Transport | p50 | p99 | p99.9 | p100 | p100 / ideal | timeouts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, transports in table.items():
        best = {key: min(found[key] for found in transports.values()) for key in PERCENTILES}
        for transport, found in transports.items():
            times = [
                f"**{found[key]:.1f}**" if found[key] == best[key] else f"{found[key]:.1f}"
                for key in PERCENTILES
            ]
            tail = [f"{found['/ideal']:.3f}", f"{found['RTO']:,.0f}"]
            lines.append(f"| {' | '.join([name, transport, *times, *tail])} |")
    return "\n".join(lines)


def run_drawn(first: int, n: int) -> None:
    """Run `n` drawn scenarios, and tell how MRC compares."""
    rows = []
    for number in range(first, first + n):
        one = drawn(number)
        text = parse_scenario(one.text, [f"seed={number}"], name=f"drawn {number}")
        slowest = {
            run.name: math.inf if run.n_failed + run.n_unfinished else run.fct_ps.max() / 1e6
            for run in simulate(text).transports
        }
        rows.append(slowest)
        times = " ".join(f"{name} {us:,.1f}" for name, us in slowest.items())
        found = " ".join(f"{each[0]:6.3f}" for each in ratios([slowest]).values())
        print(f"{number:4} {found}  {times}  ({one.words})", flush=True)
    print(summary(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--row", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW",
                        help=", ".join(ROWS))  # fmt: skip
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], metavar="N")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--drawn", type=int, metavar="N", help="run N drawn scenarios instead")
    parser.add_argument("--from", type=int, default=1, metavar="K", dest="first")
    words = f"run other transports too: all, or of {', '.join(BASELINES)}"
    parser.add_argument("--baselines", nargs="*", choices=BASELINES, metavar="NAME", help=words)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true", help="print a table for a page")
    options = parser.parse_args()
    if options.drawn:
        run_drawn(options.first, options.drawn)
        return
    by_line = not (options.json or options.markdown)
    if by_line:
        times = " ".join(f"{key:>8}" for key in PERCENTILES)
        counts = " ".join(f"{column:>10}" for column in (*COUNTED, "open"))
        print(f"{'us':13} {'':11} {times} {'/ideal':>8} {'Jain':>6} {counts}  goal")
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in options.row:
        row = ROWS[name]
        text = row.text(BASELINES if options.baselines == [] else options.baselines or ())
        results: dict[str, list[TransportResult]] = {}
        for seed in options.seeds:
            print(f"{name}, seed {seed} ", end="\r", file=sys.stderr, flush=True)
            changes = [f"seed={seed}", *options.changes]
            try:
                scenario = parse_scenario(text, changes, name=name)
            except OpenMrcError as error:
                raise SystemExit(f"p100: {error}") from None
            for run in simulate(scenario).transports:
                results.setdefault(run.name, []).append(run)
        table[name] = {transport: figures(runs) for transport, runs in results.items()}
        if by_line:
            for transport, found in table[name].items():
                print(line(name, transport, row.goal if transport == "mrc" else "", found))
    if options.json:
        print(json.dumps(table, indent=2))
    if options.markdown:
        print(markdown(table))


if __name__ == "__main__":
    main()
