"""`mrc bench sim`, several times over: the best run of each case, and its memory above the floor.

    .venv/bin/python benchmarks/sim.py [--repeat 3] [CASE ...]

The floor is a process that imported Numba and ran one trivial cached function.
"""

from __future__ import annotations

import argparse

from openmrc.bench import sim as benchsim


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case", nargs="*", metavar="CASE", help=", ".join(benchsim.CASES))
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    arguments = parser.parse_args(argv)
    floor_mb = benchsim.measure_floor()["peak_rss_mb"]
    print(f"floor: {floor_mb:.0f} MB")
    for name in arguments.case or benchsim.CASES:
        runs = [benchsim.measure(name) for _ in range(arguments.repeat)]
        best = max(runs, key=lambda run: run["link_traversals_per_s"])
        above_mb = max(run["peak_rss_mb"] for run in runs) - floor_mb
        print(
            f"{name}: {best['link_traversals_per_s'] / 1e6:.2f} M link traversals/s,"
            f" loop {best['loop_s']:.2f} s, {above_mb:.0f} MB above the floor"
        )


if __name__ == "__main__":
    main()
