"""From what agents report to a result: joined, checked, put into bins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from openmrc.errors import OpenMrcError
from openmrc.live.lab.totals import Totals
from openmrc.run.lab.coordinator import Heard
from openmrc.run.lab.plan import Plan, make_plan
from openmrc.run.lab.results import BIN_PS, result_of
from openmrc.run.outcome import TransportResult
from openmrc.scenario.scenario import make_scenario
from openmrc.scenario.transports import TransportSection
from openmrc.sim.mrc.derive import derive
from openmrc.traffic.traffic import Traffic

MS = 10**9
COUNTERS = (
    *("tx_packets", "rtx", "sack", "nack", "probe", "dup", "paths_bad", "paths_revived"),
    *("paths_skipped", "false", "inferred", "timeouts"),
)


SCENARIO = {"fabric": {"nics": 2, "planes": 2, "t0_down": 2}}
FABRIC = make_scenario(SCENARIO | {"workload": {"kind": "permutation"}}).build()[0]
# EV, times narrow, bytes lost, packets, blamed
PATHS = [(FABRIC.ev(0, 0), 0, 0, 90, False), (FABRIC.ev(1, 0), 4, 2048, 9, True)]


def told(flows: str = "message") -> tuple[Traffic, Plan, Heard, Any]:
    """A ring of two ranks: two messages of each, as if all had gone well."""
    workload = {"kind": "ring-all-reduce", "size": "1MB", "flows": flows}
    scenario = make_scenario(SCENARIO | {"workload": workload})
    fabric, traffic, _ = scenario.build()
    section = scenario.transports[0]
    assert isinstance(section, TransportSection)
    derived = derive(fabric, section.build(), scenario.fabric.queues(), 1)
    plan = make_plan(traffic, section, derived, True, 1)
    n = plan.traffic.n_msgs
    qp = dict.fromkeys(COUNTERS, 1) | {
        "error": "",
        "sends": True,
        "paths": PATHS,
        "probe_bytes": 120,
        "qp": 0,
        "qpn": 7,
        "tx_packets": 5,
    }
    heard = Heard(
        rtt_us={0: 1000.0, 1: 3000.0},
        flows=[(m, m * MS, (100 + m) * MS, m, "") for m in range(n)],
        received=[(m, (90 + m) * MS, True) for m in range(n)],
        samples={0: [(0, 0, 0), (10 * MS, 0, 0), (50 * MS, 8000, 3), (200 * MS, 8000, 3)]},
        qps=[qp, qp | {"sends": False}],
        devices={0: {"ports": [{"refused": {"the iCRC is wrong": 2}}]}},
        totals=[(0, Totals()), (200 * MS, Totals(link_traversals=99, dropped_fault=4))],
        ended_ps=200 * MS,
    )
    return traffic, plan, heard, derived


def made(traffic: Traffic, plan: Plan, heard: Heard, derived: Any) -> TransportResult:
    return result_of("mrc", FABRIC, traffic, plan, heard, derived, 50 * MS)


def test_messages_are_flows_with_the_times_of_their_ends() -> None:
    traffic, plan, heard, derived = told()
    run = made(traffic, plan, heard, derived)
    n = traffic.n_msgs
    assert run.flows["start_ps"].tolist() == [m * MS for m in range(n)]
    assert run.flows["done_ps"].tolist() == [(100 + m) * MS for m in range(n)]
    assert run.flows["delivered_ps"].tolist() == [(90 + m) * MS for m in range(n)]
    assert run.bytes_verified == traffic.msg_bytes.sum()
    assert run.now_ps == (99 + n) * MS
    summary = run.summary()
    assert summary["flows"]["completed"] == n
    assert summary["packets"]["data"] == 8
    assert summary["packets"]["dropped_fault"] == 4
    assert run.derived["measured_rtt_ps"] == 2 * MS


def test_a_series_is_one_flow_from_its_first_to_its_last() -> None:
    traffic, plan, heard, derived = told("series")
    run = made(traffic, plan, heard, derived)
    first = [plan.entry.tolist().index(i) for i in range(traffic.n_msgs)]
    last = [first[i] + int(traffic.msg_count[i]) - 1 for i in range(traffic.n_msgs)]
    assert run.flows["start_ps"].tolist() == [m * MS for m in first]
    assert run.flows["done_ps"].tolist() == [(100 + m) * MS for m in last]
    assert run.flows["retransmitted"].sum() == sum(range(plan.traffic.n_msgs))


def test_what_was_placed_is_put_into_bins_and_none_is_lost() -> None:
    run = made(*told())
    assert run.bin_ps == BIN_PS == 20 * MS
    assert run.timeline["goodput_bytes"].tolist()[:4] == [2000, 4000, 2000, 0]
    assert run.timeline["goodput_bytes"].sum() == 8000
    assert run.timeline["retransmitted"].sum() == 3


def test_what_the_last_sample_tells_belongs_to_the_end_however_late_it_is() -> None:
    traffic, plan, heard, derived = told()
    heard.samples = {0: [(0, 0, 0), (90 * MS, 4000, 1), (400 * MS, 8000, 3)]}
    run = made(traffic, plan, heard, derived)
    assert run.timeline["goodput_bytes"].sum() == 8000
    assert run.timeline["retransmitted"].sum() == 3


def test_a_message_that_failed_has_an_error_and_no_end() -> None:
    traffic, plan, heard, derived = told()
    row = (1, MS, -1, 9, "retry exceeded")
    heard = replace(heard, flows=[heard.flows[0], row, *heard.flows[2:]])
    heard.qps[0] = heard.qps[0] | {"error": "retry exceeded"}
    run = made(traffic, plan, heard, derived)
    assert run.flows["done_ps"][1] == -1
    assert (run.n_failed, run.n_unfinished) == (1, 0)
    assert run.flow_errors[1] == "retry exceeded"
    assert run.qp_errors == ["QP 0x000007 of nic 0 to nic 1: retry exceeded"]
    assert run.now_ps == heard.ended_ps


def test_a_message_had_arrived_when_it_was_acknowledged_whenever_its_receiver_heard_of_it() -> None:
    traffic, plan, heard, derived = told()
    late = [(m, (100 + m) * MS + 300, whole) for m, _, whole in heard.received]
    run = made(traffic, plan, replace(heard, received=late), derived)
    assert run.flows["delivered_ps"].tolist() == run.flows["done_ps"].tolist()
    assert run.flows["delivered_ps"].max() <= run.now_ps


def test_the_place_where_paths_are_too_narrow_is_named_as_senders_see_it() -> None:
    run = made(*told())  # of the two ends of a queue pair one sends
    words = (
        "nic 0 plane 1 > t0 or nic 1 plane 1 < t0: 1 of 1 paths pass 120 B and lose 2,048 B of"
        " data: MTU?"
    )
    assert run.narrow_paths == [words] == run.summary()["narrow_paths"]


def test_a_wrong_byte_ends_everything() -> None:
    traffic, plan, heard, derived = told()
    heard.received[1] = (1, 0, False)
    with pytest.raises(OpenMrcError, match=r"message 1 .* its bytes are not what was sent"):
        made(traffic, plan, heard, derived)


def test_a_byte_beside_the_messages_ends_everything() -> None:
    traffic, plan, heard, derived = told()
    with pytest.raises(OpenMrcError, match="5 bytes were written beside all messages"):
        made(traffic, plan, replace(heard, astray=5), derived)
