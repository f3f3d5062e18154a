"""What a link traversal costs over switches that balance, and over hashed ones: nanoseconds of
processor time.

    .venv/bin/python benchmarks/balance.py [--repeat 7]

Permutations of 2 MB; the best of several runs, in turns. Hashed with one QP a flow has one path and
one plane: most links idle, and what the few packets in flight touch stays in the caches. With eight
it uses about as many links as switches that balance do.
"""

from __future__ import annotations

import argparse
import time

from openmrc.run.simulation import world_of
from openmrc.scenario.scenario import parse_scenario

FABRICS = {
    "fat tree, 1,024 NICs": 'kind = "fat-tree"\nnics = 1024\nport_rate = "400Gbps"',
    "three tiers, 1,024 NICs": (
        'kind = "fat-tree"\ntiers = 3\nnics = 1024\nport_rate = "400Gbps"\n'
        "t0_down = 8\nt0_up = 8\nt1_down = 8\nt1_up = 8"
    ),
    "8 planes, 32 NICs": 'nics = 32\nplanes = 8\nport_rate = "100Gbps"',
    "8 planes, 512 NICs": 'nics = 512\nplanes = 8\nport_rate = "100Gbps"',
}
RULES = {
    "DCQCN and PFC": {},
    "lossy, line rate": {"pfc": "false", "cc": '"none"'},
}
TRANSPORTS = {
    "hashed, 1 QP": {},
    "hashed, 8 QPs": {"qps": "8"},
    "adaptive": {"routing": '"adaptive"'},
}


def traversal_ns(fabric: str, keys: dict[str, str]) -> float:
    """Return the processor time of a run for each link traversal, ns."""
    lines = "\n".join(f"{key} = {value}" for key, value in keys.items())
    scenario = parse_scenario(
        f'[fabric]\n{fabric}\n[workload]\nkind = "permutation"\nsize = "2MB"\n'
        f'[transport]\nkind = "roce"\n{lines}\n'
    )
    fabric_, traffic, schedule = scenario.build()
    world = world_of(scenario, fabric_, traffic, schedule, scenario.transport(0), threads=1)
    world.run(until_ps=0)  # loads what is compiled
    began = time.process_time()
    world.run()
    return (time.process_time() - began) / world.counters()["link_traversals"] * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    print("| | | " + " | ".join(TRANSPORTS) + " |\n" + "|---" * (2 + len(TRANSPORTS)) + "|")
    for name, fabric in FABRICS.items():
        for rule, keys in RULES.items():
            rounds = [
                [traversal_ns(fabric, keys | more) for more in TRANSPORTS.values()]
                for _ in range(options.repeat)
            ]
            cells = [f"{min(of):.0f}" for of in zip(*rounds, strict=True)]
            print(f"| {name} | {rule} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
