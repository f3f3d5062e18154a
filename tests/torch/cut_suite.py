"""PyTorch's own tests (`dist_suite.py`) on hosts of a lab, while planes are cut at random times.

    BACKEND=mrc WORLD_SIZE=3 OMP_NUM_THREADS=1 python -m tests.torch.cut_suite [--seed N] [-- WORDS]

Each rank enters the network namespace of its host. At any time up to three of four planes are cut,
at one host or at all, loudly or silently; one plane of each pair always lives. WORDS go to pytest,
in place of the whole suite. The last line says how many cuts there were; the status is pytest's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmrc.live.lab import Lab, run_lab
from openmrc.live.lab.isolation import NEW_NETWORK, set_namespace
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import make_scenario

ROOT = Path(__file__).parents[2]
HOSTS = "OPENMRC_SUITE_HOSTS"  # JSON: of each rank its namespace, and what a command there is told
RANKS, PLANES = 3, 4
TABLES: dict[str, Any] = {
    "fabric": {"nics": 4, "planes": PLANES, "port_rate": "1Gbps", "t0_down": 2, "t0_up": 2},
    "lab": {"switch": "linux"},
    "workload": {"kind": "permutation", "size": "1MB"},  # nobody runs it
}
LASTS_S, REST_S = (0.2, 0.8), (0.0, 0.4)
SUITE = [
    *(sys.executable, "-m", "pytest", "-p", "no:xdist", "-W", "ignore", "--show-capture=no"),
    *("-p", "no:cacheprovider"),
]


def enter(rank: int, told: str) -> None:
    """Move this process, which has no threads yet, to the host of a rank."""
    host = json.loads(told)[rank]
    with open(host["network"], "rb") as namespace:
        set_namespace(namespace.fileno(), NEW_NETWORK)
    os.environ.update(host["environment"])


def places(draw: random.Random) -> list[tuple[str, str]]:
    """Up to three planes, each with a place to cut and how."""
    found = []
    for plane in draw.sample(range(PLANES), draw.randint(1, PLANES - 1)):
        loud = (f"nic {draw.choice(['*', *range(RANKS)])} plane {plane}", "link-down")
        found.append(draw.choice([loud, (f"plane {plane} t0 *", "switch-silent")]))
    return found


def cut_until_over(lab: Lab, running: subprocess.Popen[bytes], draw: random.Random) -> int:
    """Cut and heal until the suite is over; how many times."""
    cuts = 0
    while not over(running, draw.uniform(*REST_S)):
        for where, kind in places(draw):
            lab.fail(where, kind)
            cuts += 1
        over(running, draw.uniform(*LASTS_S))
        lab.heal("everywhere")
    return cuts


def over(running: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for so long at most."""
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def run(seed: int, words: list[str]) -> int:
    """The suite in a lab; pytest's status."""

    def work(lab: Lab) -> int:
        lab.begin()
        environment = {**os.environ, HOSTS: json.dumps([host(lab, rank) for rank in range(RANKS)])}
        with subprocess.Popen([*SUITE, *words], cwd=ROOT, env=environment) as running:
            cuts = cut_until_over(lab, running, random.Random(seed))
        print(f"seed {seed}: {cuts} cuts", flush=True)
        return running.returncode

    return run_lab(lab_spec(make_scenario(TABLES)), work)


def host(lab: Lab, rank: int) -> Mapping[str, Any]:
    own = lab.namespaces.path(lab.topology.hosts[rank])
    return {
        # as this /proc calls us
        "network": own.replace("self", os.readlink("/proc/self")),
        "environment": lab.environment(range(RANKS), rank),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("words", nargs="*", default=["tests/torch/dist_suite.py"])
    arguments = parser.parse_args()
    return run(arguments.seed, arguments.words)


if __name__ == "__main__":
    sys.exit(main())
