"""Threads: is what comes out the same for any number of them, and how much faster is it?

    .venv/bin/python benchmarks/threads.py equal [--scenarios 60] [--seed 1] [--kind mrc|roce]
    .venv/bin/python benchmarks/threads.py speed [--case NAME ...] [--threads 1,2] [--rounds 3]

`equal` draws scenarios of one transport as `mrc soak` does, cuts their fabrics into two to five
shards and runs each with 1, 2, 4 and 16 threads: flows, counters, bins, every array that all shards
share, and of small ones the frames of all links must be the same. Exit status 1 if anything
differs.

`speed` runs cases in turns with each number of threads: seconds of the loop, of all cores, and link
traversals a second; in the last line of a case the medians over those of the first number.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path

from openmrc.run.simulation import world_of
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.shards import crew, cut
from openmrc.sim.warmup import warm_up_mrc, warm_up_roce

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.sim.shards.same import different, digest, scenario_of

TREE = """
    [fabric]
    kind = "fat-tree"
    nics = {nics}
    port_rate = "{rate}"
    t0_down = {down}
    [transport]
    evs_active = 64
    evs_backup = 0
    [workload]
    kind = "permutation"
    size = "{size}"
"""
ROCE = TREE.replace("evs_active = 64\n    evs_backup = 0", 'kind = "roce"')
PLANES = """
    [fabric]
    nics = {nics}
    planes = 8
    port_rate = "100Gbps"
    t0_down = 64
    [workload]
    kind = "permutation"
    size = "1MB"
"""
CASES = {
    "T1024": TREE.format(nics=1024, rate="100Gbps", down=16, size="1MB"),
    "T8192": TREE.format(nics=8192, rate="400Gbps", down=64, size="1MB"),
    "M1024x8": PLANES.format(nics=1024),
    "M8192x8": PLANES.format(nics=8192),
    "R1024": ROCE.format(nics=1024, rate="100Gbps", down=16, size="1MB"),
    "R8192": ROCE.format(nics=8192, rate="400Gbps", down=64, size="1MB"),
}


def equal(count: int, seed: int, kind: str) -> int:
    """Compare; how many scenarios differed."""
    crew.ALONE_EVENTS = 0  # all threads have a part in small worlds too
    wrong = compared = 0
    for number in itertools.count(seed):
        scenario = scenario_of(number, kind)
        if scenario is None:
            continue
        shards, differs = different(scenario, 2 + number % 4)
        if shards < 2:
            continue
        compared += 1
        wrong += bool(differs)
        print(f"{number}: {shards} shards, {', '.join(differs) or 'the same'}", flush=True)
        if compared == count:
            print(f"{compared} scenarios, {wrong} of them different")
            return wrong
    raise AssertionError


def speed(name: str, threads: list[int], rounds: int) -> None:
    """Run a case in turns."""
    cut.CUT_FROM_NICS = 512  # what smaller fabrics than usual would gain
    scenario = parse_scenario(CASES[name], name=name)
    took: dict[int, list[float]] = {n: [] for n in threads}
    came = set()
    for _ in range(rounds):
        for n in threads:
            built = scenario.build()
            world = world_of(scenario, *built, scenario.transport(0), threads=n)
            started = time.process_time()
            world.run()
            cpu_s = time.process_time() - started
            took[n].append(world.loop_s)
            traversals = world.counters()["link_traversals"]
            came.add(tuple(sorted((key, str(of)) for key, of in digest(world).items())))
            print(
                f"{name}, {len(world.nets)} shards, {n} threads: {world.loop_s:.2f} s,"
                f" {cpu_s:.2f} s of all cores, {traversals / world.loop_s / 1e6:.2f} M/s",
                flush=True,
            )
            del world
    medians = {n: statistics.median(times) for n, times in took.items()}
    shares = ", ".join(f"{n}: {medians[threads[0]] / medians[n]:.2f}" for n in threads)
    print(f"{name}: {shares} times as fast; results {'the same' if len(came) == 1 else 'DIFFER'}")


def main() -> int:
    """Compare or measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("equal", "speed"))
    parser.add_argument("--scenarios", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("mrc", "roce"), default="mrc")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "equal":
        (warm_up_mrc if given.kind == "mrc" else warm_up_roce)()
        return int(equal(given.scenarios, given.seed, given.kind) > 0)
    warm_up_mrc()
    warm_up_roce()
    for name in given.case:
        speed(name, [int(n) for n in given.threads.split(",")], given.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
