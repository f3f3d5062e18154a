"""Run a few tiny worlds and print all that came of them as JSON: `python -m tests.sim.plain`.

With NUMBA_DISABLE_JIT=1 every line of the engine and the event loop is plain Python. Then each call
of `endpoint.next_packet` is watched as well: nothing may leave while the window is full (`inflight
< cwnd` before every send), and no PSN outside the peer's range. So is `endpoint.on_packet`: its
verdicts are counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.engine import endpoint
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.verdict import VERDICT_TEXTS
from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault
from openmrc.fabric.kinds import BEGINS
from openmrc.jit import interpreted
from openmrc.sim.world import World
from openmrc.workload import incast, permutation, ring_all_reduce, stream
from tests.sim.lab import US, clos, tree, world_of
from tests.sim.random_worlds import recipe_of

ROOT = Path(__file__).resolve().parents[2]
CUT = [Fault(6 * US, "link-down", "plane 0 t0 0 - t1 0", for_ps=20 * US)]


RANDOM = range(1, 6)  # seeds of `random_worlds.recipe_of`


def worlds() -> dict[str, World]:
    """Worlds of a few hundred packets each, in which everything happens that can."""
    found = eventful_worlds() | {
        f"random {seed}": recipe_of(seed, 100_000).world() for seed in RANDOM
    }
    for world in found.values():
        world.net.ctl[0].scouts = 1  # as in a large one: every line of scout.py is to run here too
    return found


def eventful_worlds() -> dict[str, World]:
    """One of a kind."""
    small = clos(nics=4, planes=2, down=2, up=2)
    lossy = [Fault(0, "link-loss", "plane 1 t0 * - t1 *", rate=0.05)]
    storm = [
        Fault(4 * US, "port-down", "nic 0 plane 1", for_ps=30 * US),
        Fault(8 * US, "switch-silent", "plane 0 t1 1", for_ps=40 * US),
    ]
    return {
        "cut": world_of(small, stream(0, 3, 400_000), CUT),
        "trims": world_of(clos(nics=4, planes=1, down=2, up=2), incast(4, 3, 250_000), seed=2),
        "loss": world_of(small, permutation(4, 150_000, 1, channels=2), lossy, seed=3),
        "storm": world_of(small, ring_all_reduce(4, 200_000), storm, seed=4),
        "every fault": world_of(
            small,
            permutation(4, 200_000, 5, channels=2),
            draw_faults(small, 7, len(BEGINS), 60 * US),
            seed=6,
        ),
        "three tiers": world_of(tree(16, 2, 2), permutation(16, 20_000, 2), seed=5),
        "cut-through": world_of(
            replace(small, cut_through=True),
            permutation(4, 200_000, 5, channels=2),
            draw_faults(small, 7, len(BEGINS), 60 * US),
            seed=7,
        ),
        "in shards": world_of(
            clos(nics=6, planes=2, down=2, up=2),
            permutation(6, 60_000, 5, channels=2),
            draw_faults(small, 9, len(BEGINS), 30 * US),
            seed=8,
            shards=3,
        ),
        "oblivious": world_of(small, incast(4, 3, 80_000), CUT, paths="oblivious"),
        "single": world_of(
            small, permutation(4, 80_000, 3), CUT, paths="single", convergence_ps=10 * US
        ),
        "recycled": world_of(
            small,
            permutation(4, 200_000, 6),
            [*CUT, Fault(5 * US, "deny", "plane 1 t1 0", for_ps=9 * US)],
            paths="reps",
        ),
        "hashed": world_of(
            small,
            permutation(4, 200_000, 7, channels=2),
            [*CUT, Fault(5 * US, "deny", "plane 1", nics="0-1", for_ps=9 * US)],
            srv6=False,
            trim=False,
            ecn_skip=False,
        ),
        "balanced": world_of(
            small,
            permutation(4, 200_000, 7, channels=2),
            [*CUT, Fault(5 * US, "deny", "plane 1 t1 0", nics="0-1", for_ps=9 * US)],
            srv6=False,
            routing="adaptive",
            convergence_ps=4 * US,
        ),
        "sprayed in shards": world_of(
            clos(nics=6, planes=2, down=2, up=2),
            permutation(6, 60_000, 5, channels=2),
            draw_faults(small, 9, len(BEGINS), 30 * US),
            seed=8,
            shards=3,
            srv6=False,
            routing="spray",
            convergence_ps=10 * US,
        ),
        "hashed once": world_of(
            small,
            permutation(4, 80_000, 8),
            CUT,
            paths="single",
            srv6=False,
            convergence_ps=10 * US,
        ),
        "peer": world_of(
            clos(nics=4, planes=1, down=2, up=2),
            permutation(4, 80_000, 4),
            rules="peer",
            pmtu=4086,
            evs_active=16,
            evs_backup=0,
        ),
    }


def digests(group: Any) -> dict[str, str]:
    """A hash of every byte of every array of a named tuple, but those of addresses."""
    return {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        for name, array in zip(group._fields, group, strict=True)
        if name != "calls"
    }


def outcome(world: World) -> dict[str, Any]:
    """Everything a run leaves behind."""
    return {
        "flows": {k: v.tolist() for k, v in world.flows().items()},
        "counters": world.counters(),
        "timeline": {k: v.tolist() for k, v in world.timeline().items()},
        "errors": world.qp_errors(),
        "verified": [world.bytes_verified, world.bytes_wrong],
        "engine": digests(world.engine),
        "net": digests(world.net),
    }


def watch_every_send() -> list[int]:
    """Check the rules of sending at every send; returns a list that grows by one with each."""
    sends: list[int] = []
    original = endpoint.next_packet

    def watched(st: Any, q: Any, free_ports: int, now: int, p: Any) -> int:
        before, again, cwnd = int(q.inflight), int(q.inflight_again), float(q.cwnd)
        window = st.slot[int(q.slot0) : int(q.slot0 + q.slot_mask) + 1]
        plane = int(original(st, q, free_ports, now, p))
        if plane >= 0:
            held = again if p.flag_bits & pk.RTX else before
            assert held < cwnd, f"{held} bytes in flight, window {cwnd}"
            seq = int(st.count[es.SENT_SEQ])
            assert seq == es.unwrap(int(p.psn), int(q.first_psn), int(q.una))
            assert int(q.una) <= seq < int(q.una) + int(q.mpr)
            assert (free_ports >> plane) & 1
            assert (int(q.planes_ok) >> plane) & 1
            s = window[seq & int(q.slot_mask)]
            assert int(q.inflight) == before + int(s.bytes_nominal)
            sends.append(seq)
        return plane

    endpoint.next_packet = watched
    return sends


def watch_every_verdict() -> Counter[str]:
    """Count what the engine says of the packets that come."""
    verdicts: Counter[str] = Counter()
    original = endpoint.on_packet

    def watched(*arguments: Any) -> int:
        verdict = int(original(*arguments))
        verdicts[VERDICT_TEXTS[verdict]] += 1
        return verdict

    endpoint.on_packet = watched
    return verdicts


def outcomes(
    of: dict[str, World], outcome: Callable[[World], dict[str, Any]] = outcome
) -> dict[str, Any]:
    """What comes of each world; in plain Python no number may overflow on the way."""
    if interpreted():
        np.seterr(over="raise", under="ignore", invalid="raise", divide="raise")
    found = {}
    for name, world in of.items():
        world.run()
        found[name] = outcome(world)
    return found


def run_plain(module: str, **environment: str) -> Any:
    """What a module prints as JSON, in a process of its own without compilation; negative indices
    that compiled code must not use are errors.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.jit.guarded", module],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "NUMBA_DISABLE_JIT": "1"}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    """Run them and print."""
    sends = watch_every_send() if interpreted() else []
    verdicts = watch_every_verdict() if interpreted() else Counter()
    found = outcomes(worlds())
    json.dump({"sends": len(sends), "verdicts": verdicts, "worlds": found}, sys.stdout)


if __name__ == "__main__":
    main()
