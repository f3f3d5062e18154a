"""The scenarios of examples/worlds in the simulator and in a lab, side by side.

    python benchmarks/worlds.py [--only NAME ...] [--repeat N] [--set KEY=VALUE ...] [--json]

Prints goodput and the slowest flow's time of both worlds with their ratios; several runs of the lab
give the median. A lab needs an idle machine to be on time: the load average is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).resolve().parents[1] / "examples/worlds"
GOODPUT_BAR, P100_BAR = 0.10, 0.20  # how far the lab may be from the simulator
TIMEOUT_S = 300


def run(scenario: Path, world: str, overrides: list[str]) -> dict[str, Any]:
    """What one run says of itself: goodput in Mb/s, p50 and p100 in ms."""
    words = [sys.executable, "-m", "openmrc.cli", "run", str(scenario), "--world", world, "--json"]
    words += [word for override in overrides for word in ("--set", override)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if done.returncode != 0:
        raise SystemExit(f"{scenario.stem} in {world}: {done.stderr}")
    (transport,) = json.loads(done.stdout)["transports"].values()
    packets, flows = transport["packets"], transport["flows"]
    return {
        "goodput_mbps": 1e3 * transport["goodput_gbps"]["total"],
        "p50_ms": flows["fct_us"]["p50"] / 1e3,
        "p100_ms": flows["fct_us"]["p100"] / 1e3,
        "lost": packets["dropped_fault"],
        "retransmitted": packets["retransmitted"],
        "trimmed": packets["trimmed"],
        "load": os.getloadavg()[0],
    }


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure."""
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def compare(scenario: Path, repeat: int, overrides: list[str]) -> dict[str, Any]:
    sim = run(scenario, "sim", overrides)
    lab = middle([run(scenario, "lab", overrides) for _ in range(repeat)])
    goodput = lab["goodput_mbps"] / sim["goodput_mbps"]
    p100 = lab["p100_ms"] / sim["p100_ms"]
    return {
        "scenario": scenario.stem,
        "sim": sim,
        "lab": lab,
        "goodput_ratio": goodput,
        "p100_ratio": p100,
        "within": abs(goodput - 1) <= GOODPUT_BAR and abs(p100 - 1) <= P100_BAR,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME", nargs="*", help="these scenarios")
    parser.add_argument("--repeat", metavar="N", type=int, default=1, help="runs of the lab")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    if not arguments.json:
        print("| Scenario | goodput sim | lab | ratio | p100 sim | lab | ratio | load | |")
        print("|---|---|---|---|---|---|---|---|---|")
    for scenario in sorted(SCENARIOS.glob("*.toml")):
        if arguments.only and scenario.stem not in arguments.only:
            continue
        row = compare(scenario, arguments.repeat, arguments.set)
        rows.append(row)
        sim, lab = row["sim"], row["lab"]
        if not arguments.json:
            print(
                f"| {row['scenario']}"
                f" | {sim['goodput_mbps']:.0f} | {lab['goodput_mbps']:.0f}"
                f" | {row['goodput_ratio']:.3f}"
                f" | {sim['p100_ms']:.0f} | {lab['p100_ms']:.0f} | {row['p100_ratio']:.3f}"
                f" | {lab['load']:.1f} | {'' if row['within'] else 'outside'} |",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(rows, indent=2))
    return 0 if all(row["within"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
