"""A few eventful RoCE worlds, and all that came of them as JSON: `python -m tests.sim.roce.worlds`.

With NUMBA_DISABLE_JIT=1 every line of the event loop is plain Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.fabric.kinds import BEGINS
from openmrc.fabric.queues import Queues
from openmrc.sim.roce import build
from openmrc.sim.roce.profiles import FlowControl
from openmrc.sim.world import World
from openmrc.workload import incast, permutation, ring_all_reduce
from tests.sim import plain
from tests.sim.lab import US, tree
from tests.sim.roce.lab import leaf_spine, roce_world, side

CUT = [Fault(6 * US, "link-down", "plane 0 t0 0 - t1 0", for_ps=20 * US)]
LOSSY = [Fault(0, "link-loss", "nic * plane * > t0", rate=0.02)]
SHORT: dict[str, Any] = {
    "rto_ps": 30 * US,
    "rto_first_ps": 10 * US,
    "local_repair_ps": 1 * US,
    "convergence_ps": (2 * US, 9 * US),
}


def worlds() -> dict[str, World]:
    """One of a kind, a few hundred packets each."""
    small = leaf_spine(4, 2, 2, 2)
    every = draw_faults(small, 7, len(BEGINS), 60 * US)
    found = {
        "pauses": tight(cc="none"),
        "marks": roce_world(leaf_spine(), incast(8, 7, 250_000)),
        "loss": roce_world(small, permutation(4, 150_000, 1), LOSSY, qps=3, **SHORT),
        "lossy incast": roce_world(
            leaf_spine(4, 1, 2, 2),
            incast(4, 3, 200_000),
            pfc=False,
            queues=Queues(queue_bytes=20_000),
            seed=2,
            **SHORT,
        ),
        "cut": roce_world(small, ring_all_reduce(4, 200_000), CUT, qps=2, seed=3, **SHORT),
        "every fault": roce_world(small, permutation(4, 150_000, 2), every, qps=2, **SHORT),
        "cut-through": roce_world(
            replace(small, cut_through=True), permutation(4, 150_000, 2), every, qps=2, **SHORT
        ),
        "three tiers": roce_world(
            tree(16, 2, 2),
            permutation(16, 20_000, 2),
            [Fault(3 * US, "link-down", "plane 0 t0 1 - t1 *", for_ps=30 * US)],
            seed=5,
            **SHORT,
        ),
        "balanced": roce_world(
            leaf_spine(4, 2, 2, 2),
            permutation(4, 150_000, 2),
            every,
            qps=2,
            routing="adaptive",
            load_steps=(0.1, 0.3),
            reordering_ps=2 * US,
            failover_ps=10 * US,
            **SHORT,
        ),
        "sprayed": roce_world(
            tree(16, 2, 2),
            permutation(16, 20_000, 2),
            [Fault(3 * US, "link-down", "plane 0 t1 1 - t2 *", for_ps=30 * US)],
            routing="spray",
            ties="rotation",
            recovery="timer",
            **SHORT,
        ),
        "peer": roce_world(
            leaf_spine(4, 1, 2, 2), permutation(4, 80_000, 4), rules="peer", pmtu=4086, cc="none"
        ),
    }
    for world in found.values():
        world.net.ctl[0].scouts = 1  # as in a large one: every line of scout.py is to run here too
    return found


def tight(faults: Sequence[Fault] = (), **more: Any) -> World:
    """An incast into a switch whose links may hold four packets each."""
    usual = build.flow_control
    build.flow_control = lambda transport: FlowControl(xoff_bytes=4 * 4178)
    try:
        return roce_world(leaf_spine(), incast(8, 7, 120_000), faults, **more)
    finally:
        build.flow_control = usual


def outcome(world: World) -> dict[str, Any]:
    """Everything a run leaves behind."""
    return plain.outcome(world) | {"roce": plain.digests(side(world).state)}


def main() -> None:
    """Run them and print."""
    json.dump(plain.outcomes(worlds(), outcome), sys.stdout)


if __name__ == "__main__":
    main()
