"""One scenario at both levels, and what the flow level refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import InputError
from openmrc.report.files import write_results
from openmrc.run.results import Result
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario

RING: dict[str, Any] = {
    "name": "ring",
    "fabric": {"nics": 16, "planes": 2, "port_rate": "100Gbps", "t0_down": 4, "t0_up": 4},
    "workload": {"kind": "ring-all-reduce", "size": "4MB"},
}
DOWN = {"at": "0s", "kind": "link-down", "where": "nic 3 plane 1"}


def levels(**more: Any) -> tuple[Result, Result]:
    """The results of the ring at the packet level, and at the flow level."""
    packet, flow = (
        simulate(make_scenario(RING | more | {"level": level}), threads=1)
        for level in ("packet", "flow")
    )
    return packet, flow


def whole(result: Result) -> int:
    """What the workload took, ps."""
    found = result.transports[0].whole_ps
    assert found is not None
    return found


def test_both_levels_agree_on_a_ring() -> None:
    packet, flow = levels()
    assert whole(flow) == pytest.approx(whole(packet), rel=0.02)
    assert (
        flow.transports[0].flows["bytes"].tolist() == packet.transports[0].flows["bytes"].tolist()
    )


def test_both_levels_agree_on_a_ring_that_has_lost_a_port() -> None:
    packet, flow = levels(fault=[DOWN])
    assert whole(flow) == pytest.approx(whole(packet), rel=0.02)
    assert whole(flow) > 1.5 * whole(levels()[1])


@pytest.mark.parametrize(
    "transport",
    [{"kind": "roce", "routing": "adaptive"}, {"srv6": False, "routing": "spray"}],
)
def test_both_levels_agree_on_switches_that_balance(transport: dict[str, Any]) -> None:
    packet, flow = levels(transport=transport)
    assert whole(flow) == pytest.approx(whole(packet), rel=0.03)


def test_what_balancing_switches_have_not_heard_of_is_sent_in_vain() -> None:
    """A T1 loses its link to the T0 of the receivers: until routing has converged, packets that are
    sent there are lost, and afterwards nothing is.
    """
    dead = {"at": "0s", "kind": "link-down", "where": "plane 0 t0 1 < t1 0"}
    lossy, knowing = (
        whole(
            levels(
                transport={"srv6": False, "routing": "spray", "convergence": convergence},
                fault=[dead],
            )[1]
        )
        for convergence in ("10ms", "0s")
    )
    assert lossy > 1.02 * knowing
    assert knowing < 1.02 * whole(levels()[1])


def test_results_say_their_level_and_leave_out_what_is_not_counted(tmp_path: Path) -> None:
    _, flow = levels()
    assert "flow level" in flow.title
    write_results(flow, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["level"] == "flow"
    packets = summary["transports"]["mrc"]["packets"]
    assert packets["data"] > 0
    assert packets["retransmitted"] is None
    assert 'level = "flow"' in (tmp_path / "scenario.toml").read_text(encoding="utf-8")
    assert flow.timeline["goodput_gbps"].to_numpy().sum() > 0


def test_a_run_is_a_function_of_its_scenario() -> None:
    jitter = RING["fabric"] | {"jitter": "2us"}
    scenario = make_scenario(RING | {"fabric": jitter, "level": "flow"})
    assert simulate(scenario).identity == simulate(scenario).identity


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ({"kind": "roce", "pfc": False}, "false is not known"),
        ({"paths": "single", "srv6": False}, "false with one path is not known"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(transport: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        simulate(make_scenario(RING | {"transport": transport, "level": "flow"}))


def test_a_capture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no packets"):
        simulate(make_scenario(RING | {"level": "flow"}), pcap=tmp_path / "x.pcap")
