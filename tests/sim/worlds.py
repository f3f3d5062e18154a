"""Worlds in which much happens, and what makes two of them the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault
from openmrc.fabric.queues import Queues
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import incast
from tests.sim.lab import MS, US, clos, world_of

LOSSY = [
    Fault(0, "link-loss", "plane 1 t0 * - t1 *", rate=0.05),
    Fault(20 * US, "link-down", "plane 0 t0 0 - t1 *", for_ps=60 * US),
]


def eventful(seed: int = 1) -> World:
    """Trims, marks, losses, cuts and repairs."""
    faults = [
        Fault(20 * US, "link-down", "plane 0 t0 0 - t1 *", for_ps=100 * US),
        Fault(30 * US, "link-loss", "plane 1 t0 * - t1 *", rate=0.01),
        Fault(40 * US, "port-down", "nic 3 plane 2", for_ps=50 * US),
    ]
    return world_of(
        clos(nics=16, planes=4), incast(16, 8, 1_000_000, victim=True), faults, seed=seed
    )


def same_run(world: World, listed: World) -> None:
    """Every packet of both went the same way at the same time."""
    for part in ("counters", "timeline"):
        one, other = getattr(world, part)(), getattr(listed, part)()
        assert {k: np.asarray(v).tolist() for k, v in one.items()} == {
            k: np.asarray(v).tolist() for k, v in other.items()
        }
    assert world.now_ps == listed.now_ps
    assert world.bytes_verified == listed.bytes_verified
    for records in ("qp", "ev", "plane", "slot", "bits", "stream"):
        one, other = (getattr(w.engine, records) for w in (world, listed))
        assert one.tobytes() == other.tobytes(), records
    # a series starts with its first message and ends with its last
    flows, messages = world.flows(), listed.flows()
    first = np.cumsum(flows["messages"]) - flows["messages"]
    assert flows["start_ps"].tolist() == messages["start_ps"][first].tolist()
    for key, join in (("done_ps", np.maximum), ("bytes", np.add), ("retransmitted", np.add)):
        assert flows[key].tolist() == join.reduceat(messages[key], first).tolist(), key
    if (flows["done_ps"] >= 0).all():
        last = np.maximum.reduceat(messages["delivered_ps"], first)
        assert flows["delivered_ps"].tolist() == last.tolist()


def silent_plane(jitter_ps: int, seed: int, cut_ps: int, base_rtt_ps: int | None) -> World:
    """The slow world, of which one plane falls silent. It stops 100 ms after the cut."""
    silent = [Fault(cut_ps, "switch-silent", "plane 0 t1 *")]
    return slow_planes(silent, jitter_ps, seed, cut_ps + 100 * MS, base_rtt_ps)


def slow_planes(
    faults: list[Fault], jitter_ps: int, seed: int, stop_ps: int, base_rtt_ps: int | None = None
) -> World:
    """A stream of 16 KiB messages over four planes of 100 Mb/s, with deep queues that neither trim
    nor mark.
    """
    fabric = replace(multiplane(2, 4, 100 * 10**6, 1, 2, 5 * US, 1 * US), jitter_ps=jitter_ps)
    deep = 256 * 1024
    return world_of(
        fabric,
        make_traffic("stream", 2, [0], [1], [0] * 1000, 16 * 1024),
        faults,
        seed=seed,
        stop=stop_ps,
        queues=Queues(
            trim=False, queue_bytes=deep, queue_last_hop_bytes=deep, ecn_low=10**6, ecn_high=10**6
        ),
        base_rtt_ps=base_rtt_ps,
        rto_exponent=14,
    )
