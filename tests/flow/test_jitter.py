"""How late jitter makes messages: means that a formula gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.clos import multiplane
from openmrc.flow.world import FlowWorld
from openmrc.sim.mrc.transport import Transport
from openmrc.traffic.earliest import no_cost
from openmrc.traffic.traffic import make_traffic
from openmrc.units import MS, US

JITTER_PS = 10 * US
LINKS = 4  # from a NIC to one below another T0
N = 600


def late(planes: int, size: int, apart_ps: int) -> float:
    """How late messages from NIC 0 to NIC 2 are, a message every `apart_ps`, in jitters of a link:
    the mean.
    """
    fabric = replace(multiplane(4, planes, 10**14, 2, 2, 0, 0), jitter_ps=JITTER_PS)
    n = np.arange(N)
    traffic = make_traffic("jitter", 4, 0 * n, 0 * n + 2, n, size, n * apart_ps)
    world = FlowWorld(fabric, traffic, Transport(sack_bytes=1 << 20), cost=no_cost(traffic))
    assert world.run()
    flows = world.flows()
    return float((flows["delivered_ps"] - flows["start_ps"]).mean() / JITTER_PS)


def test_a_packet_alone_is_late_by_half_of_the_jitter_of_each_link() -> None:
    assert late(1, 4096, MS) == pytest.approx(LINKS / 2, rel=0.03)


def test_packets_that_follow_each_other_wait_for_the_latest_of_them() -> None:
    """Of n numbers the largest is n / (n + 1)."""
    assert late(1, 4 * 4096, MS) == pytest.approx(LINKS * 4 / 5, rel=0.03)


def test_a_message_that_is_sprayed_waits_for_its_slowest_plane() -> None:
    """The larger of two sums of four numbers, not the sum of the larger ones."""
    rng = np.random.default_rng(1)
    sums = rng.random((100_000, 2, LINKS)).sum(axis=2).max(axis=1)
    found = late(2, 2 * 4096, MS)
    assert found == pytest.approx(sums.mean(), rel=0.03)
    assert found < LINKS * 2 / 3


def test_packets_of_others_make_later_those_behind_them() -> None:
    """A packet is no earlier than any before it: with m packets in a jitter's time, on average,
    what is beyond x has the probability 1 - x exp(-m (1 - x)^2 / 2).
    """
    m = 4
    x = np.linspace(0, 1, 10_001)
    mean = np.trapezoid(1 - x * np.exp(-m * (1 - x) ** 2 / 2), x)
    found = late(1, 4096, JITTER_PS // m)
    assert found == pytest.approx(LINKS * mean, rel=0.05)
    assert found > 1.2 * LINKS / 2
