"""Pauses on links that break: what was held goes on, and no port stays silent for ever."""

from __future__ import annotations

import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.world import World
from tests.sim.lab import MS, US
from tests.sim.roce import worlds
from tests.sim.roce.lab import all_complete, roce, side

PORT = 1  # of NIC 1


def paused_at(world: World, port: int) -> bool:
    return bool(side(world).state.pause.paused_until[port] != 0)


def paused_for_the_first_time(port: int) -> int:
    """When, in whole microseconds."""
    probe = worlds.tight(cc="none")
    at = 0
    while not paused_at(probe, port):
        at += 1 * US
        probe.run(until_ps=at)
    return at


@pytest.mark.parametrize(
    "where", ["nic 1 plane 0 > t0", "nic 1 plane 0 - t0", "plane 0 t0 0 - t1 *"]
)
def test_a_paused_port_whose_link_goes_down_sends_again_when_it_is_back(where: str) -> None:
    """NIC 1 is held by its T0, as all senders of an incast are, when the link goes."""
    at = paused_for_the_first_time(PORT)
    fault = Fault(at, "link-down", where, for_ps=200 * US)
    world = worlds.tight([fault], cc="none", rto_ps=300 * US, convergence_ps=(0, 0), stop=50 * MS)
    world.run(until_ps=at - 1)
    assert where.startswith("plane") or paused_at(world, PORT)
    all_complete(world)
    assert roce(world)["pfc_drops"] == 0
    buffer = side(world).state.buffer
    assert buffer.used_bytes.tolist() == buffer.headroom_used_bytes.tolist() == [0] * len(buffer)


def test_what_leaves_as_a_pause_ends_with_its_link_is_lost_with_it() -> None:
    """The link goes, and with it the pause: a frame held back until then goes into nothing."""
    at = paused_for_the_first_time(PORT)
    world = worlds.tight([Fault(at, "link-down", "nic 1 plane 0 - t0")], cc="none", stop=50 * MS)
    world.run(until_ps=at - 1)
    sent, lost = world.counters()["data"], world.counters()["dropped_fault"]
    world.run(until_ps=at)
    assert world.counters()["data"] == sent + 1
    assert world.counters()["dropped_fault"] == lost + 1


def test_an_incast_on_lossless_links_loses_nothing_and_pauses_are_told() -> None:
    world = all_complete(worlds.tight(cc="none"))
    c, r = world.counters(), roce(world)
    assert (c["dropped_queue"], c["retransmitted"], r["timeouts"]) == (0, 0, 0)
    assert r["pauses"] > 0
    told = world.pauses()
    assert len(told) == min(r["paused_ports"], 10)
    assert [row["us"] for row in told] == sorted((row["us"] for row in told), reverse=True)
    assert int(told[0]["us"]) == r["pause_us_max"]
    paused_ps = side(world).paused_ps(world.now_ps)
    assert int(paused_ps.sum()) // US == r["pause_us"]
