"""`mrc bench sim`: link traversals per second of the event loop, and memory, by case.

Each case runs in a process of its own, so its peak memory is its own; it loads its code by a small
run before the measured one. The floor is the memory of a process that has imported Numba.
"""

from __future__ import annotations

import json
import subprocess
import sys

from openmrc.errors import InputError, OpenMrcError

# A permutation as htsim's users run it (1024 NICs, three tiers, 64 hashed EVs), and one on planes.
CASES = {
    "P1024_100G": """
        [fabric]
        kind = "fat-tree"
        nics = 1024
        tiers = 3
        port_rate = "100Gbps"
        t0_down = 8
        link_delay = "1us"
        switch_delay = "0us"
        ecn_last_hop = true
        [transport]
        rules = "peer"
        skip_turns = "squared"
        pmtu = 4086
        evs_active = 64
        evs_backup = 0
        [workload]
        kind = "permutation"
        size = "2MB"
    """,
    "M256_8x100G": """
        [fabric]
        nics = 256
        planes = 8
        port_rate = "100Gbps"
        t0_down = 32
        [workload]
        kind = "permutation"
        size = "4MB"
    """,
}
SMALL = ("fabric.nics=16", "workload.size=64KiB")  # the same code on little data
FLOOR, COMPILE = "floor", "compile"  # tasks of a child that runs no case


def measure(name: str) -> dict[str, float]:
    """Run one case in a fresh process; raise `OpenMrcError` with its last output if it fails."""
    if name not in CASES:
        raise InputError(f"bench: there is no case {name!r}; accepted: {', '.join(CASES)}")
    return _child(name)


def measure_floor() -> dict[str, float]:
    """Peak memory of a fresh process that imported Numba and ran one trivial cached function.

    No compiled program can use less; the rest of a case's memory is this project's.
    """
    _child(FLOOR)  # fills the cache
    return _child(FLOOR)


def run_case(name: str) -> dict[str, float]:
    """Run one case in this process."""
    from openmrc.run.results import peak_rss_mb
    from openmrc.run.simulation import simulate
    from openmrc.scenario.scenario import parse_scenario

    simulate(parse_scenario(CASES[name], SMALL, name=name))
    result = simulate(parse_scenario(CASES[name], name=name), threads=1)
    (run,) = result.transports
    if run.n_failed or run.n_unfinished:
        raise OpenMrcError(f"{name}: {run.n_failed} failed, {run.n_unfinished} unfinished flows")
    traversals = run.counters["link_traversals"]
    return {
        "link_traversals_per_s": round(traversals / run.loop_s),
        "loop_s": round(run.loop_s, 4),
        "peak_rss_mb": round(peak_rss_mb(), 1),
    }


def run_floor() -> dict[str, float]:
    """Run the trivial function in this process."""
    from openmrc.jit import compiled
    from openmrc.run.results import peak_rss_mb

    compiled(_next_number)(1)
    return {"peak_rss_mb": round(peak_rss_mb(), 1)}


def _next_number(n: int) -> int:
    return n + 1


def _child(what: str) -> dict[str, float]:
    """Run one task in a fresh process, once the code that it needs is on disk.

    A process that compiles needs several times the memory of one that loads.
    """
    from openmrc.jit.warmup import is_cached

    if what in CASES and not is_cached("sim"):
        _child(COMPILE)
    child = subprocess.run(
        [sys.executable, "-m", "openmrc.bench.sim", what], stdout=subprocess.PIPE, check=False
    )
    if child.returncode != 0:
        raise OpenMrcError(f"bench: {what} ended with status {child.returncode}; see above")
    figures: dict[str, float] = json.loads(child.stdout)
    return figures


def _main(what: str) -> dict[str, float]:
    if what == FLOOR:
        return run_floor()
    if what == COMPILE:
        from openmrc.sim.warmup import warm_up_mrc

        return {"compile_s": warm_up_mrc()}
    return run_case(what)


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1])))
