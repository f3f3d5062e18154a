"""The cut of a workload into jobs, and everything that a lab refuses before it is built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.run.lab import run_in_lab
from openmrc.run.lab.plan import GAP_BYTES, Plan, make_plan
from openmrc.scenario.scenario import make_scenario
from openmrc.scenario.transports import TransportSection
from openmrc.sim.mrc.derive import derive
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic

FABRIC = {"nics": 4, "planes": 2, "port_rate": "20Mbps", "t0_down": 2}


def planned(workload: dict[str, Any], **transport: Any) -> tuple[Traffic, Plan]:
    tables = {"fabric": FABRIC, "workload": workload, "transport": transport}
    scenario = make_scenario(tables)
    fabric, traffic, _ = scenario.build()
    section = scenario.transports[0]
    assert isinstance(section, TransportSection)
    return traffic, plan_of(traffic, section, fabric)


def plan_of(traffic: Traffic, section: TransportSection, fabric: Any) -> Plan:
    queues = make_scenario({"fabric": FABRIC, "workload": {"kind": "permutation"}}).fabric.queues()
    return make_plan(traffic, section, derive(fabric, section.build(), queues, 1), True, 1)


def test_every_message_is_sent_by_one_host_and_received_by_another() -> None:
    traffic, plan = planned({"kind": "permutation", "size": "1MB", "channels": 3})
    sent = [m for job in plan.jobs.values() for m in job["sends"]["message"]]
    received = [m for job in plan.jobs.values() for m in job["receives"]["message"]]
    assert sorted(sent) == sorted(received) == list(range(traffic.n_msgs))
    for nic, job in plan.jobs.items():
        for one in job["qps"]:
            ends = {int(traffic.qp_src[one["qp"]]), int(traffic.qp_dst[one["qp"]])}
            assert ends == {nic, one["peer"]}
            assert bool(one["sends"]) == (traffic.qp_src[one["qp"]] == nic)


@pytest.mark.parametrize("side", ["from", "to"])
def test_messages_lie_apart_in_memory(side: str) -> None:
    _, plan = planned({"kind": "all-to-all", "size": "100001B"})
    for job in plan.jobs.values():
        messages = job["sends" if side == "from" else "receives"]
        spans = sorted(zip(messages[side], messages["bytes"], strict=True))
        end = 0
        for at, length in spans:
            assert at >= end + (GAP_BYTES if end else 0)
            end = at + length
    # where a message is to be written is where its receiver looks for it
    to = {m: at for job in plan.jobs.values() for m, at in zip_of(job["receives"])}
    assert all(to[m] == at for job in plan.jobs.values() for m, at in zip_of(job["sends"]))


def zip_of(messages: dict[str, list[int]]) -> Any:
    return zip(messages["message"], messages["to"], strict=True)


def test_an_arrival_that_releases_something_is_told_by_an_immediate() -> None:
    traffic, plan = planned({"kind": "ring-all-reduce", "size": "1MB"})
    assert not traffic.msg_imm.any() or traffic.msg_imm.all()
    released = 0
    for nic, job in plan.jobs.items():
        told = dict(zip(job["receives"]["message"], job["receives"]["told"], strict=True))
        for giving, given in job["on_received"].items():
            assert told[int(giving)] == 1
            assert set(given) <= set(job["sends"]["message"])
            released += len(given)
        assert plan.traffic.msg_dst[[int(m) for m in job["on_received"]]].tolist() == [nic] * len(
            job["on_received"]
        )
    assert released == len(plan.traffic.recv_next)


def test_a_series_is_a_list_of_messages() -> None:
    traffic, plan = planned({"kind": "ring-all-reduce", "size": "1MB", "flows": "series"})
    assert plan.traffic.n_msgs == traffic.n_sends > traffic.n_msgs
    assert np.bincount(plan.entry).tolist() == traffic.msg_count.tolist()


def test_the_transport_s_keys_reach_the_device() -> None:
    _, plan = planned(
        {"kind": "permutation"},
        pmtu=2048,
        mpr=256,
        evs_active=16,
        evs_backup=8,
        sack_bytes=8192,
        rto_exponent=12,
        linear_cnt=3,
        exp_cnt=4,
    )
    expected = {
        "pmtu": 2048,
        "mpr": 256,
        "evs_active": 16,
        "evs_backup": 8,
        "sack_bytes": 8192,
        "rto_exponent": 12,
        "linear_cnt": 3,
        "exp_cnt": 4,
        "trimming": True,
    }
    for job in plan.jobs.values():
        assert expected.items() <= job["limits"].items()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"transport": {"paths": "oblivious"}}, "transport.paths: 'oblivious' of 'oblivious' is"),
        ({"transport": {"paths": "single"}}, "--world lab accepts 'mrc'"),
        ({"transport": {"cc": "none"}}, "transport.cc: 'none' of 'mrc' is only simulated"),
        ({"transport": [{}, {"name": "b", "cc": "none"}]}, "transport[1].cc: 'none' of 'b'"),
        ({"transport": {"always_skip_after": 3}}, "transport.always_skip_after: 3 of"),
        ({"transport": {"srv6": False}}, "transport.srv6: false of 'mrc' is only simulated;"),
        ({"transport": {"ecn_skip": False}}, "--world lab accepts true"),
        ({"transport": {"trim": False}}, '--world lab accepts "auto"'),
        ({"fabric": FABRIC | {"ecn_last_hop": True}}, "fabric.ecn_last_hop: true is only"),
        (
            {"fabric": FABRIC | {"switching": "cut-through"}},
            "fabric.switching: 'cut-through' is only",
        ),
        ({"fabric": FABRIC | {"jitter": "1ms"}}, "fabric.jitter: is only simulated"),
        ({"lab": {"mtu": 1500}}, "transport.pmtu: 4096 of 'mrc' does not fit lab.mtu = 1500"),
        ({"lab": {"switch": "overlay"}}, '"overlay" is one process without hosts'),
        ({"workload": {"kind": "permutation", "size": "1GB"}}, "4000000000 bytes in all"),
        (
            {"fault": [{"at": "1ms", "kind": "deny", "where": "plane 0 t0 0 - t1 0"}]},
            "fault[0].kind: 'deny' applies to endpoints",
        ),
    ],
)
def test_what_cannot_be_done_live_is_refused_in_a_line(change: dict[str, Any], words: str) -> None:
    tables = {"fabric": FABRIC, "workload": {"kind": "permutation", "size": "1MB"}} | change
    with pytest.raises(InputError) as refused:
        run_in_lab(tables)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_release_that_would_have_to_travel_is_refused() -> None:
    fabric, _, _ = make_scenario({"fabric": FABRIC, "workload": {"kind": "permutation"}}).build()
    # message 1, of NIC 2, waits for the arrival of message 0 at NIC 1
    traffic = make_traffic(
        "test", 4, qp_src=[0, 2], qp_dst=[1, 3], msg_qp=[0, 1], msg_bytes=1000, recv=([0], [1])
    )
    with pytest.raises(InputError, match="message 1: nic 2 sends it after the arrival of message"):
        plan_of(traffic, TransportSection(), fabric)


def test_computations_are_refused() -> None:
    fabric, _, _ = make_scenario({"fabric": FABRIC, "workload": {"kind": "permutation"}}).build()
    traffic = make_traffic("test", 4, [0], [1], [0], 1000, calcs=Calcs([5]))
    with pytest.raises(InputError, match="workload: 1 computations; --world lab accepts none"):
        plan_of(traffic, TransportSection(), fabric)
