"""What hashing flows onto paths costs: calculated as balls into bins, and simulated.

    .venv/bin/python benchmarks/collisions.py [--quick] [--json]

A ring across the T0s of a fat tree of one plane: every NIC of a T0 sends to a NIC of the next T0,
in 1 to 8 equal parts with a hashed path each (`paths = "single"`), or sprayed. Time is that of the
slowest part over the ideal, the mean over seeds. Drawn is what the arithmetic says for the paths
that the simulator drew for these very seeds: calculated and drawn differ by luck, drawn and
simulated by what a simulation has beyond arithmetic.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from typing import Any

from openmrc import Scenario, make_scenario, simulate
from openmrc.planning.collisions import slowest_of_ring
from openmrc.run.simulation import world_of

NICS_PER_T0, T0S = 8, 8
QPS = (1, 2, 4, 8)
SPRAYED = ("oblivious", "mrc")
FIGURES = ("worked_out", "drawn", "simulated", "error", "least", "most")


def scenario(transport: str, qps: int, size: str, nics_per_t0: int, t0s: int) -> dict[str, Any]:
    """A ring whose ranks go round the T0s, so that every hop of it crosses."""
    order = [t0 * nics_per_t0 + nic for nic in range(nics_per_t0) for t0 in range(t0s)]
    job = {"kind": "send-recv", "size": size, "channels": qps, "nics": order}
    return {
        "fabric": {
            "kind": "fat-tree",
            "nics": nics_per_t0 * t0s,
            "t0_down": nics_per_t0,
            "port_rate": "100Gbps",
        },
        "transport": {"paths": transport},
        "workload": {"kind": "jobs", "job": [job]},
    }


def drawn(scenario: Scenario, qps: int) -> float:
    """Flows on the most loaded link, over those of a NIC: the paths are drawn before a run."""
    fabric, traffic, schedule = scenario.build()
    world = world_of(scenario, fabric, traffic, schedule, scenario.transports[0].build())
    ends, engine = world.ends, world.engine
    flows: Counter[int] = Counter()
    for qp in range(ends.n):
        if ends.sends[qp]:
            ev = int(engine.ev[int(engine.qp[qp].ev0)].value)
            route = fabric.route(int(ends.nic[qp]), int(ends.nic[ends.other[qp]]), ev)
            flows.update(route[1:-1])  # all but the NICs' own links
    return max(1.0, max(flows.values()) / qps)


def simulated(
    transport: str, qps: int, size: str, seeds: int, nics_per_t0: int = NICS_PER_T0, t0s: int = T0S
) -> list[tuple[float, float]]:
    """(drawn, time of the slowest part over the ideal) for each seed; sprayed, nothing is drawn."""
    base = make_scenario(scenario(transport, qps, size, nics_per_t0, t0s))
    times = []
    for seed in range(1, seeds + 1):
        this = base.replace({"seed": seed})
        (run,) = simulate(this).transports
        hashed = transport == "single"
        times.append((drawn(this, qps) if hashed else 1.0, run.summary()["slowdown_p100"]))
    return times


def measure(quick: bool = False) -> list[dict[str, Any]]:
    """One row for each way of sending."""
    size, seeds = ("1MB", 2) if quick else ("4MB", 100)
    rows = []
    for transport, qps in (*(("single", q) for q in QPS), *((name, 1) for name in SPRAYED)):
        by_paths, times = zip(*simulated(transport, qps, size, seeds), strict=True)
        hashed = transport == "single"
        rows.append(
            {
                "paths": transport,
                "qps": qps,
                "worked_out": slowest_of_ring(NICS_PER_T0, NICS_PER_T0, qps, T0S).time
                if hashed
                else 1.0,
                "drawn": statistics.mean(by_paths),
                "simulated": statistics.mean(times),
                "error": statistics.stdev(times) / len(times) ** 0.5,
                "least": min(times),
                "most": max(times),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print("| Paths | QPs | Calculated | Drawn | Simulated | Standard error | Least | Most |")
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        figures = [r[key] for key in FIGURES]
        print(f"| `{r['paths']}` | {r['qps']} | " + " | ".join(f"{f:.2f}" for f in figures) + " |")


if __name__ == "__main__":
    main()
