"""Packets that a workload is expected to send, and what it sends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.run import expected
from openmrc.run.estimate import estimates
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import parse_scenario
from openmrc.sim.mrc.derive import derive
from openmrc.traffic.traffic import Traffic, make_traffic
from openmrc.traffic.trims import TRIMS_LATER, trims_of_nics

FABRIC = """
[fabric]
nics = 128
planes = {planes}
port_rate = "100Gbps"
t0_down = 16
[workload]
"""


def expected_of(text: str) -> expected.Packets:
    scenario = parse_scenario(text)
    fabric, traffic, _ = scenario.build()
    transport: Any = scenario.transport(0)
    derived = derive(fabric, transport, scenario.fabric.queues(), 1)
    return expected.packets(fabric, traffic, transport, derived)


def incast_of(senders: int, packets: int) -> Traffic:
    return make_traffic(
        "incast",
        senders + 1,
        qp_src=range(1, senders + 1),
        qp_dst=[0] * senders,
        msg_qp=range(senders),
        msg_bytes=[10 * packets] * senders,
    )


@pytest.mark.parametrize(("planes", "late"), [(1, 0), (4, 3), (8, 7)])
@pytest.mark.parametrize(("size", "overtaken"), [("64KiB", False), ("65535B", True)])
def test_a_shorter_last_packet_overtakes_those_in_other_planes(
    planes: int, late: int, size: str, overtaken: bool
) -> None:
    sent = expected_of(FABRIC.format(planes=planes) + f'kind = "permutation"\nsize = "{size}"\n')
    at_ends = expected.ANSWERS_A_MESSAGE + overtaken * late
    assert sent.data == 128 * 16
    assert sent.answers == int(128 * (4 + at_ends + 16 * expected.PROBES_A_PACKET))


def test_no_more_packets_are_overtaken_than_a_message_has() -> None:
    sent = expected_of(FABRIC.format(planes=8) + 'kind = "permutation"\nsize = "5000B"\n')
    answers = 1 + 1 + expected.ANSWERS_A_MESSAGE + 2 * expected.PROBES_A_PACKET
    assert sent.answers == int(128 * answers)


def test_packets_of_a_nic_with_one_queue_pair_are_not_scattered() -> None:
    of = {
        kind: expected_of(FABRIC.format(planes=2) + f'kind = "{kind}"\nsize = "4MiB"\n')
        for kind in ("permutation", "all-to-all")
    }
    assert of["permutation"].scattered == 0
    assert of["all-to-all"].scattered == of["all-to-all"].data > 0


@pytest.mark.parametrize(("senders", "first"), [(1, 0), (2, 5), (3, 10)])
def test_first_windows_that_meet_at_a_nic_are_trimmed_and_some_packets_later(
    senders: int, first: int
) -> None:
    """Windows of five packets, of which the NIC receives five meanwhile."""
    trims = trims_of_nics(incast_of(senders, 8), 10, window_bytes=50, bdp_bytes=100)
    later = TRIMS_LATER * senders / 10 * 8 * senders if first else 0
    assert trims.tolist() == pytest.approx([first + later] + [0] * senders)


def test_without_windows_nothing_is_trimmed() -> None:
    trims = trims_of_nics(incast_of(9, 8), 10, window_bytes=0, bdp_bytes=100)
    assert not np.any(trims)


def test_a_series_that_waits_has_one_message_under_way() -> None:
    text = FABRIC.format(planes=1) + 'kind = "reduce-scatter"\nsize = "512KiB"\nflows = "series"\n'
    fabric, traffic, _ = parse_scenario(text).build()
    assert traffic.msg_count.max() == 127
    assert expected.under_way(fabric, traffic, 4096, 10**9) == 128  # a packet of each NIC
    assert expected.under_way(fabric, traffic, 4096, 4096) < 128


@pytest.mark.parametrize(
    ("planes", "workload", "within"),
    [
        (1, 'kind = "permutation"\nsize = "1MB"\n', 0.1),
        (8, 'kind = "permutation"\nsize = "64KB"\n', 0.1),
        (8, 'kind = "reduce-scatter"\nsize = "2MB"\nflows = "series"\n', 0.1),
        (4, 'kind = "ring-all-reduce"\nsize = "1MiB"\ngroup = 16\n', 0.1),
        (8, 'kind = "all-to-all"\nsize = "2MB"\n', 0.2),
        (8, 'kind = "incast"\nn = 32\nsize = "1MB"\n', 0.25),
        (4, 'kind = "incast"\nn = 96\nsize = "1MB"\n', 0.25),
    ],
)
def test_a_run_sends_about_what_is_expected(planes: int, workload: str, within: float) -> None:
    scenario = parse_scenario(FABRIC.format(planes=planes) + workload)
    (told,) = estimates(scenario)
    (run,) = simulate(scenario, threads=1).transports
    assert told.data_packets == run.counters["data"]
    assert told.link_traversals == pytest.approx(run.counters["link_traversals"], rel=within)
