"""What a policy in a file of its own costs beside a built-in one: link traversals per second.

    .venv/bin/python benchmarks/policies.py [--quick] [--json]

Pairs that do the same: `cc = "none"` and a `step` that does nothing; MRC's rotation and a `choose`
that is its rotation. Each pair runs in turns on the same fabric and permutation, the best of
several runs counts, and the ratio is own over built-in.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from openmrc import parse_scenario, simulate

HERE = Path(__file__).parent
PAIRS = {
    "step": ('cc = "none"', f'cc = "{HERE}/own/nothing.py:step"'),
    "choose": ('paths = "mrc"', f'paths = "{HERE}/own/rotation.py:choose"'),
}
SCENARIO = """
    [fabric]
    nics = {nics}
    planes = 8
    port_rate = "100Gbps"
    t0_down = 32
    [transport]
    name = "x"
    {transport}
    [workload]
    kind = "permutation"
    size = "{size}"
"""


def speed(transport: str, nics: int, size: str) -> float:
    """Link traversals per second of one run."""
    result = simulate(parse_scenario(SCENARIO.format(transport=transport, nics=nics, size=size)))
    (run,) = result.transports
    return run.counters["link_traversals"] / run.loop_s


def measure(quick: bool = False) -> dict[str, dict[str, float]]:
    """Both of each pair, and the ratio."""
    nics, size, repeats = (64, "256KiB", 1) if quick else (256, "4MB", 7)
    figures = {}
    for name, pair in PAIRS.items():
        best = [0.0, 0.0]
        for _ in range(repeats):
            best = [max(b, speed(t, nics, size)) for b, t in zip(best, pair, strict=True)]
        built_in, own = best
        figures[name] = {"built_in": built_in, "own": own, "ratio": own / built_in}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, Any] = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for name, f in figures.items():
        print(
            f"{name:8} built-in {f['built_in'] / 1e6:6.2f} M/s   own {f['own'] / 1e6:6.2f} M/s"
            f"   ratio {f['ratio']:.3f}"
        )


if __name__ == "__main__":
    main()
