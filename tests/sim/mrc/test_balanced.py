"""MRC over switches that balance: an EV names its plane, and no path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.engine.ev import ASSUMED_BAD, DENIED
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.sim.world import World
from openmrc.workload.patterns import permutation, stream
from tests.sim.lab import MS, US, all_complete, clos, evs, world_of

N = 400  # packets of a message
AT = 20 * US


def balanced(fabric: Fabric, *more: Any, **keys: Any) -> World:
    """A world of MRC without carriers, over switches that balance."""
    return world_of(fabric, *more, srv6=False, **{"routing": "adaptive"} | keys)


def sent(world: World, nic: int = 0) -> list[int]:
    """Packets that the T0 of a NIC has sent by each of its uplinks."""
    t0 = int(world.fabric.port_peer_switch[world.fabric.nic_port(nic, 0)])
    first = int(world.fabric.sw_first_up[t0])
    uplinks = slice(first, first + int(world.fabric.sw_n_up[t0]))
    return [int(n) for n in world.net.port.sent_packets[uplinks]]


def test_one_ev_takes_every_path() -> None:
    """Hashed, all its packets would cross one uplink."""
    one: dict[str, Any] = {"evs_active": 1, "evs_backup": 0}
    fabric = clos(nics=8, planes=1, down=4, up=4)
    world = all_complete(balanced(fabric, stream(0, 7, N * 4096), **one))
    hashed = all_complete(
        world_of(fabric, stream(0, 7, N * 4096), srv6=False, **one)  # switches hash
    )
    assert min(sent(world)) > N / 8
    assert sorted(sent(hashed))[:3] == [0, 0, 0]
    assert sum(sent(world)) == sum(sent(hashed)) > N  # probes, too


def test_a_switch_leaves_its_own_dead_port_at_once() -> None:
    cut = [Fault(AT, "link-down", "plane 0 t0 0 - t1 0", for_ps=20 * US)]
    fabric = clos(nics=4, planes=1, down=2, up=2)
    c = all_complete(balanced(fabric, stream(0, 3, N * 4096), cut)).counters()
    # what was in flight to the T1, 840 ns of packets of 340 ns; beyond the other T0, which knows
    # nothing, answers are lost
    assert c["retransmitted"] - c["duplicates"] <= 3 < c["dropped_fault"]


@pytest.mark.parametrize("converges", [30 * US, 300 * MS])
def test_what_is_dead_beyond_costs_its_share_until_routing_knows(converges: int) -> None:
    """Every second packet is lost, whichever its EV: no EV is better than another."""
    dead = [Fault(AT, "link-down", "plane 0 t0 1 - t1 0")]
    fabric = clos(nics=4, planes=1, down=2, up=2)
    world = balanced(fabric, stream(0, 3, 10 * N * 4096), dead, convergence_ps=converges)
    all_complete(world)
    c = world.counters()
    beside = sent(world)
    if converges == 30 * US:
        assert c["dropped_fault"] < 100
        assert beside[1] / sum(beside) > 0.9  # the T1 that still leads there
    else:
        assert c["dropped_fault"] > 0.4 * (10 * N - 100)
        assert beside[1] / sum(beside) == pytest.approx(0.5, abs=0.05)
        assert {int(e) for e in np.asarray(evs(world).state)} != {ASSUMED_BAD}


def test_denials_are_routed_around_and_a_denied_plane_is_left() -> None:
    fabric = clos(nics=4, planes=2, down=2, up=2)
    denied = [
        Fault(0, "deny", "plane 0 t1 0", nics="0-3"),
        Fault(0, "deny", "plane 1", nics="0-3"),
    ]
    world = balanced(fabric, stream(0, 3, N * 4096), denied, convergence_ps=0)
    all_complete(world)
    over_denied, over_other = sent(world)
    assert over_denied == 0
    assert over_other >= N
    of_planes = np.asarray(evs(world).plane), np.asarray(evs(world).state)
    assert {(int(p), bool(s == DENIED)) for p, s in zip(*of_planes, strict=True)} == {
        (0, False),
        (1, True),
    }


def test_shards_and_looking_change_nothing() -> None:
    fabric = clos(nics=8, planes=2, down=2, up=4)
    cut = [Fault(5 * US, "link-down", "plane 0 t0 1 - t1 0", for_ps=40 * US)]

    def run(threads: int, sampled: bool) -> tuple[Any, ...]:
        world = balanced(
            fabric,
            permutation(8, 400_000, 3),
            cut,
            convergence_ps=10 * US,
            shards=3,
            threads=threads,
        )
        if sampled:
            world.sample(None, 20)
        all_complete(world)
        return world.counters(), world.flows()["done_ps"].tolist(), world.now_ps

    assert run(1, False) == run(3, True)
