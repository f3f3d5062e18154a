"""When a progress bar first says how long a run still takes, and how wrong it is then.

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


def timed(scenario: Scenario) -> dict[str, list[tuple[float, float]]]:
    """By transport: when each step ended, s of CPU since the first one, and the share done."""
    seen: dict[str, list[tuple[float, float]]] = {}

    def progress(step: Step) -> None:
        seen.setdefault(step.transport, []).append((time.process_time(), step.share))

    simulate(scenario, progress, threads=1)
    return {
        name: [(at_s - steps[0][0], share) for at_s, share in steps] for name, steps in seen.items()
    }


def first_told(steps: list[tuple[float, float]]) -> tuple[float, float] | None:
    """When its bar first says what is left, s, and how long the run takes by that, s."""
    left = TimeLeft()
    for at_s, share in steps:
        if (left_s := left.after(at_s, share)) is not None:
            return at_s, at_s + left_s
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="SCENARIO.toml")
    files = parser.parse_args().files
    cases = {file: load_scenario(file) for file in files}
    if not files:
        cases = {name: parse_scenario(text) for name, text in OWN.items()}
        cases |= {name: load_scenario(EXAMPLES / name) for name in FILES}
    print("| run | transport | takes | told first | that is | off |\n|---|---|---|---|---|---|")
    for name, scenario in cases.items():
        for transport, steps in timed(scenario).items():
            took_s, words = steps[-1][0], "never | |"
            if (told := first_told(steps)) is not None:
                at_s, total_s = told
                words = f"after {at_s:.1f} s | {total_s:.1f} s | {total_s / took_s - 1:+.0%}"
            print(f"| {name} | {transport} | {took_s:.2f} s | {words} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
