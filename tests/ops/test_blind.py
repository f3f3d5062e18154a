"""The benchmark that draws faults and asks blindly, and its judge."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.fabric import multiplane
from openmrc.fabric.kinds import Fault
from openmrc.scenario.scenario import make_scenario
from openmrc.units import US

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
INF = float("inf")
CABLE = frozenset({3, 4})


@pytest.fixture(scope="module")
def judge() -> dict[str, Any]:
    return runpy.run_path(str(BENCHMARKS / "judge.py"))


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return runpy.run_path(str(BENCHMARKS / "blind.py"))


def truth(judge: dict[str, Any], **changed: Any) -> Any:
    """A cable that was dead from 100 to 200 us, between losses at 110 and 150 us."""
    cut = {"where": "cable", "ports": CABLE, "lossy": CABLE, "lost": 50, "dead": True}
    times = {"since_us": (100.0, 110.0), "until_us": (150.0, 200.0), "repeats": False}
    return judge["Truth"](**(cut | times | {"told": False} | changed))


def claim(judge: dict[str, Any], *places: frozenset[int], **changed: Any) -> Any:
    """That one of these places was dead from 105 to 160 us at least."""
    said = {"since_us": (90.0, 105.0), "until_us": (160.0, 300.0), "dead": True}
    return judge["Claim"](**({"where": "said", "one_of": places} | said | changed))


@pytest.mark.parametrize(
    ("places", "changed", "word"),
    [
        ([CABLE], {}, "right"),
        ([CABLE], {"since_us": (115.0, 120.0)}, "wrong time"),
        ([CABLE], {"since_us": (80.0, 90.0)}, "wrong time"),
        ([CABLE], {"until_us": (100.0, 120.0)}, "wrong time"),
        ([CABLE], {"until_us": (210.0, INF)}, "wrong time"),
        ([CABLE], {"dead": False}, "wrong kind"),
        ([frozenset({3})], {}, "part"),
        ([CABLE | {5}], {}, "more"),
        ([frozenset({9}), CABLE], {}, "right"),
        ([*(frozenset({9 + i}) for i in range(8)), CABLE], {}, "many"),
        ([frozenset({9})], {}, "missed"),
    ],
)
def test_what_is_said_is_right_in_place_kind_and_times(
    judge: dict[str, Any], places: list[frozenset[int]], changed: dict[str, Any], word: str
) -> None:
    words, _ = judge["judged"]([truth(judge)], [claim(judge, *places, **changed)])
    assert words == [word]


def test_a_direction_that_lost_next_to_nothing_need_not_be_named(judge: dict[str, Any]) -> None:
    one_way = truth(judge, lossy=frozenset({3}))
    for places in (CABLE, frozenset({3})):
        assert judge["judged"]([one_way], [claim(judge, places)]) == (["right"], [])
    assert judge["judged"]([one_way], [claim(judge, frozenset({4}))])[0] == ["part"]


def test_what_lost_next_to_nothing_need_not_be_named(judge: dict[str, Any]) -> None:
    unseen = truth(judge, lossy=frozenset(), lost=judge["FEW"])
    assert judge["judged"]([unseen], []) == (["unseen"], [])
    assert judge["judged"]([truth(judge)], []) == (["missed"], [])


def test_what_a_nic_says_of_its_own_port_needs_no_loss(judge: dict[str, Any]) -> None:
    told = truth(judge, lossy=frozenset(), lost=0, told=True)
    assert judge["judged"]([told], []) == (["missed"], [])


def test_a_claim_that_is_right_of_another_fault_is_none_of_an_unseen_one(
    judge: dict[str, Any],
) -> None:
    around = truth(judge, ports=CABLE | {9}, lossy=CABLE | {9})
    unseen = truth(judge, lossy=frozenset(), lost=0, since_us=(300.0, 300.0))
    said = [claim(judge, CABLE | {9})]
    assert judge["judged"]([around, unseen], said) == (["right", "unseen"], [])
    assert judge["judged"]([around, truth(judge)], said)[0] == ["right", "more"]


def test_a_loss_that_another_fault_would_have_stopped_is_not_its_own(judge: dict[str, Any]) -> None:
    def broken(ports: frozenset[int], since_us: float, until_us: float) -> Any:
        fault = Fault(int(since_us * US), "link-down", "cable")
        every = np.ones(3, np.bool_)
        return judge["_Broken"](fault, ports, ((since_us, until_us),), every, every)

    sent_us = np.array([100.0, 149.0, 160.0])
    lost = judge["_Lost"](np.zeros((3, 1), np.int32), sent_us, sent_us + 4, sent_us, sent_us > 0)
    around = broken(CABLE | {9}, 120.0, 155.0)
    stopped = judge["_stopped"]
    assert stopped(lost, broken(CABLE, 90.0, 200.0), around).tolist() == [False, True, False]
    later = broken(CABLE, 130.0, 200.0)
    assert stopped(lost, later, broken(CABLE, 110.0, 170.0)).tolist() == [True, True, True]


def test_a_claim_of_which_no_place_is_broken_is_of_a_healthy_one(judge: dict[str, Any]) -> None:
    said = [claim(judge, CABLE), claim(judge, frozenset({9}), frozenset({8}))]
    assert judge["judged"]([truth(judge)], said) == (["right"], ["said"])
    assert judge["judged"]([], said[:1])[1] == ["said"]
    # one that names a healthy link beside the broken one names it for certain
    assert judge["judged"]([truth(judge, lossy=frozenset({3}))], [claim(judge, frozenset({4, 9}))])[
        1
    ] == ["said"]


def test_places_are_their_directed_ports(judge: dict[str, Any]) -> None:
    fabric = multiplane(16, 2, 100 * 10**9, 4, 4, 0, 0)
    ports = judge["ports_of"]
    cable = ports(fabric, "plane 1 t0 2 - t1 0")
    up, down = (ports(fabric, f"plane 1 t0 2 {way} t1 0") for way in "><")
    assert cable == up | down
    assert len(up) == len(down) == 1
    assert ports(fabric, "plane 1 t0 2 > t1 0, nic 3 plane 1 > t0") == up | {7}
    plane = ports(fabric, "plane 1")
    assert plane == ports(fabric, "plane 1 t0 *") | ports(fabric, "plane 1 t1 *")
    assert len(plane) * 2 == fabric.n_ports
    assert ports(fabric, "plane 1 t0 2 transceiver 1") > cable


def test_every_seed_draws_a_scenario_that_can_be_run(
    blind: dict[str, Any], judge: dict[str, Any]
) -> None:
    kinds, traffic = set(), set()
    for seed in range(40):
        tables = blind["Draw"](seed).tables
        assert tables == blind["Draw"](seed).tables
        scenario = make_scenario(tables)
        fabric = scenario.fabric.build()
        traffic.add(tables["workload"]["kind"])
        for fault in scenario.faults:
            kinds.add(fault.kind)
            assert judge["ports_of"](fabric, fault.build().place) or fault.kind == "deny"
    assert traffic == set(blind["TRAFFIC"])
    assert len(kinds) >= 8


def test_a_drawn_run_is_asked_about_and_kept(blind: dict[str, Any], tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        "seed": 1,
        "fabric": {"nics": 8, "planes": 2, "t0_down": 4, "port_rate": "100Gbps"},
        "workload": {"kind": "permutation", "size": "1MB"},
    }
    fault = {"at": "20us", "where": "nic 3 plane 1", "kind": "port-down"}
    for faults, text in (([fault], "ic 3 plane 1 was down"), ([], "No path lost")):
        scenario = make_scenario(tables | {"fault": faults})
        with blind["kept"](scenario, tmp_path / str(len(faults))) as results:
            assert "[[fault]]" not in (results / "scenario.toml").read_text()
            row = blind["ask"](scenario, "one", results)
        assert row["right"], row
        assert text in row["text"]
        with blind["kept"](scenario, tmp_path / str(len(faults))) as results:
            assert blind["ask"](scenario, "one", results) == row


def test_a_claim_holds_if_its_place_or_one_of_its_set_is_broken(
    judge: dict[str, Any], blind: dict[str, Any]
) -> None:
    late = claim(judge, CABLE, frozenset({9}), since_us=(115.0, 120.0))
    assert judge["holds"]([truth(judge)], late)
    assert not judge["holds"]([truth(judge)], claim(judge, frozenset({9})))
    said = [{"ahead_nats": 6.0, "probability": 0.8, "holds": it} for it in (True, False)]
    rows = [{"claims": said}]
    assert "said with 80%: 50% of 2 places hold" in blind["reliability"](rows)


def test_what_is_fitted_is_how_often_what_was_said_holds(blind: dict[str, Any]) -> None:
    rows = [
        {"claims": [{"ahead_nats": ahead, "holds": i < held} for i in range(100)]}
        for ahead, held in ((0.0, 48), (8.0, 84), (100.0, 96))
    ]
    dispersion, aside = blind["fitted"](rows)
    assert aside == pytest.approx(0.04, abs=0.01)
    assert (1 - aside) / (1 + np.exp(-8.0 / dispersion)) == pytest.approx(0.84, abs=0.02)
