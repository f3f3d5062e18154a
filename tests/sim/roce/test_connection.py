"""A reliable connection and what it does when one packet is lost, in exact figures."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.engine import state as es
from openmrc.fabric.faults import Fault
from openmrc.sim.roce.transport import RTO_FIRST_PS, RTO_PS
from openmrc.workload.patterns import stream
from tests.sim.lab import MS, NS, US
from tests.sim.roce.lab import (
    ACK,
    FIRST,
    FRAME,
    WAY,
    all_complete,
    balanced,
    leaf_spine,
    lose,
    roce,
    roce_world,
    sender,
    start_of,
    stream_world,
)

N = 100  # packets of a message
TO_SENDER = "nic 7 plane 0 > t0"
FROM_SENDER = "nic 0 plane 0 > t0"
DATA_TRIP = 4 * FRAME + WAY
ACK_TRIP = 4 * ACK + WAY
# All that follow the first packet, which is longer, wait behind it at each of three switches; not
# so what comes behind a gap.
SHADOW = 3 * (FIRST - FRAME)
RTO = 1 * MS


def test_a_message_takes_its_frames_and_one_way_there_and_back() -> None:
    world = all_complete(stream_world(N, cc="none"))
    flows = world.flows()
    assert int(flows["delivered_ps"][0]) == start_of(N - 1) + DATA_TRIP + SHADOW
    assert int(flows["done_ps"][0]) == start_of(N - 1) + DATA_TRIP + SHADOW + ACK_TRIP
    c = world.counters()
    assert (c["data"], c["retransmitted"], roce(world)["acks"]) == (N, 0, N // 4)
    assert c["link_traversals"] == 4 * (N + N // 4)


@pytest.mark.parametrize(("every", "acks"), [(1, 100), (16, 7), (1000, 1)])
def test_acknowledgements_come_every_so_many_packets_and_at_the_end(every: int, acks: int) -> None:
    assert roce(all_complete(stream_world(N, ack_every=every)))["acks"] == acks


def test_one_lost_packet_and_all_that_left_until_the_nak_came_go_again() -> None:
    lost = 50
    world = all_complete(stream_world(N, [lose(FROM_SENDER, start_of(lost))], cc="none"))
    # the packet behind it arrives and is answered; those that began to leave meanwhile
    heard = start_of(lost + 1) + DATA_TRIP + ACK_TRIP
    behind = (heard - start_of(lost + 1)) // FRAME
    assert behind == 20
    c, r = world.counters(), roce(world)
    assert c["retransmitted"] == 1 + 1 + behind
    assert r["discarded"] == 1 + behind
    assert (r["naks"], r["go_backs"], r["timeouts"], c["dropped_fault"]) == (1, 1, 0, 1)
    again = start_of(lost + 2 + behind) + (N - 1 - lost) * FRAME  # when the last one leaves
    assert int(world.flows()["done_ps"][0]) == again + DATA_TRIP + ACK_TRIP
    assert world.flows()["retransmitted"].tolist() == [22]


def test_a_lost_acknowledgement_costs_a_timeout_and_what_left_until_the_next_one() -> None:
    """One acknowledgement for the message; the timer runs from the first packet."""
    at = start_of(N - 1) + DATA_TRIP + SHADOW
    world = all_complete(
        stream_world(N, [lose(TO_SENDER, at)], cc="none", ack_every=1000, rto_ps=RTO)
    )
    trip = 4 * FIRST + WAY + ACK_TRIP  # of the first packet, a duplicate, and its answer
    behind = 1 + (trip - FIRST) // FRAME
    c, r = world.counters(), roce(world)
    assert c["retransmitted"] == 1 + behind == 21
    # when the answer to the first is there, and the run over, so many more have come
    assert (r["timeouts"], c["duplicates"], r["naks"]) == (1, 1 + ACK_TRIP // FRAME, 0)
    assert int(world.flows()["done_ps"][0]) == RTO + trip
    assert int(world.flows()["delivered_ps"][0]) == at


def test_a_lost_nak_is_not_repeated_and_costs_a_timeout() -> None:
    lost = 50
    at = start_of(lost + 1) + DATA_TRIP
    faults = [lose(FROM_SENDER, start_of(lost)), lose(TO_SENDER, at)]
    world = all_complete(stream_world(N, faults, cc="none", rto_ps=RTO))
    c, r = world.counters(), roce(world)
    assert (r["naks"], r["go_backs"], r["timeouts"]) == (1, 0, 1)
    assert r["discarded"] == N - 1 - lost  # all that came behind the gap
    # packets 48 and 49 were accepted and not yet acknowledged: they go again too
    assert c["retransmitted"] == N - 48
    assert c["duplicates"] == 2
    progress = start_of(47) + DATA_TRIP + SHADOW + ACK_TRIP  # the acknowledgement of 44 to 47
    done = progress + RTO + (N - 1 - 48) * FRAME + DATA_TRIP + ACK_TRIP
    assert int(world.flows()["done_ps"][0]) == done


def test_what_nobody_comes_behind_costs_a_timeout() -> None:
    """The last packet: no gap is seen."""
    world = all_complete(
        stream_world(N, [lose(FROM_SENDER, start_of(N - 1))], cc="none", rto_ps=RTO)
    )
    c, r = world.counters(), roce(world)
    assert (r["naks"], r["timeouts"], c["duplicates"]) == (0, 1, 3)
    assert c["retransmitted"] == 4  # since the acknowledgement of packet 95


def test_a_nak_for_each_gap() -> None:
    """Two gaps in one round trip: the second is seen when the first has been filled."""
    faults = [lose(FROM_SENDER, start_of(50)), lose(FROM_SENDER, start_of(60))]
    world = all_complete(stream_world(N, faults, cc="none"))
    r = roce(world)
    assert (r["naks"], r["timeouts"]) == (1, 0)  # 60 was sent again with all behind 50
    assert world.counters()["retransmitted"] == 22


def test_retries_are_used_up_by_silence_and_the_queue_pair_fails() -> None:
    silent = Fault(0, "switch-silent", "plane 0 t1 *")
    world = stream_world(10, [silent], cc="none", rto_ps=RTO, retry_cnt=3)
    world.run()
    balanced(world)
    q = world.engine.qp[int(world.ends.sender[0])]
    assert (int(q.state), int(q.error)) == (es.ERROR, es.RETRY_EXCEEDED)
    assert int(q.error_at) == (1 + 3) * RTO
    assert world.errors() == ["retry counter exceeded"]
    assert world.qp_errors() == [
        f"QP {int(q.qpn):#08x} of nic 0 to nic 7: retry counter exceeded at 4000.0 us"
    ]
    assert world.flows()["failed"].tolist() == [True]
    assert world.counters()["retransmitted"] == 3 * 10
    assert roce(world)["timeouts"] == 4


def test_timers_begin_short_and_double_and_the_short_ones_cost_one_retry() -> None:
    """At 125, 375 and 875 us: together one retry. Then after 1 ms each."""
    silent = Fault(0, "switch-silent", "plane 0 t1 *")
    first = RTO // 8
    world = stream_world(10, [silent], cc="none", rto_ps=RTO, rto_first_ps=first, retry_cnt=2)
    for at, retries in ((1, 0), (3, 0), (7, 1), (15, 2)):
        world.run(until_ps=at * first - 1)
        before = roce(world)["timeouts"]
        world.run(until_ps=at * first)
        assert roce(world)["timeouts"] == before + 1
        assert int(sender(world).retries) == retries
    world.run()
    balanced(world)
    assert world.errors() == ["retry counter exceeded"]
    assert int(world.engine.qp.error_at.max()) == 3 * RTO - first
    assert (roce(world)["timeouts"], world.counters()["retransmitted"]) == (5, 4 * 10)


def test_by_default_a_lost_end_costs_the_first_timer_and_progress_makes_it_short_again() -> None:
    world = all_complete(stream_world(N, [lose(FROM_SENDER, start_of(N - 1))], cc="none"))
    assert roce(world)["timeouts"] == 1
    done = int(world.flows()["done_ps"][0])
    assert RTO_FIRST_PS < done < RTO_FIRST_PS + start_of(N) + 2 * (DATA_TRIP + ACK_TRIP)
    assert int(sender(world).timer_ps) == RTO_FIRST_PS


def test_no_timer_is_longer_than_rto() -> None:
    assert int(sender(stream_world(N, rto_ps=RTO)).timer_ps) == RTO
    assert int(sender(stream_world(N)).timer_ps) == RTO_FIRST_PS < RTO_PS


def test_progress_gives_all_retries_back() -> None:
    """More losses than retries, each followed by progress."""
    flaky = Fault(0, "link-loss", "nic 0 plane 0 > t0", rate=0.2)
    world = all_complete(stream_world(300, [flaky], cc="none", rto_ps=50 * US, retry_cnt=7))
    assert roce(world)["go_backs"] + roce(world)["timeouts"] > 7
    assert sender(world).retries == 0


def test_a_dead_port_of_the_nic_is_a_silence_too() -> None:
    down = Fault(0, "port-down", "nic 0 plane 0")
    world = stream_world(10, [down], rto_ps=RTO, retry_cnt=2)
    world.run()
    assert world.errors() == ["retry counter exceeded"]
    assert int(world.engine.qp.error_at.max()) == 3 * RTO


def test_a_damaged_packet_is_a_lost_one() -> None:
    damage = Fault(start_of(50) - 25 * NS, "link-corrupt", FROM_SENDER, rate=1.0, for_ps=50 * NS)
    world = all_complete(stream_world(N, [damage], cc="none"))
    c = world.counters()
    assert (c["dropped_corrupt"], c["retransmitted"], roce(world)["naks"]) == (1, 22, 1)


def test_packet_numbers_wrap() -> None:
    """24 bits: the first PSN is drawn, here near the end."""
    world = stream_world(N, [lose(FROM_SENDER, start_of(50))], cc="none")
    side = world.side
    side.state.qp.first_psn[:] = (1 << 24) - 40
    all_complete(world)
    assert world.counters()["retransmitted"] == 22


@pytest.mark.parametrize("size", [1, 4096, 4097])
def test_small_messages(size: int) -> None:
    world = all_complete(roce_world(leaf_spine(), stream(0, 7, size)))
    assert world.counters()["data"] == -(-size // 4096)
    flows = world.flows()
    last = size - (size - 1) // 4096 * 4096
    frame = (last + 82 + (16 if size <= 4096 else 0)) * 80
    begin = 0 if size <= 4096 else FIRST
    assert int(flows["delivered_ps"][0]) >= begin + 4 * frame + WAY
    assert np.diff([flows["delivered_ps"][0], flows["done_ps"][0]])[0] == ACK_TRIP
