"""How long the mapper takes to name a broken link, in virtual time: its rules alone.

    .venv/bin/python benchmarks/mapper_rounds.py [--trials N] [--turn MS ...]

The lab of `mapper.py` without processes, sockets or switches: 8 NICs on 4 planes, 20 ms a period,
ten probes across each directed link. Each trial breaks one link, drawn from all: cut (between two
switches: a NIC reports its own), silent in one direction, or losing a tenth in one direction. It
prints the time from the first lost probe to the name: median, 90th percentile and the largest.
`--turn` makes the agents that are asked for a burst obey one after the other, that much apart, as
where they share two cores.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from openmrc.units import MS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.ops.mapper.world import World, small

KINDS = {"cut": 1.0, "one way": 1.0, "lossy": 0.1}
LIMIT_MS = 50.0
WAIT_MS = 200


def trial(kind: str, seed: int, turn_ms: float) -> tuple[bool, float]:
    """Return whether exactly the broken directions were named, and how soon, ms."""
    rng = np.random.default_rng(seed)
    world = World(small(), seed=seed, turn_ms=turn_ms)
    fabric = world.fabric
    world.run(200 + int(rng.integers(40)))
    between = (fabric.port_nic < 0) & (fabric.port_peer_nic < 0)
    port = int(rng.choice(np.flatnonzero(between) if kind == "cut" else fabric.n_ports))
    ports = [port, int(fabric.port_reverse[port])] if kind == "cut" else [port]
    world.loss[ports], world.broken = KINDS[kind], True
    world.run(WAIT_MS)
    truth = {fabric.port_name(port) for port in ports}
    named = [place.named_ps for _, place in world.found if place.where in truth]
    exact = {place.where for _, place in world.found} == truth
    took_ms = (max(named) - (world.first_lost_ps or 0)) / MS if exact else np.inf
    return exact, took_ms


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--turn", type=float, nargs="+", default=[0.0, 1.5], metavar="MS")
    arguments = parser.parse_args()
    for turn_ms in arguments.turn:
        for kind in KINDS:
            found = [trial(kind, seed, turn_ms) for seed in range(arguments.trials)]
            exact, took_ms = sum(each for each, _ in found), sorted(each for _, each in found)
            in_time = sum(each <= LIMIT_MS for each in took_ms)
            print(
                f"{turn_ms:g} ms a turn, {kind}: {exact} of {len(found)} exact, {in_time} in time;"
                f" {took_ms[len(found) // 2]:.0f} ms, {took_ms[len(found) * 9 // 10]:.0f},"
                f" {took_ms[-1]:.0f} at most",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
