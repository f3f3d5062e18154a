"""How well a run says, after a tenth of it, when it will end.

    .venv/bin/python benchmarks/eta.py [SCENARIO.toml ...]

Of each transport: how long it took, and how long it would have taken by what its progress bar
showed when a tenth of that was over, in seconds of CPU, so that others on the machine do not count.
Without files: a permutation, an incast, an all-to-all, and scenarios of `examples` that run for a
second or more.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from openmrc import Scenario, load_scenario, parse_scenario, simulate
from openmrc.run.simulation import Step

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FABRIC = '[fabric]\nnics = {nics}\nplanes = 8\nport_rate = "100Gbps"\nt0_down = 64\n[workload]\n'
OWN = {
    "permutation, 16,384 NICs": FABRIC.format(nics=16384) + 'kind = "permutation"\nsize = "1MB"\n',
    "permutation, 1,024 NICs": FABRIC.format(nics=1024) + 'kind = "permutation"\nsize = "16MB"\n',
    "incast of 64": FABRIC.format(nics=256) + 'kind = "incast"\nn = 64\nsize = "16MB"\n',
    "incast of 255": FABRIC.format(nics=256) + 'kind = "incast"\nn = 255\nsize = "16MB"\n',
    "short incast of 255": FABRIC.format(nics=256) + 'kind = "incast"\nn = 255\nsize = "1MB"\n',
    "all-to-all, 128 NICs": FABRIC.format(nics=128) + 'kind = "all-to-all"\nsize = "16MiB"\n',
}
FILES = ("ring_16384.toml", "training.toml", "two_jobs.toml")
EARLY = 0.1
WITHIN = 0.25


def told(scenario: Scenario) -> list[tuple[str, float, float]]:
    """By transport: how long it takes from its first step on, and how long it would by what it had
    done after a tenth of that, s.
    """
    seen: dict[str, list[tuple[float, float]]] = {}

    def progress(step: Step) -> None:
        seen.setdefault(step.transport, []).append((time.process_time(), step.share))

    simulate(scenario, progress)
    found = []
    for name, steps in seen.items():
        start_s, begun = steps[0]
        whole_s = steps[-1][0] - start_s
        at_s, share = min(steps[1:], key=lambda one: abs(one[0] - start_s - EARLY * whole_s))
        rate = (share - begun) / (at_s - start_s)
        found.append((name, whole_s, (1 - begun) / rate if rate else float("inf")))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="SCENARIO.toml")
    files = parser.parse_args().files
    cases = {file: load_scenario(file) for file in files}
    if not files:
        cases = {name: parse_scenario(text) for name, text in OWN.items()}
        cases |= {name: load_scenario(EXAMPLES / name) for name in FILES}
    worst = 0.0
    print("| run | transport | takes | told after a tenth |\n|---|---|---|---|")
    for name, scenario in cases.items():
        for transport, took_s, told_s in told(scenario):
            worst = max(worst, abs(told_s / took_s - 1))
            print(f"| {name} | {transport} | {took_s:.1f} s | {told_s:.1f} s |", flush=True)
    print(f"\nat worst {worst:.0%} off; {WITHIN:.0%} is the limit")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
