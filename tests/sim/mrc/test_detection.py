"""How fast a fault is found and walked around, and that nothing healthy is mistaken for one.

T is the base round trip. A fault is found when no EV over it is in service any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from openmrc.engine.ev import ASSUMED_BAD
from openmrc.fabric.clos import fat_tree
from openmrc.fabric.faults import Fault
from openmrc.fabric.model import Fabric
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.workload.patterns import incast, permutation
from tests.sim.lab import (
    ENDLESS,
    GBPS,
    MS,
    NS,
    STEADY_FROM,
    all_complete,
    clos,
    conserved,
    dip_us,
    evs,
    evs_over,
    faulty_ports,
    first_loss,
    gbps_of,
    goodput_gbps,
    in_service,
    plane_turns,
    rtt,
    run_until,
    sender,
    stream_world,
    tree,
    world_of,
)

CUT = 1 * MS
END = 3 * MS
FOUND_WITHIN = 3  # base round trips
DIP_MAX_US = 100

FABRICS = {
    "8 x 100G": clos(),
    "8 x 100G, more paths than EVs": clos(nics=64, down=32, up=32),
    "three tiers": tree(),
}
# T1 {t1} is on the first path of plane 0, T2 {t2} too
FAULTS = {
    "cut": Fault(CUT, "link-down", "plane 0 t0 0 - t1 {t1}"),
    "losing everything upwards": Fault(CUT, "link-loss", "plane 0 t0 0 > t1 {t1}", rate=1.0),
    "cut upwards only": Fault(CUT, "link-down", "plane 0 t0 0 > t1 {t1}"),
    "switch silent": Fault(CUT, "switch-silent", "plane 0 t1 {t1}"),
    "switch down": Fault(CUT, "switch-down", "plane 0 t1 {t1}"),
}
TOP_FAULTS = {
    "top cut": Fault(CUT, "link-down", "plane 0 t1 {t1} - t2 *"),
    "top losing everything": Fault(CUT, "link-loss", "plane 0 t1 {t1} > t2 {t2}", rate=1.0),
    "top silent": Fault(CUT, "switch-silent", "plane 0 t2 {t2}"),
}
STORIES = [
    *((fabric, fault) for fabric in FABRICS for fault in FAULTS),
    *(("three tiers", fault) for fault in TOP_FAULTS),
]


def faulty_stream(fabric: Fabric, fault: Fault, **more: Any) -> World:
    """A stream whose first path of plane 0 runs into the fault."""
    hops = fabric.hops(int(evs(stream_world(fabric, **more))[0].value))
    t2 = hops.up0 * 4 + hops.up1
    where = fault.place.format(t1=hops.up0, t2=t2)
    return stream_world(fabric, [replace(fault, where=where)], **more)


def time_to_find(world: World, cut: int = CUT) -> float:
    """From the first lost packet until no EV over the fault is in service, in base round trips."""
    world.run(until_ps=cut)
    dead = evs_over(world, faulty_ports(world))
    assert dead.any()
    step = rtt(world) // 20
    found = run_until(world, lambda: not in_service(world)[dead].any(), step, cut + 40 * rtt(world))
    return (found - first_loss(world)) / rtt(world)


@pytest.mark.parametrize(("fabric", "fault"), STORIES)
def test_a_dead_path_is_left_within_three_round_trips_and_nobody_notices(
    fabric: str, fault: str
) -> None:
    world = faulty_stream(FABRICS[fabric], (FAULTS | TOP_FAULTS)[fault], stop=END)
    world.run(until_ps=CUT)
    before = goodput_gbps(world, STEADY_FROM, CUT)
    assert time_to_find(world) <= FOUND_WITHIN
    world.run()
    dead = evs_over(world, faulty_ports(world))
    # to the end: nobody answers there
    assert (evs(world)["state"][dead] == ASSUMED_BAD).all()
    assert not in_service(world)[dead].any()
    assert in_service(world).sum() == min(128, len(dead) - dead.sum())
    assert dip_us(world, before, CUT, END) < DIP_MAX_US
    assert goodput_gbps(world, CUT + 1 * MS, END) == pytest.approx(before, abs=0.5)
    assert world.bytes_wrong == 0
    conserved(world)


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_cut_is_found_whatever_the_seed(seed: int) -> None:
    world = faulty_stream(clos(), FAULTS["cut"], stop=END, seed=seed)
    assert time_to_find(world) <= FOUND_WITHIN


@pytest.mark.parametrize("seed", range(1, 21))
def test_one_plane_finds_a_cut_that_takes_the_way_back_too(seed: int) -> None:
    """A quarter of all paths goes at once, in both directions, and there is one plane: where the
    only reverse EV is over the cut, no SACK comes until a probe of the receiver finds another or
    the RTO ends the silence. The bar of three round trips is for fabrics of several planes.
    """
    cut = CUT + seed * 1_234_567  # the reverse path changes from time to time
    fault = Fault(cut, "link-down", f"plane 0 t0 0 - t1 {seed % 4}")
    world = stream_world(tree(), [fault], stop=END, seed=seed)
    by_the_rto = world.values.rto_ps / rtt(world) + 3
    assert time_to_find(world, cut) <= by_the_rto
    world.run()
    assert world.bytes_wrong == 0


def test_a_backup_of_the_same_plane_takes_the_place_of_a_dead_path() -> None:
    world = faulty_stream(FABRICS["8 x 100G, more paths than EVs"], FAULTS["cut"], stop=END)
    time_to_find(world)
    active = np.bincount(evs(world).plane, in_service(world), 8)
    assert active.tolist() == [16] * 8  # as before: 128 over 8 planes


@pytest.mark.parametrize("nic", [0, 7])
def test_four_of_eight_ports_down_leave_half(nic: int) -> None:
    faults = [Fault(CUT, "port-down", f"nic {nic} plane {p}", for_ps=1 * MS) for p in range(4)]
    world = stream_world(faults=faults, stop=4 * MS)
    world.run()
    before = goodput_gbps(world, STEADY_FROM, CUT)
    half = goodput_gbps(world, CUT + 100_000_000, CUT + 1 * MS)
    assert 100 * half / before == pytest.approx(50, abs=2)
    back = goodput_gbps(world, 3 * MS, 4 * MS)
    assert back == pytest.approx(before, abs=0.5)
    assert dip_us(world, half, CUT, CUT + 1 * MS) < DIP_MAX_US
    assert dip_us(world, before, 2 * MS, 4 * MS) < DIP_MAX_US
    assert world.counters()["assumed_bad"] == 0  # the ports were down, no path was to blame


@pytest.mark.parametrize("where", ["plane 3 t0 *", "plane 3 t1 *", "plane 3 t0 1"])
def test_a_plane_that_is_silently_dead_gets_no_turn_and_costs_an_eighth(where: str) -> None:
    world = stream_world(faults=[Fault(CUT, "switch-silent", where)], stop=END)
    world.run(until_ps=CUT)
    before = goodput_gbps(world, STEADY_FROM, CUT)
    assert time_to_find(world) <= FOUND_WITHIN
    turns = plane_turns(world)[3]
    assert int(sender(world).planes_ok) == 0b1111_0111
    world.run()
    assert plane_turns(world)[3] == turns
    after = goodput_gbps(world, CUT + 1 * MS, END)
    assert 100 * after / before == pytest.approx(87.5, abs=2)
    assert dip_us(world, after, CUT, END) < DIP_MAX_US
    assert world.engine.nic.up_mask.tolist() == [0xFF] * 8  # no port was ever down
    others = [n for p, n in enumerate(plane_turns(world)) if p != 3]
    assert max(others) - min(others) <= 0.01 * max(others)


def test_a_plane_comes_back_when_it_forwards_again() -> None:
    faults = [Fault(CUT, "switch-silent", "plane 3 t1 *", for_ps=1 * MS)]
    world = stream_world(faults=faults, stop=4 * MS)
    world.run()
    before = goodput_gbps(world, STEADY_FROM, CUT)
    assert goodput_gbps(world, 3 * MS, 4 * MS) == pytest.approx(before, abs=0.5)
    assert in_service(world).all()
    assert world.counters()["revived"] == 8  # every path of the plane


# --- what is marked again and again is left as well


@pytest.mark.parametrize(("up", "active", "backup"), [(2, 1, 1), (3, 2, 1), (4, 1, 3)])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_two_flows_whose_paths_collide_part(up: int, active: int, backup: int, seed: int) -> None:
    """Each alone fills a line. With one path in use and one spare, seeds 1, 2 and 5 collide."""
    both = make_traffic("two", 4, [0, 1], [2, 3], [0, 1], ENDLESS)
    world = world_of(
        clos(nics=4, planes=1, down=2, up=up),
        both,
        seed=seed,
        stop=3 * MS,
        evs_active=active,
        evs_backup=backup,
    )
    world.run()
    lines = 2 * 100 * 4096 / 4262
    assert goodput_gbps(world, 1 * MS, 3 * MS) > 0.98 * lines


# --- nothing healthy is mistaken for a fault --------------------------------------------------


def wide_tree() -> Fabric:
    """Three tiers in which an 8:1 incast meets no other bottleneck than the last hop."""
    return fat_tree(64, 100 * GBPS, 16, 16, 500 * NS, 250 * NS, tiers=3, t1_down=2, t1_up=2)


INCASTS = {
    "8 x 100G": clos(nics=16),
    "one plane": clos(nics=32, planes=1),
    "three tiers": wide_tree(),
}


@pytest.mark.parametrize("name", INCASTS)
def test_an_incast_of_eight_trims_little_keeps_the_link_full_and_shares(name: str) -> None:
    fabric = INCASTS[name]
    line = 100 * fabric.n_planes * 4096 / 4262
    size = int(line * 1e9 / 8 * 0.012 / 8)  # for 12 ms, shared by eight
    end = 10 * MS
    world = world_of(fabric, incast(fabric.n_nics, 8, size, victim=True), stop=end)
    world.run(until_ps=5 * rtt(world))
    first = world.counters()
    world.run(until_ps=5 * MS)
    early = np.array([int(sender(world, qp).una) for qp in range(8)])
    world.run()
    last = world.counters()
    sent = last["data"] + last["retransmitted"] - first["data"] - first["retransmitted"]
    assert (last["trimmed"] - first["trimmed"]) / sent < 0.03
    shares = np.array([int(sender(world, qp).una) for qp in range(8)]) - early
    assert shares.max() < 2 * shares.min()
    assert gbps_of(int(shares.sum()) * 4096, end - 5 * MS) == pytest.approx(line, rel=0.01)
    assert world.bytes_wrong == 0
    conserved(world)
    # the victim, to an idle NIC on the same T0, loses nothing
    victim = sender(world, 8)
    receiver = world.engine.qp[int(world.ends.receiver[8])]
    assert (int(victim.n_rtx), int(receiver.n_nack), int(receiver.n_dup)) == (0, 0, 0)
    assert world.flows()["retransmitted"][8] == 0
    packets = -(-size // 4096)
    ideal = packets / fabric.n_planes * 4262 * 80
    assert world.flows()["done_ps"][8] < ideal * 1.02 + 2 * rtt(world)  # it had the line to itself


@pytest.mark.parametrize(
    "fabric", [clos(nics=32, down=8), clos(nics=128, planes=4, down=16, up=16), tree()]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_in_a_healthy_permutation_hardly_anything_is_sent_twice(fabric: Fabric, seed: int) -> None:
    world = all_complete(world_of(fabric, permutation(fabric.n_nics, 5_000_000, seed), seed=seed))
    c = world.counters()
    assert c["data"] > 30_000
    assert c["duplicates"] < c["data"] / 10_000
    assert c["dropped_fault"] == c["timeouts"] == 0


@pytest.mark.parametrize(
    ("fabric", "seed"), [(clos(), 1), (clos(), 2), (clos(planes=5), 3), (clos(up=24), 4)]
)
def test_planes_and_paths_are_used_equally(fabric: Fabric, seed: int) -> None:
    world = all_complete(stream_world(fabric, size=10_000 * 4096, seed=seed))
    turns = plane_turns(world)
    assert sum(turns) == world.counters()["data"] == 10_000
    mean = 10_000 / fabric.n_planes
    assert max(turns) - min(turns) <= 0.01 * mean
    e = evs(world)
    for plane in range(fabric.n_planes):
        used = e.used[(e.plane == plane) & (e.active == 1)]
        assert used.max() - used.min() <= 1  # row 13
    assert e.used[e.active == 0].sum() == 0


def test_three_tiers_use_all_paths_equally() -> None:
    world = all_complete(stream_world(tree(), size=10_000 * 4096))
    used = evs(world).used
    assert len(used) == 16
    assert used.max() - used.min() <= 1
