"""What a run of RoCEv2 tells: its object in the summary, its columns, its sentence; beside MRC."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from openmrc.fabric.queues import UNLIMITED
from openmrc.report.table import UNLIMITED_BYTES, derived, of_roce, sentences
from openmrc.run.figures import ROCE
from openmrc.run.results import Result
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.sweeps.rows import rows

TABLES: dict[str, Any] = {
    "name": "both",
    "fabric": {"kind": "fat-tree", "nics": 8, "t0_down": 4, "port_rate": "100Gbps"},
    "transport": [{}, {"kind": "roce", "qps": 2, "rto": "1ms"}],
    "workload": {"kind": "incast", "n": 6, "size": "600kB"},
    "fault": [{"at": "0s", "kind": "link-loss", "where": "nic 7 plane 0 > t0", "rate": 0.01}],
}


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(make_scenario(TABLES), sampled=True)


def test_the_summary_has_an_object_for_it_and_none_for_mrc(result: Result) -> None:
    summary = result.summary()  # once: it has the memory of the process so far
    both = summary["transports"]
    assert "roce" not in both["mrc"]
    told = both["roce"]["roce"]
    assert set(told) == {*ROCE, "paused_most"}
    assert told["naks"] > 0
    assert told["cnps"] > 0
    assert both["roce"]["packets"]["nack"] == told["naks"]
    assert both["roce"]["packets"]["sack"] == both["roce"]["paths"]["assumed_bad"] == 0
    assert both["roce"]["flows"]["completed"] == 6
    assert both["roce"]["bytes_verified"] == 6 * 600_000
    assert both["roce"]["slowdown_p100"] > 1
    assert json.loads(json.dumps(summary)) == summary


def test_queues_that_pfc_keeps_are_called_unlimited(result: Result) -> None:
    mrc, roce = (derived(run) for run in result.transports)
    assert UNLIMITED - 1 == UNLIMITED_BYTES
    assert (roce["queue"], roce["queue_last_hop"], roce["ecn_low"]) == (*["unlimited"] * 2, "400kB")
    assert "unlimited" not in mrc.values()


def test_figures_have_its_columns(result: Result) -> None:
    mrc, roce = result.figures.to_dicts()
    assert [mrc[f"roce.{key}"] for key in ROCE] == [None] * len(ROCE)
    told = result.summary()["transports"]["roce"]["roce"]
    assert {key: roce[f"roce.{key}"] for key in ROCE} == {key: told[key] for key in ROCE}
    of_sweep = rows(result)[1]
    assert (of_sweep["transport.kind"], of_sweep["transport.qps"]) == ("roce", 2)
    assert of_sweep["transport.convergence"] is None  # "auto"
    slow = result.scenario.replace({"transport.roce.convergence": "1s-3s"})
    stated = rows(replace(result, scenario=slow))[1]
    assert stated["transport.convergence"] == 3 * 10**12  # the longest that may be
    assert "roce.paused_most" not in of_sweep


def test_one_sentence_says_what_only_it_has_to_tell(result: Result) -> None:
    run = result.transports[1]
    told = result.summary()["transports"]["roce"]["roce"]
    sentence = of_roce(run)
    assert sentence in sentences(result)
    assert sentence.startswith(f"roce: {told['naks']:,} NAKs, 0 timeouts, ")
    most = told["paused_most"][0]
    assert sentence.endswith(
        f"{told['cnps']:,} CNPs; {told['paused_ports']} ports paused {told['pauses']} times for"
        f" {told['pause_us']} us in all, longest {most['port']} ({int(most['us'])} us), 0 storms."
    )
    calm = replace(run, counters=run.counters | {"roce.pauses": 0})
    assert of_roce(calm).endswith(" CNPs, no pauses.")


def test_the_page_shows_the_ways_of_its_queue_pairs(result: Result) -> None:
    samples = result.transports[1].samples
    assert samples is not None
    assert len(samples.qp.evs) == 2
    assert (samples.qp.evs >= 0xC000).all()
    assert all(samples.qp.names[int(ev)].startswith("over plane 0 t") for ev in samples.qp.evs)
    assert samples.qp.values["cwnd_bytes"].max() > 0
