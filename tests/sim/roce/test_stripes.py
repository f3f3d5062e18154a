"""Messages striped over several queue pairs: parts, order, releases, series."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault
from openmrc.run.perfect import perfect_ps
from openmrc.sim.net import state as ss
from openmrc.traffic.traffic import make_traffic, unroll
from openmrc.workload import permutation, ring_all_reduce, stream
from tests.sim.lab import MS, US
from tests.sim.roce.lab import all_complete, balanced, leaf_spine, roce, roce_world, side, way


@pytest.mark.parametrize(("size", "qps"), [(1_000_003, 4), (4096 * 7, 7), (5, 8), (1, 64)])
def test_a_message_is_cut_in_equal_parts_to_the_byte(size: int, qps: int) -> None:
    world = roce_world(leaf_spine(), stream(0, 7, size), qps=qps)
    world.run(until_ps=0)
    here = side(world)
    ends = here.ends.sender
    parts = [here.engine.message[int(here.state.qp.msg0[end])] for end in ends]
    lengths = [int(part.length) for part in parts]
    assert sum(lengths) == size
    assert max(lengths) - min(lengths) <= 1
    addresses = [int(part.remote_va) for part in parts]
    assert [b - a for a, b in pairwise(addresses)] == lengths[:-1]
    all_complete(world)
    assert world.counters()["data"] == sum(-(-n // 4096) for n in lengths)


@pytest.mark.parametrize("size", [1, 5, 4096, 32_768, 32_769, 100_000])
@pytest.mark.parametrize("qps", [1, 3, 8])
def test_no_striped_message_beats_the_time_on_a_perfect_network(size: int, qps: int) -> None:
    """Small parts take several planes and are stored for a shorter time than full packets."""
    fabric = multiplane(16, 4, 100 * 10**9, 8, 8, 500_000, 250_000)
    world = all_complete(roce_world(fabric, stream(0, 15, size), qps=qps))
    took = int(world.flows()["done_ps"][0])
    assert took >= perfect_ps(fabric, world.traffic, world.transport)


def test_a_message_is_done_when_its_slowest_part_is() -> None:
    """All packets of one part are held up by a lossy uplink; its timer ends the message."""
    world = roce_world(leaf_spine(), stream(0, 7, 400_000), qps=2)
    world.run(until_ps=0)
    ways = [way(world, 0, k) for k in range(2)]
    assert ways[0][1] != ways[1][1], "the seed puts both on one uplink"
    name = world.fabric.port_name(ways[1][1])
    fault = Fault(0, "link-loss", name, rate=1.0, for_ps=500 * US)
    slow = all_complete(
        roce_world(leaf_spine(), stream(0, 7, 400_000), [fault], qps=2, rto_ps=1 * MS)
    )
    quick = all_complete(roce_world(leaf_spine(), stream(0, 7, 400_000), qps=2))
    assert int(quick.flows()["done_ps"][0]) < 50 * US
    assert int(slow.flows()["done_ps"][0]) > 1 * MS
    assert roce(slow)["timeouts"] == 1
    assert slow.counters()["retransmitted"] == 49  # the packets of 200,000 B


def test_immediates_are_delivered_in_the_order_of_posting() -> None:
    """Message 1 is small and has a part on one QP only; it may not overtake message 0."""
    traffic = make_traffic(
        "two",
        8,
        [0, 7],
        [7, 0],
        [0, 0, 1, 1],
        [1_000_000, 1, 100, 100],
        recv=([0, 1], [2, 3]),
        imm=np.array([True, True, False, False]),
    )
    world = all_complete(roce_world(leaf_spine(), traffic, qps=4))
    flows = world.flows()
    assert flows["delivered_ps"][1] < flows["delivered_ps"][0]  # it lies in memory before
    assert flows["start_ps"][3] == flows["start_ps"][2] == flows["delivered_ps"][0]


def test_without_immediates_each_message_tells_by_itself() -> None:
    traffic = make_traffic(
        "two", 8, [0, 7], [7, 0], [0, 0, 1, 1], [1_000_000, 1, 100, 100], recv=([0, 1], [2, 3])
    )
    world = all_complete(roce_world(leaf_spine(), traffic, qps=4))
    flows = world.flows()
    assert flows["start_ps"][3] == flows["delivered_ps"][1] < flows["start_ps"][2]


@pytest.mark.parametrize("qps", [1, 3])
def test_a_series_runs_as_its_list_does(qps: int) -> None:
    ring = ring_all_reduce(8, 300_001)
    series = all_complete(roce_world(leaf_spine(), ring, qps=qps))
    listed = all_complete(roce_world(leaf_spine(), unroll(ring), qps=qps))
    assert int(series.flows()["done_ps"].max()) == int(listed.flows()["done_ps"].max())
    assert series.counters() == listed.counters()


def test_more_messages_than_a_send_queue_holds() -> None:
    n = 300
    traffic = make_traffic("many", 8, [0], [7], np.zeros(n, int), np.arange(1, n + 1) * 100)
    world = all_complete(roce_world(leaf_spine(), traffic, qps=3))
    assert np.all(np.diff(world.flows()["delivered_ps"]) >= 0)


def test_one_dead_queue_pair_fails_the_messages_of_its_bundle() -> None:
    world = roce_world(leaf_spine(), stream(0, 7, 400_000), qps=2)
    world.run(until_ps=0)
    fault = Fault(0, "link-loss", world.fabric.port_name(way(world, 0, 1)[1]), rate=1.0)
    world = roce_world(
        leaf_spine(), stream(0, 7, 400_000), [fault], qps=2, rto_ps=100 * US, retry_cnt=1
    )
    world.run()
    balanced(world)
    assert world.errors() == ["retry counter exceeded"]
    assert len(world.qp_errors()) == 1
    assert world.net.message.fate.tolist() == [ss.FAILED]


def test_several_flows_of_a_nic_take_turns() -> None:
    world = roce_world(
        leaf_spine(), permutation(8, 2_000_000, 1, channels=4), qps=2, cc="none", stop=100 * US
    )
    world.run()
    sent = side(world).state.qp.high[side(world).ends.sender].reshape(-1, 8)
    assert (sent.max(axis=1) - sent.min(axis=1) <= 1).all()
