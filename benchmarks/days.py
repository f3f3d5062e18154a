"""Thirty days of a training job under each fabric, at several sizes, with many draws of failures.

    .venv/bin/python benchmarks/days.py --out build/days

Takes examples/large/day_131072.toml at each size, all seeds on all cores, and prints one row for
each size and fabric: the median of all seeds, and the least and the most. What is in --out already
is not computed again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from openmrc.day.rates import KNOWN
from openmrc.day.study import spread, study
from openmrc.jit.beside import cores
from openmrc.planning.assumptions import values_with
from openmrc.scenario.scenario import load_scenario
from openmrc.units import parse_rate

SCENARIO = Path(__file__).parents[1] / "examples/large/day_131072.toml"
SIZES = (8192, 32_768, 131_072)
SHOWN = {"effective": 2, "stalls": 3, "bandwidth": 3, "collisions": 2, "by_network": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description="thirty days, four fabrics, three sizes")
    parser.add_argument("--out", type=Path, default=Path("build/days"))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--days", type=float, default=30.0)
    arguments = parser.parse_args()
    print(
        "| GPUs | Fabric | Effective time, % | Stalls, % | Missing bandwidth, % | Collisions, %"
        " | Ended by the network |"
    )
    print("|---|---|---|---|---|---|---|")
    for nics in arguments.sizes:
        scenario = load_scenario(str(SCENARIO)).replace({"fabric.nics": nics})
        shared = {
            "scenario": scenario.to_toml(),
            "days": arguments.days,
            "switch_rate_bps": parse_rate("51.2Tbps"),
            "assumptions": values_with([], KNOWN),
        }
        inputs = [{**shared, "seed": 1 + i} for i in range(arguments.seeds)]
        out = arguments.out / str(nics)
        out.mkdir(parents=True, exist_ok=True)
        for side in spread(dict(study(scenario, inputs, out, cores()))):
            cells = [
                f"{side[key]['median']:.{digits}f}"
                f" ({side[key]['least']:.{digits}f} to {side[key]['most']:.{digits}f})"
                for key, digits in SHOWN.items()
            ]
            print(f"| {nics:,} | {side['name']} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
