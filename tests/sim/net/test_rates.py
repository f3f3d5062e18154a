"""Rates over time: whose payload was placed, bin by bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.net.network import RATES_MAX
from openmrc.sim.roce.transport import RoceTransport
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from tests.sim import lab
from tests.sim.lab import MS, US

KINDS = (Transport, RoceTransport)


def world_of(n: int, size: int, kind: type, **more: Any) -> World:
    """`n` messages of one queue pair, and one of another that begins 100 us later."""
    src, dst = [0] * n + [1], [4] * n + [5]
    qp, start = [0] * n + [1], [0] * n + [100 * US]
    traffic = make_traffic("rates", 8, src, dst, qp, size, start)
    return lab.world_of(lab.clos(8, 1, 4, 4), traffic, kind=kind, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_each_flow_has_its_own_bytes_in_the_bins_in_which_they_came(kind: type) -> None:
    world = lab.all_complete(world_of(3, 400_000, kind))
    flow = world.placed()["flow"]
    assert flow.sum(axis=0).tolist() == [400_000] * 4
    assert flow.sum(axis=1).tolist() == world.timeline()["goodput_bytes"].tolist()
    for number, at in enumerate(world.flows()["delivered_ps"].tolist()):
        filled = np.flatnonzero(flow[:, number])
        assert filled[-1] == at // world.bin_ps
    assert np.flatnonzero(flow[:, 3])[0] == 10  # 100 us
    assert "job" not in world.placed()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_sent_again_counts_once(kind: type) -> None:
    lossy = Fault(0, "link-loss", "nic 0 plane 0 > t0", rate=0.05)
    world = lab.all_complete(world_of(2, 400_000, kind, faults=[lossy]))
    assert world.counters()["retransmitted"] > 0
    assert world.placed()["flow"].sum(axis=0).tolist() == [400_000] * 3


@pytest.mark.parametrize(("n", "kept"), [(RATES_MAX - 1, True), (RATES_MAX, False)])
def test_of_too_many_flows_none_is_kept(n: int, kept: bool) -> None:
    assert ("flow" in world_of(n, 1000, Transport).placed()) is kept


TWO_JOBS = """
[fabric]
nics = 8
t0_down = 4
[workload]
kind = "jobs"
[[workload.job]]
name = "first"
kind = "permutation"
nics = "0-3"
channels = CHANNELS
size = "400kB"
[[workload.job]]
name = "second"
kind = "permutation"
nics = "4-7"
size = "200kB"
start = "50us"
[[transport]]
[[transport]]
kind = "roce"
"""


@pytest.mark.parametrize("channels", [1, 20])
def test_a_job_is_the_sum_of_its_flows_and_is_kept_where_flows_are_too_many(channels: int) -> None:
    result = simulate(parse_scenario(TWO_JOBS.replace("CHANNELS", str(channels))))
    for run in result.transports:
        job = run.placed["job"]
        assert job.sum(axis=0).tolist() == [4 * 400_000, 4 * 200_000]
        assert job.sum(axis=1).tolist() == run.timeline["goodput_bytes"].tolist()
        assert np.flatnonzero(job[:, 1])[0] == 5
        assert ("flow" in run.placed) is (channels == 1)
    row = result.timeline.row(0, named=True)
    assert sum(row["job_gbps"]) == pytest.approx(row["goodput_gbps"])
    assert (row["flow_gbps"] is None) is (channels == 20)


def test_the_last_delivery_is_not_the_last_acknowledgement() -> None:
    """The acknowledgement is lost: the sender waits 2 ms for a timer, the receiver for nothing."""
    deaf = Fault(0, "link-loss", "nic 4 plane 0 > t0", rate=1.0, for_ps=1 * MS)
    world = lab.all_complete(world_of(1, 400_000, RoceTransport, faults=[deaf], rto_ps=2 * MS))
    flows = world.flows()
    assert world.placed_ps == int(flows["delivered_ps"].max()) < 1 * MS
    assert int(flows["done_ps"].max()) > 2 * MS
