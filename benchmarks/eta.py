"""What a progress bar says after a tenth of a run, beside what the run takes.

    .venv/bin/python benchmarks/eta.py [SCENARIO.toml ...]

In seconds of CPU, so that others on the machine count little. Without files: a permutation, an
incast, an all-to-all, and scenarios of `examples` that run for a second or more.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from openmrc import Scenario, load_scenario, parse_scenario, simulate
from openmrc.report.progress import TimeLeft
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


def timed(scenario: Scenario) -> dict[str, list[tuple[float, float]]]:
    """By transport: when each step ended, s of CPU since the first one, and the share done."""
    seen: dict[str, list[tuple[float, float]]] = {}

    def progress(step: Step) -> None:
        seen.setdefault(step.transport, []).append((time.process_time(), step.share))

    simulate(scenario, progress, threads=1)
    return {
        name: [(at_s - steps[0][0], share) for at_s, share in steps] for name, steps in seen.items()
    }


def told_s(steps: list[tuple[float, float]]) -> float | None:
    """How long the run takes by what its bar says after a tenth, s."""
    left, left_s, at_s = TimeLeft(), None, 0.0
    for at_s, share in steps:
        left_s = left.after(at_s, share)
        if at_s >= EARLY * steps[-1][0] and left_s is not None:
            return at_s + left_s
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="SCENARIO.toml")
    files = parser.parse_args().files
    cases = {file: load_scenario(file) for file in files}
    if not files:
        cases = {name: parse_scenario(text) for name, text in OWN.items()}
        cases |= {name: load_scenario(EXAMPLES / name) for name in FILES}
    print("| run | transport | takes | told after a tenth | off |\n|---|---|---|---|---|")
    for name, scenario in cases.items():
        for transport, steps in timed(scenario).items():
            took_s, told = steps[-1][0], told_s(steps)
            words = "nothing | -" if told is None else f"{told:.2f} s | {told / took_s - 1:+.0%}"
            print(f"| {name} | {transport} | {took_s:.2f} s | {words} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
