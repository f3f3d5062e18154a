"""How much faster or slower one checkout is than another: both measured in turns.

    .venv/bin/python benchmarks/paired.py BEFORE AFTER [--pairs 15] [--case NAME ...]
                                          [--keep DIR] [--json]

Both are roots of a checkout. A pair runs BEFORE and then AFTER, the next one AFTER and then BEFORE,
each in a fresh process, so what else the machine does happens to both. Printed are the median over
the pairs of AFTER's time per unit over BEFORE's, and a 95 % interval of the mean ratio (bootstrap
of the logarithms). An interval that holds 1 shows no difference.

P1024_100G, M256_8x100G    `mrc bench sim`, by link traversal
N8192                      8192 NICs, a permutation of 2 MB: the event loop, by link traversal
live sender, live receiver CPU time of an endpoint's loop, by data packet, as in `mrc bench live`
compile                    the first run of a small scenario, nothing compiled; three pairs

With `--keep` compiled code stays in DIR; the first runs of both, which fill it, are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from checkouts import MRC, Checkout, checkout

Figures = dict[str, float]  # ns by case

N8192 = """
    [fabric]
    kind = "fat-tree"
    nics = 8192
    port_rate = "400Gbps"
    t0_down = 64
    [transport]
    evs_active = 64
    evs_backup = 0
    [workload]
    kind = "permutation"
    size = "2MB"
"""
SMALL = """
    [fabric]
    nics = 4
    t0_down = 2
    [workload]
    kind = "permutation"
    size = "64KiB"
"""
LIVE = "import json; from {} import measure_cpu; print(json.dumps(measure_cpu(rounds=2)))"
COMPILE_PAIRS = 3
RESAMPLES, SEED = 10_000, 1


def sim(one: Checkout) -> Figures:
    """Both cases of `mrc bench sim`."""
    cases = json.loads(one.must("-c", MRC, "bench", "sim", "--json"))
    return {name: 1e9 / case["link_traversals_per_s"] for name, case in cases.items()}


def large(one: Checkout) -> Figures:
    """The event loop of the large fabric."""
    run = scenario(one, N8192)
    return {"N8192": run["loop_s"] * 1e9 / run["link_traversals"]}


def live(one: Checkout) -> Figures:
    """Both sides of a transfer over loopback; `mrc bench live` would bring up a lab as well."""
    source = one.root / "src"
    files = source.glob("openmrc/**/*.py")
    path = next(path for path in files if "\ndef measure_cpu(" in path.read_text())
    module = ".".join(path.relative_to(source).with_suffix("").parts)
    found = json.loads(one.must("-c", LIVE.format(module)))
    return {f"live {side}": found[side]["engine_ns"] for side in ("sender", "receiver")}


def first(one: Checkout) -> Figures:
    """The first run with nothing compiled."""
    with tempfile.TemporaryDirectory() as empty:
        started = time.perf_counter_ns()
        scenario(replace(one, cache=Path(empty)), SMALL)
        return {"compile": float(time.perf_counter_ns() - started)}


def scenario(one: Checkout, text: str) -> Figures:
    """The only transport's summary of a run."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        (run,) = json.loads(one.must("-c", MRC, "run", file.name, "--json"))["transports"].values()
    return dict(run)


# What measures, and which cases it is.
MEASURES: dict[Callable[[Checkout], Figures], tuple[str, ...]] = {
    sim: ("P1024_100G", "M256_8x100G"),
    large: ("N8192",),
    live: ("live sender", "live receiver"),
    first: ("compile",),
}
CASES = [name for names in MEASURES.values() for name in names]


def pairs(
    measure: Callable[[Checkout], Figures], before: Checkout, after: Checkout, n: int
) -> list[tuple[Figures, Figures]]:
    """So many of (BEFORE, AFTER), measured in turns."""
    found = []
    for number in range(n):
        order = (before, after) if number % 2 == 0 else (after, before)
        both = [measure(one) for one in order]
        found.append((both[0], both[1]) if number % 2 == 0 else (both[1], both[0]))
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def compared(before_ns: list[float], after_ns: list[float]) -> dict[str, float]:
    """What is printed of a case."""
    logs = np.log(np.array(after_ns) / np.array(before_ns))
    drawn = np.random.default_rng(SEED).choice(logs, (RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.exp(np.percentile(drawn, (2.5, 97.5)))
    return {
        "ratio": round(float(np.exp(np.median(logs))), 4),
        "low": round(float(low), 4),
        "high": round(float(high), 4),
        "before_ns": round(statistics.median(before_ns), 2),
        "after_ns": round(statistics.median(after_ns), 2),
        "pairs": len(logs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", metavar="BEFORE", type=Path)
    parser.add_argument("after", metavar="AFTER", type=Path)
    parser.add_argument("--pairs", type=int, default=15, metavar="N")
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES, metavar="NAME",
                        help=", ".join(CASES))  # fmt: skip
    parser.add_argument("--keep", metavar="DIR", type=Path, help="where compiled code stays")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        keep = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        before = checkout(arguments.before, keep / "compiled-before")
        after = checkout(arguments.after, keep / "compiled-after")
        for measure, names in MEASURES.items():
            wanted = [name for name in names if name in arguments.case]
            if not wanted:
                continue
            print(f"{', '.join(wanted)} ", end="", file=sys.stderr, flush=True)
            n = arguments.pairs
            if measure is first:
                n = min(n, COMPILE_PAIRS)
            else:
                for one in (before, after):
                    measure(one)  # compiles, and fills the caches
            found = pairs(measure, before, after, n)
            for name in wanted:
                figures[name] = f = compared(
                    [b[name] for b, _ in found], [a[name] for _, a in found]
                )
                if not arguments.json:
                    print(
                        f"{name:14} {f['ratio']:.3f}  [{f['low']:.3f}, {f['high']:.3f}]"
                        f"   before {f['before_ns']:,.1f} ns, after {f['after_ns']:,.1f} ns,"
                        f" {f['pairs']} pairs",
                        flush=True,
                    )
    if arguments.json:
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
