"""What `mrc run --estimate` says, beside what the run takes.

    .venv/bin/python benchmarks/estimate.py [SCENARIO.toml ...] [--large] [--rounds N]

Each run has a process of its own, on one thread; of several rounds the shortest counts. Wall is
without loading code. Without files: the runs of `benchmarks/eta.py` and `examples/ring_16384.toml`;
`--large` adds those of `examples/large`, which take minutes and up to 6 GB. A loop that takes less
than half a second is printed, and not judged.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from eta import EXAMPLES, OWN

LARGE = sorted((EXAMPLES / "large").glob("*.toml"))
WITHIN, READ_S = 0.25, 0.5


def both(path: Path) -> dict[str, dict[str, float]]:
    """Estimate and run a scenario's first transport in this process: what each says."""
    from openmrc import load_scenario, simulate
    from openmrc.run.estimate import estimates
    from openmrc.run.results import peak_rss_mb

    scenario = load_scenario(path)
    told = estimates(scenario)[0]
    begun_s = time.perf_counter()
    outcome = simulate(scenario, threads=1).transports[0]
    wall_s = time.perf_counter() - begun_s
    return {
        "told": {
            "loop_s": told.loop_s,
            "wall_s": told.build_s + told.loop_s,
            "traversals": told.link_traversals,
            "memory": told.memory_bytes,
        },
        "took": {
            "loop_s": outcome.loop_s,
            "wall_s": wall_s,
            "traversals": outcome.counters["link_traversals"],
            "memory": peak_rss_mb() * 1e6,
        },
    }


def in_a_process(path: Path) -> dict[str, dict[str, float]]:
    command = [sys.executable, __file__, str(path), "--json"]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    answer: dict[str, dict[str, float]] = json.loads(found)
    return answer


def row(name: str, found: dict[str, dict[str, Any]]) -> str:
    told, took = found["told"], found["took"]
    cells = [f"{took['loop_s']:.2f} s", f"{took['wall_s']:.2f} s"]
    cells += [f"{took['traversals'] / 1e6:.1f} M", f"{took['memory'] / 1e9:.2f} GB"]
    off = [f"{told[key] / took[key] - 1:+.0%}" for key in took]
    return f"| {name} | {' | '.join(cells)} | {' | '.join(off)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="SCENARIO.toml")
    parser.add_argument("--large", action="store_true", help="also those of examples/large")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="one run in this process, as JSON")
    args = parser.parse_args()
    if missing := [str(file) for file in args.files if not file.is_file()]:
        parser.error(f"{', '.join(missing)}: no such file; name a scenario")
    if args.json:
        print(json.dumps(both(args.files[0])))
        return 0
    worst = 0.0
    print("| run | loop | wall | traversals | memory | loop told | wall | traversals | memory |")
    print("|---" * 9 + "|")
    with tempfile.TemporaryDirectory() as room:
        cases = {file.stem: file for file in args.files}
        if not cases:
            for name, text in OWN.items():
                cases[name] = Path(room) / f"{name.replace(' ', '_')}.toml"
                cases[name].write_text(text, encoding="utf-8")
            cases["ring_16384"] = EXAMPLES / "ring_16384.toml"
        if args.large:
            cases |= {file.stem: file for file in LARGE}
        for name, file in cases.items():
            runs = [in_a_process(file) for _ in range(args.rounds)]
            best = min(runs, key=lambda run: run["took"]["loop_s"])
            print(row(name, best), flush=True)
            if best["took"]["loop_s"] >= READ_S:
                worst = max(
                    worst,
                    *(abs(best["told"][k] / best["took"][k] - 1) for k in ("loop_s", "memory")),
                )
    print(f"\nloops and memory at worst {worst:.0%} off; {WITHIN:.0%} is the limit")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
