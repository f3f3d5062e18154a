"""Random small worlds: fabric, workload, faults, transport and seed, drawn by Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from openmrc.fabric.clos import fat_tree, multiplane
from openmrc.fabric.draw import draw_faults
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.fabric.model import Fabric
from openmrc.fabric.queues import Queues
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.world import World
from openmrc.traffic.traffic import Traffic, make_traffic, unroll
from openmrc.workload import incast, permutation, ring_all_reduce, stream
from tests.sim.lab import GBPS, MS, NS, US

STOP = 700 * MS  # a QP whose peer is gone gives up after 538 ms
RTO_SHORT = 5  # 33 us instead of 262: worlds in trouble end sooner, rows are the same


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a world; its text is the one thing needed to make it again."""

    fabric: dict[str, Any]
    workload: dict[str, Any]
    faults: list[Fault] = field(default_factory=list)
    transport: dict[str, Any] = field(default_factory=dict)
    queues: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    def world(self) -> World:
        fabric = build_fabric(**self.fabric)
        schedule = compile_faults(self.faults, fabric, self.seed) if self.faults else None
        return World(
            fabric,
            build_traffic(fabric.n_nics, **self.workload),
            Transport(**self.transport),
            schedule,
            self.seed,
            Queues(**self.queues),
            STOP,
        )


def build_fabric(
    nics: int,
    planes: int,
    tiers: int,
    down: int,
    up: int,
    link_ns: int,
    gbps: int,
    cut_through: bool = False,
) -> Fabric:
    delays = (link_ns * NS, 250 * NS)
    if tiers == 3:
        built = fat_tree(nics, gbps * GBPS, down, up, *delays, tiers=3, t1_down=2, t1_up=2)
    else:
        built = multiplane(nics, planes, gbps * GBPS, down, up, *delays)
    return replace(built, cut_through=cut_through)


def build_traffic(nics: int, kind: str, size: int, seed: int) -> Traffic:
    if kind == "permutation":
        return permutation(nics, size, seed, channels=min(1 + seed % 2, size))
    if kind == "incast":
        return incast(nics, max(nics - 3, 1), size, victim=nics >= 4)
    if kind == "ring":
        ring = ring_all_reduce(nics, max(size, 2 * nics), chunks=2)
        return ring if seed % 2 else unroll(ring)
    if kind == "stream":
        return stream(0, nics - 1, size)
    return random_dag(nics, size, seed)


def random_dag(nics: int, size: int, seed: int) -> Traffic:
    """Messages of any size, some with immediates, released by earlier ones in both ways."""
    rng = np.random.default_rng(seed)
    qps = int(rng.integers(1, 2 * nics))
    src = rng.integers(0, nics, qps)
    dst = (src + rng.integers(1, nics, qps)) % nics
    n = int(rng.integers(1, 30))
    edges = [
        (int(rng.integers(0, b)), b, bool(rng.integers(2)))
        for b in range(1, n)
        for _ in range(rng.integers(0, 3))
    ]
    rows = [[(a, b) for a, b, kind in edges if kind is which] for which in (False, True)]
    recv, sent = (([a for a, _ in row], [b for _, b in row]) for row in rows)
    return make_traffic(
        "dag",
        nics,
        src,
        dst,
        rng.integers(0, qps, n),
        rng.integers(1, max(size // 4, 2), n),
        rng.integers(0, 100 * US, n),
        recv=recv,
        sent=sent,
        imm=rng.integers(0, 2, n).astype(bool),
    )


@st.composite
def fabrics(draw: st.DrawFn) -> dict[str, Any]:
    tiers = draw(st.sampled_from([2, 2, 2, 3]))
    return {
        "tiers": tiers,
        "nics": draw(st.integers(2, 8)),
        "planes": 1 if tiers == 3 else draw(st.integers(1, 4)),
        "down": draw(st.integers(1, 4)),
        "up": draw(st.integers(1, 4)),
        "link_ns": draw(st.sampled_from([0, 1, 500, 2000])),
        "gbps": draw(st.sampled_from([10, 100, 400])),
        "cut_through": draw(st.booleans()),
    }


@st.composite
def fault_lists(draw: st.DrawFn, fabric: dict[str, Any]) -> list[Fault]:
    seed, n = draw(st.integers(0, 9999)), draw(st.integers(0, 5))
    horizon = draw(st.sampled_from([20 * US, 300 * US, 5 * MS]))
    return draw_faults(build_fabric(**fabric), seed, n, horizon, lasting=draw(st.booleans()))


@st.composite
def recipes(draw: st.DrawFn, faults: bool = True, max_size: int = 400_000) -> Recipe:
    fabric = draw(fabrics())
    kinds = ["permutation", "incast", "ring", "stream", "dag"]
    workload = {
        "kind": draw(st.sampled_from(kinds if fabric["nics"] >= 3 else ["stream", "dag"])),
        "size": draw(st.integers(1, max_size)),
        "seed": draw(st.integers(0, 999)),
    }
    transport: dict[str, Any] = {
        "paths": draw(st.sampled_from(["mrc", "mrc", "mrc", "oblivious", "single"])),
        "cc": draw(st.sampled_from(["nscc", "nscc", "none"])),
        "pmtu": draw(st.sampled_from([1024, 4096, 4096])),
        "evs_active": draw(st.sampled_from([4, 16, 128])),
        "rto_exponent": RTO_SHORT,
        "convergence_ps": 500 * US,
    }
    if draw(st.booleans()):
        transport["mpr"] = draw(st.sampled_from([128, 256]))
    return Recipe(
        fabric,
        workload,
        draw(fault_lists(fabric)) if faults else [],
        transport,
        {"trim": draw(st.booleans()), "ecn_last_hop": draw(st.booleans())},
        draw(st.integers(1, 1000)),
    )


def recipe_of(seed: int, max_size: int) -> Recipe:
    """A recipe from a number, for runs without Hypothesis: congested as a rule, with a fault."""
    rng = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    fabric = {
        "tiers": 2,
        "nics": pick(4, 6, 8),
        "planes": pick(1, 2, 4),
        "down": pick(2, 4),
        "up": pick(1, 2, 4),
        "link_ns": pick(0, 500),
        "gbps": pick(10, 100, 400),
    }
    faults = draw_faults(build_fabric(**fabric), seed, 1, 60 * US)
    return Recipe(
        fabric,
        {"kind": pick("incast", "ring", "dag"), "size": max_size, "seed": seed},
        faults,
        {"paths": pick("mrc", "mrc", "oblivious"), "rto_exponent": RTO_SHORT},
        {"trim": pick(True, True, False)},
        seed,
    )
