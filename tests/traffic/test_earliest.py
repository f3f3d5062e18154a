"""The least time of workloads in which series, messages and computations wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric.clos import multiplane
from openmrc.traffic.earliest import Cost, earliest_ps, no_cost
from openmrc.traffic.ideal import costs, ideal_ps
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic, unroll
from openmrc.workload.layout import make_layout
from openmrc.workload.model import Sizes
from openmrc.workload.phases import Work
from openmrc.workload.training import training

US = 10**6
FABRIC = multiplane(16, 4, 10**11, 4, 4, 500_000, 250_000)


def wire(payload: int) -> int:
    return payload + 166


def costs_of(traffic: Traffic) -> Cost:
    return costs(FABRIC, traffic, wire, 4096, 178)


def test_a_computation_between_two_messages() -> None:
    traffic = make_traffic(
        "chain", 16, [0, 1], [1, 2], [0, 1], 4096, recv=([0, 2], [2, 1]), calcs=Calcs([9 * US])
    )
    posted, last = earliest_ps(traffic, costs_of(traffic), 4)
    across = 2 * 4262 * 80 + 1_250_000
    assert posted.tolist() == last.tolist() == [0, across + 9 * US, across]
    free, _ = earliest_ps(traffic, no_cost(traffic), 4)
    assert free.tolist() == [0, 9 * US, 0]


def test_many_that_arrive_at_one_nic_take_its_ports_in_turn() -> None:
    """What waits for fifteen arrivals of 40 packets waits for 600 packets over four ports."""
    n = 15
    traffic = make_traffic(
        "gather",
        16,
        np.arange(1, 16),
        np.zeros(n, int),
        np.arange(n),
        40 * 4096,
        recv=(np.arange(n), np.full(n, n)),
        calcs=Calcs([US]),
    )
    posted, _ = earliest_ps(traffic, costs_of(traffic), 4)
    lead = 4262 * 80 + 1_250_000  # of the nearest: two links, one switch, one serialisation
    assert posted[n] == lead + 600 * 4262 * 80 // 4


@pytest.mark.parametrize("late", [0, 3])
def test_a_ring_waits_for_its_latest_rank(late: int) -> None:
    """Each rank's gate opens at its own time; the sums of all need the last."""
    n = 4
    gates = np.zeros(n, np.int64)
    gates[late] = 100 * US
    ring = np.arange(n)
    traffic = make_traffic(
        "ring",
        16,
        ring,
        (ring + 1) % n,
        ring,
        4096,
        recv=(np.concatenate([ring, n + ring]), np.concatenate([(ring + 1) % n, ring])),
        deps=0,
        imm=True,
        count=2 * (n - 1),
        calcs=Calcs(gates),
    )
    posted, last = earliest_ps(traffic, costs_of(traffic), 4)
    across = 2 * 4262 * 80 + 1_250_000
    assert posted[:n].tolist() == gates.tolist()
    by_hand = [
        max(int(gates[(r - j) % n]) + j * across for j in range(2 * (n - 1))) for r in range(n)
    ]
    assert last[:n].tolist() == by_hand


@settings(max_examples=15)
@given(
    st.sampled_from([(2, 2, 2, 2), (4, 1, 1, 4), (1, 4, 2, 2), (3, 1, 1, 5), (4, 4, 1, 1)]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_a_series_bounds_as_its_messages_do(
    sizes: tuple[int, int, int, int], seed: int, free: bool
) -> None:
    tp, pp, ep, dp = sizes
    layout = make_layout(tp * pp * ep * dp, tp, pp, ep, dp)
    work = Work(
        steps=2,
        microbatches=3,
        layers=4,
        forward_ps=5 * US,
        backward_ps=10 * US,
        optimizer_ps=US,
        jitter=0.5,
        # blocks of a whole number of packets: the messages of a series are alike
        sizes=Sizes(tp=12 * 4096, pp=4096, ep=12 * 4096, dp=60 * 4096, expert=60 * 4096),
        bucket_bytes=10**5,
    )
    traffic = training(16, layout, work, seed)
    listed = unroll(traffic)
    ends = []
    for one in (traffic, listed):
        posted, _ = earliest_ps(one, no_cost(one) if free else costs_of(one), 4)
        ends.append((posted[one.n_msgs :] + one.calc_ps)[traffic.step_ends])
    # joins of series count from the first message, listed ones from the first of all: the same
    assert ends[0].tolist() == ends[1].tolist()
    if not free:
        assert ideal_ps(FABRIC, traffic, wire, 4096, 178) >= ends[0].max() - work.optimizer_ps
