"""NICs that place packets as they come: what is sent again when some are lost, and when."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from tests.sim.lab import MS, US
from tests.sim.roce.lab import (
    all_complete,
    leaf_spine,
    lose,
    roce,
    roce_world,
    start_of,
    stream_world,
)
from tests.sim.roce.test_connection import ACK_TRIP, DATA_TRIP, FROM_SENDER, SHADOW, TO_SENDER

N = 100


def world_that_loses(*packets: int, **more: Any) -> World:
    """A stream of which some packets are lost on their first link."""
    faults = [lose(FROM_SENDER, start_of(packet)) for packet in packets]
    return all_complete(stream_world(N, faults, cc="none", routing="spray", **more))


def test_without_a_loss_it_takes_as_long_as_in_order() -> None:
    world = world_that_loses()
    flows = world.flows()
    assert int(flows["delivered_ps"][0]) == start_of(N - 1) + DATA_TRIP + SHADOW
    assert int(flows["done_ps"][0]) == start_of(N - 1) + DATA_TRIP + SHADOW + ACK_TRIP
    assert (roce(world)["acks"], world.counters()["retransmitted"]) == (N // 4, 0)


@pytest.mark.parametrize("lost", [(50,), (50, 51), (20, 30, 31, 32, 45)])
def test_what_is_lost_is_sent_again_and_nothing_else(lost: tuple[int, ...]) -> None:
    world = world_that_loses(*lost)
    c = world.counters()
    assert c["retransmitted"] == roce(world)["naks"] == len(lost)
    assert c["duplicates"] == c["timeouts"] == roce(world)["discarded"] == 0
    # it takes the time of the packets that went twice, and no more
    end = start_of(N - 1 + len(lost)) + DATA_TRIP
    assert int(world.flows()["delivered_ps"][0]) == end


def test_a_report_waits_as_long_as_packets_may_be_late() -> None:
    """With little to send behind the gap, the report's own wait shows."""
    lost, wait = N - 2, 7 * US
    world = world_that_loses(lost, reordering_ps=wait)
    heard = start_of(N - 1) + DATA_TRIP + wait + ACK_TRIP
    assert int(world.flows()["delivered_ps"][0]) == heard + DATA_TRIP


@pytest.mark.parametrize("tail", [1, 2, 5])
def test_of_a_lost_tail_the_timer_sends_the_last_packet_and_reports_the_others(tail: int) -> None:
    world = world_that_loses(*range(N - tail, N), rto_ps=1 * MS, rto_first_ps=100 * US)
    c = world.counters()
    assert c["timeouts"] == 1
    assert c["retransmitted"] == tail
    assert roce(world)["naks"] == tail - 1
    assert c["duplicates"] == 0


def test_with_the_timer_alone_it_goes_back_to_the_oldest() -> None:
    world = world_that_loses(50, recovery="timer", rto_ps=1 * MS, rto_first_ps=100 * US)
    c = world.counters()
    assert (c["timeouts"], roce(world)["naks"]) == (1, 0)
    assert 0 < c["duplicates"] < c["retransmitted"] < N - 50
    assert 100 * US < int(world.flows()["delivered_ps"][0]) < 150 * US


def test_a_lost_report_is_repeated() -> None:
    at = start_of(51) + DATA_TRIP + SHADOW + 10 * US
    lost_report = Fault(at - 1 * US, "link-loss", TO_SENDER, rate=1.0, for_ps=2 * US)
    faults = [lose(FROM_SENDER, start_of(50)), lost_report]
    world = all_complete(stream_world(N, faults, cc="none", routing="spray", reordering_ps=10 * US))
    assert roce(world)["naks"] == 2
    assert world.counters()["retransmitted"] == 1


def test_a_message_is_whole_when_all_its_packets_are_there() -> None:
    """The second one overtakes the gap in the first."""
    traffic = make_traffic("series", 8, [0], [7], [0, 0], [50 * 4096, 4096])
    fault = lose(FROM_SENDER, start_of(10))
    world = all_complete(roce_world(leaf_spine(), traffic, [fault], cc="none", routing="spray"))
    first, second = world.flows()["delivered_ps"]
    heard = start_of(11) + DATA_TRIP + world.values.base_rtt_ps + ACK_TRIP
    assert first == heard + DATA_TRIP
    assert second < first
