"""How well a run says, after a tenth of it, when it will end.

    .venv/bin/python benchmarks/eta.py [SCENARIO.toml ...] [--rounds N] [--more]

Of each transport: how long it took, and how long it would have taken by what its progress bar
showed when a tenth of that was over, in seconds of CPU, so that others on the machine count little;
of several rounds each time from step to step is the shortest. A run that ends with an error is
compared up to the share of its work at which it ended, which no bar knows; one of RoCEv2 whose
first tenth is a single step says nothing yet. What is told of a run of less than half a second
nobody reads: it is printed, and not judged.

Without files: a permutation, an incast, an all-to-all, and scenarios of `examples` that run for a
second or more; `--more` adds other sizes, RoCEv2, dead links and faults.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

from openmrc import Scenario, load_scenario, parse_scenario, simulate
from openmrc.run.simulation import Step
from openmrc.run.work import left_s

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
SMALL = '[fabric]\nnics = {nics}\nplanes = 4\nport_rate = "100Gbps"\n[workload]\n'
BOTH = '[[transport]]\n[[transport]]\nkind = "roce"\n'
CUT = '[[fault]]\nat = "{at}"\nkind = "link-down"\nwhere = "plane * t0 * - t1 *"\nshare = 0.05\n'
SIZES = ("64KB", "1MB", "16MB", "64MB")
MORE = {
    f"permutation, {nics} NICs, {size}": (
        SMALL.format(nics=nics) + f'kind = "permutation"\nsize = "{size}"\n' + BOTH
    )
    for nics, size in product((64, 256), SIZES)
}
MORE |= {
    f"incast of {n}, {size}": (
        SMALL.format(nics=128) + f'kind = "incast"\nn = {n}\nsize = "{size}"\n' + BOTH
    )
    for n, size in product((8, 64), ("1MB", "64MB"))
}
MORE |= {
    f"all-to-all, 64 NICs, {size}": (
        SMALL.format(nics=64) + f'kind = "all-to-all"\nsize = "{size}"\n' + BOTH
    )
    for size in ("64KB", "4MB", "64MB")
}
MORE |= {
    f"permutation, {words}": (
        SMALL.format(nics=128) + 'kind = "permutation"\nsize = "16MB"\n' + BOTH + CUT.format(at=at)
    )
    for words, at in (("dead links", "0s"), ("links that die", "200us"))
}
MORE |= {
    f"permutation on dead links, {nics} NICs, {size}": (
        SMALL.format(nics=nics)
        + f'kind = "permutation"\nsize = "{size}"\n[transport]\nkind = "roce"\n'
        + CUT.format(at="0s")
    )
    for nics, size in ((512, "16MB"), (128, "128MB"))
}
MORE_FILES = ("neighbours.toml", "flapping_transceiver.toml", "denylist.toml")
EARLY = 0.1
WITHIN = 0.25
READ_S = 0.5


def timed(scenario: Scenario, rounds: int) -> dict[str, tuple[list[float], list[Step]]]:
    """By transport: its steps, and when each ended, s of CPU."""
    found: list[dict[str, list[tuple[float, Step]]]] = []
    for _ in range(rounds):
        seen: dict[str, list[tuple[float, Step]]] = {}

        def progress(step: Step, into: dict[str, list[tuple[float, Step]]] = seen) -> None:
            into.setdefault(step.transport, []).append((time.process_time(), step))

        simulate(scenario, progress, threads=1)
        found.append(seen)
    every = {}
    for name, steps in found[0].items():
        took_s = np.min([np.diff([at_s for at_s, _ in seen[name]]) for seen in found], axis=0)
        first_s = min(seen[name][0][1].progress.wall_s for seen in found)
        at_s = np.cumsum([first_s, *took_s]).tolist()
        every[name] = (at_s, [step for _, step in steps])
    return every


def told(at_s: list[float], steps: list[Step]) -> float | None:
    """How long the run takes by what it had done after a tenth, s, up to where it ended."""
    now = min(range(len(at_s)), key=lambda i: abs(at_s[i] - EARLY * at_s[-1]))
    share, step = [each.share for each in steps], steps[now]
    if step.share == 1:
        return None
    left = left_s(at_s[: now + 1], share[: now + 1], step.model_left_s, step.settled)
    if left is None:
        return None
    return at_s[now] + left * (share[-1] - share[now]) / (1 - share[now])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="SCENARIO.toml")
    parser.add_argument("--rounds", type=int, default=1, help="of each (%(default)s)")
    parser.add_argument("--more", action="store_true", help="more cases")
    args = parser.parse_args()
    cases = {file: load_scenario(file) for file in args.files}
    if not args.files:
        own, files = (OWN | MORE, FILES + MORE_FILES) if args.more else (OWN, FILES)
        cases = {name: parse_scenario(text) for name, text in own.items()}
        cases |= {name: load_scenario(EXAMPLES / name) for name in files}
    worst = 0.0
    print("| run | transport | takes | told after a tenth | off |\n|---|---|---|---|---|")
    for name, scenario in cases.items():
        for transport, (at_s, steps) in timed(scenario, args.rounds).items():
            found_s, took_s, ended_at = told(at_s, steps), at_s[-1], steps[-1].share
            words = "nothing | -"
            if found_s is not None:
                off = found_s / took_s - 1
                words = f"{found_s:.2f} s | {off:+.0%}"
                if took_s >= READ_S:
                    worst = max(worst, abs(off))
            ended = "" if ended_at == 1 else f", ended at {ended_at:.0%}"
            print(f"| {name} | {transport}{ended} | {took_s:.2f} s | {words} |", flush=True)
    print(f"\nof {READ_S} s or more at worst {worst:.0%} off; {WITHIN:.0%} is the limit")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
