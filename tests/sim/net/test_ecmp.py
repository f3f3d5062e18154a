"""One hashed path per QP, and routing that needs time to converge: what MRC is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.engine import state as es
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Hops
from openmrc.sim.world import World
from openmrc.workload.patterns import permutation
from tests.sim.lab import (
    MS,
    STEADY_FROM,
    US,
    all_complete,
    clos,
    evs,
    finished,
    goodput_gbps,
    sender,
    stream_world,
    tree,
    world_of,
)

AT = 100 * US
CONVERGENCE = 300 * US
SIZE = 20_000_000


def path(world: World, qp: int = 0) -> Hops:
    """The one path of a QP now."""
    (ev,) = evs(world, qp)
    return world.fabric.hops(int(ev.value))


def broken(kind: str, where: str, **more: Any) -> World:
    """A stream whose path runs into the fault at `AT`."""
    hops = path(stream_world(paths="single"))
    place = where.format(p=hops.plane, u=hops.up0)
    rate = 1.0 if kind == "link-loss" else None
    fault = Fault(AT, kind, place, rate=rate)
    return stream_world(
        faults=[fault], size=SIZE, paths="single", convergence_ps=CONVERGENCE, **more
    )


def test_a_flow_gets_one_port_of_eight() -> None:
    world = stream_world(paths="single", stop=1 * MS)
    world.run()
    assert goodput_gbps(world, STEADY_FROM, 1 * MS) == pytest.approx(96.1, abs=0.05)
    assert world.derived()["qp_rate_bps"] == 100 * 10**9
    assert (sender(world).n_planes, len(evs(world))) == (8, 1)


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("link-down", "plane {p} t0 0 - t1 {u}"),
        ("link-down", "plane {p} t0 0 > t1 {u}"),
        ("switch-down", "plane {p} t1 {u}"),
        ("switch-down", "plane {p} t0 1"),
        ("port-down", "nic 0 plane {p}"),
        ("port-down", "nic 7 plane {p}"),
    ],
)
def test_a_broken_path_is_hashed_anew_when_routing_has_converged(kind: str, where: str) -> None:
    world = broken(kind, where)
    before = path(world)
    world.run(until_ps=AT + CONVERGENCE - 1)
    assert path(world) == before
    assert world.flows()["done_ps"].tolist() == [-1]
    world.run(until_ps=AT + CONVERGENCE)
    after = path(world)
    assert after != before
    if where.startswith("nic"):
        assert after.plane != before.plane
    all_complete(world)
    assert AT + CONVERGENCE < int(world.flows()["done_ps"][0]) < 3 * MS
    assert path(world) == after


def test_until_then_nothing_moves() -> None:
    world = broken("link-down", "plane {p} t0 0 - t1 {u}")
    world.run(until_ps=AT + 10 * US)
    got = world.bytes_verified
    world.run(until_ps=AT + CONVERGENCE - 1)
    assert world.bytes_verified == got


def test_healthy_paths_stay_where_they_are() -> None:
    fabric = clos(nics=32)
    fault = Fault(5 * US, "link-down", "plane 0 t0 0 - t1 *")
    world = world_of(
        fabric,
        permutation(32, 2_000_000, 1, channels=4),
        [fault],
        paths="single",
        convergence_ps=20 * US,
    )
    before = [path(world, qp) for qp in range(128)]
    world.run(until_ps=25 * US)
    src, dst = world.traffic.qp_src, world.traffic.qp_dst
    over = [hops.plane == 0 and (src[qp] < 4) != (dst[qp] < 4) for qp, hops in enumerate(before)]
    moved = [path(world, qp) != hops for qp, hops in enumerate(before)]
    assert any(over)
    assert moved == over
    all_complete(world)


def test_a_repair_before_convergence_leaves_the_path_alone() -> None:
    hops = path(stream_world(paths="single"))
    fault = Fault(AT, "link-down", f"plane {hops.plane} t0 0 - t1 {hops.up0}", for_ps=50 * US)
    world = stream_world(faults=[fault], size=SIZE, paths="single", convergence_ps=CONVERGENCE)
    all_complete(world)
    assert path(world) == hops


@pytest.mark.parametrize(
    ("kind", "where"),
    [("switch-silent", "plane {p} t1 {u}"), ("link-loss", "plane {p} t0 0 > t1 {u}")],
)
def test_what_routing_does_not_see_ends_in_an_error_that_names_the_queue_pair(
    kind: str, where: str
) -> None:
    world = finished(broken(kind, where))
    q = sender(world)
    assert (int(q.state), int(q.error)) == (es.ERROR, es.RETRY_EXCEEDED)
    assert world.flows()["failed"].tolist() == [True]
    assert world.errors() == ["retry counter exceeded"]
    at_us = int(q.error_at) / US
    assert world.qp_errors() == [
        f"QP {int(q.qpn):#08x} of nic 0 to nic 7: retry counter exceeded at {at_us:.1f} us"
    ]
    # row 9: seven epochs of one RTO, then 2, 4 ... 1024 of them
    spent = int(q.error_at) - AT
    assert spent / world.values.rto_ps == pytest.approx(7 + 2**11 - 2, rel=0.001)
    assert world.now_ps == int(q.error_at)


def test_the_retry_limit_follows_its_options() -> None:
    world = finished(broken("switch-silent", "plane {p} t1 {u}", linear_cnt=2, exp_cnt=1))
    spent = int(sender(world).error_at) - AT
    assert spent / world.values.rto_ps == pytest.approx(2 + 2, rel=0.02)


def test_the_infinite_limit_is_infinite() -> None:
    world = broken("switch-silent", "plane {p} t1 {u}", exp_cnt=25, linear_cnt=0, stop=30_000 * MS)
    world.run()
    assert sender(world).state == es.RTS
    assert world.qp_errors() == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hashes_spread_over_planes_and_uplinks(seed: int) -> None:
    fabric = clos(nics=256, down=16, up=16)
    world = world_of(fabric, permutation(256, 4096, seed, channels=4), paths="single", seed=seed)
    src, dst = world.traffic.qp_src, world.traffic.qp_dst
    found = [path(world, qp) for qp in range(1024) if src[qp] // 16 != dst[qp] // 16]
    planes = np.bincount([hops.plane for hops in found], minlength=8)
    uplinks = np.bincount([hops.up0 for hops in found], minlength=16)
    for counts in (planes, uplinks):
        mean = len(found) / len(counts)
        chi_square = float(((counts - mean) ** 2 / mean).sum())
        assert chi_square < 3 * len(counts)  # at random it is about len(counts) - 1
    all_complete(world)


def test_hashes_spread_over_the_top_of_three_tiers() -> None:
    world = world_of(tree(), permutation(64, 4096, 1, channels=16), paths="single")
    src, dst = world.traffic.qp_src, world.traffic.qp_dst
    tops = [path(world, qp) for qp in range(1024) if src[qp] // 16 != dst[qp] // 16]
    counts = np.bincount([4 * hops.up0 + hops.up1 for hops in tops], minlength=16)
    mean = len(tops) / 16
    assert float(((counts - mean) ** 2 / mean).sum()) < 48


def test_collisions_cost_what_spraying_does_not() -> None:
    fabric, traffic = clos(nics=32), permutation(32, 4_000_000, 1)
    worst = {}
    for paths in ("mrc", "oblivious", "single"):
        world = all_complete(world_of(fabric, traffic, paths=paths))
        worst[paths] = int(world.flows()["done_ps"].max())
    assert worst["single"] > 6 * worst["mrc"]  # one port of eight, shared by some
    assert worst["mrc"] <= worst["oblivious"] * 1.01
