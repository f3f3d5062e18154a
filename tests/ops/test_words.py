"""What `mrc why` says of findings, and the table of `--report`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.ops import harm, words
from openmrc.ops.finding import Finding, Window
from openmrc.ops.headline import headline
from openmrc.ops.records import Record
from openmrc.ops.why import Answer, why

FABRIC = multiplane(64, 2, 100 * 10**9, 8, 8, 0, 0)
SUMMARY: dict[str, Any] = {
    "sim_time_us": 400.0,
    "qp_errors": [],
    "packets": {"trimmed": 0, "data": 10_000, "retransmitted": 3},
}
LINK = "plane 1 t0 1 > t1 3"
ALWAYS = Window(0.0, 1e9, None)
CUT = Finding(
    LINK, "link", (), ("plane 1 t0 1 port 11", "plane 1 t1 3 port 1"), True, 1.0, 40, 20.0, 80.0,
    (18.0, 20.0), (80.0, 90.0), 8, 4, 8, 120.0, 640.0, 99.0, 0.95, 0, 1, 0,
)  # fmt: skip


def record(**changes: Any) -> Record:
    flows = pl.DataFrame({"dst": [1], "done_us": [400.0], "start_us": [0.0], "job": [None]})
    flows = flows.with_columns(retransmitted=pl.lit(0), failed=False, qp=0)
    events = pl.DataFrame({"event": ["avoided"], "qp": [3], "ev": [0]})
    paths = pl.DataFrame({"first_us": [30.0], "last_us": [40.0], "lost": [2]})
    none = pl.DataFrame({"port": [], "dropped": []}, schema={"port": pl.Int64, "dropped": pl.Int64})
    made = Record(
        "mrc", FABRIC, SUMMARY, flows, None, events, paths, account=none, port_counts=none
    )
    return replace(made, **changes)


def told(*found: Finding, window: Window = ALWAYS, **changes: Any) -> str:
    one = record(**changes)
    return words.told(one, window, found, one.flows)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "Plane 1 t0 1 to t1 3 let nothing through from 20us to 80us; 40 packets and probes"),
        ({"ended_us": (80.0, None)}, "let nothing through from 20us on; 40"),
        ({"dead": False, "rate": 0.0213}, "lost 2.1 % of packets from 20us to 80us; 40"),
        ({"probability": 0.7}, "to 80us (70% sure); 40 packets and probes"),
        ({"times": 3}, "flapped: it let nothing through 3 times from 20us to 80us; 40"),
        ({"downs": 2}, "was down 2 times from 20us to 80us, as its ports saw; 40"),
        ({"narrow_bytes": 4096}, "passes 120 B and loses 4,096 B of data (MTU?) from 20us to"),
        ({}, "were lost, 8 paths of 4 queue pairs were avoided, and all are back since 120us."),
        ({"back": 0}, "8 paths of 4 queue pairs were avoided, and none is back."),
        ({"back": 2}, "avoided, and 2 of them are back, the last since 120us."),
        ({"paths": 0}, "40 packets and probes were lost, and no path was avoided."),
        ({}, "Its ends: plane 1 t0 1 port 11 and plane 1 t1 3 port 1. No queue pair failed."),
        ({"one_of": ("plane 1 t1 3", "nic 7")}, "One of plane 1 t0 1 to t1 3, plane 1 t1 3, nic 7"),
        ({"one_of": ("nic 7",) * 5}, "nic 7, nic 7, nic 7 or 2 more let nothing through from"),
        ({"where": "plane 1 t0 1 > t1 *"}, "Plane 1 t0 1 to t1 * let nothing through"),
        ({"where": "nic 3 plane * < t0"}, "T0 to nic 3 plane * let nothing through"),
        ({"where": f"{LINK}, nic 7"}, "Plane 1 t0 1 to t1 3 and nic 7 let nothing through"),
    ],
)
def test_each_place_has_its_sentence(changes: dict[str, Any], said: str) -> None:
    assert said in told(replace(CUT, **changes))


def test_more_places_than_a_paragraph_holds_are_counted() -> None:
    said = told(*[CUT] * 5, replace(CUT, one_of=("nic 7",)))
    assert "1 more place and 1 that cannot be told from others lost 80 packets" in said


@pytest.mark.parametrize(
    ("changes", "window", "said"),
    [
        ({}, ALWAYS, "2 packets on 1 path count as lost, too few to blame a place"),
        ({"trims": False}, ALWAYS, "2 packets on 1 path count as lost, maybe to full queues"),
        ({}, Window(50.0, 90.0, None), "No path lost a packet."),
    ],
)
def test_what_is_no_damage_is_told_as_such(
    changes: dict[str, Any], window: Window, said: str
) -> None:
    nothing = {"events": record().events} | changes
    if window != ALWAYS:
        nothing["events"] = pl.DataFrame({"event": []}, schema={"event": pl.String})
    assert said in told(window=window, **nothing)


def test_full_queues_are_congestion() -> None:
    packets = {"trimmed": 200, "data": 10_000}
    said = told(summary=SUMMARY | {"packets": packets})
    assert "200 packets were trimmed, 2 % of all: queues were full there, which is" in said
    port = next(it for it in range(FABRIC.n_ports) if FABRIC.port_name(it) == LINK)
    dropped = pl.DataFrame({"port": [port, 0], "dropped": [900, 8]})
    said = told(trims=False, port_counts=dropped)
    assert "full queues dropped 908 packets, most of them at plane 1 t0 1 to t1 3" in said


def test_the_worst_stands_first_in_the_report() -> None:
    gray = replace(CUT, where="plane 0 t0 1", dead=False, aside_us=900.0)
    unsure = replace(CUT, one_of=("nic 7",), aside_us=1.0)
    rows = harm.ranked(
        record(account=None), Answer("mrc", True, headline((), str), (CUT, unsure, gray), "")
    )
    assert [(row.where, row.what) for row in rows] == [
        ("plane 0 t0 1", "lossy"),
        (LINK, "dead"),
        (LINK, "one of 2"),
    ]
    unknown = record(account=None)
    assert harm.title(unknown, []) == "mrc: its senders keep no account of paths"
    known = record()
    assert harm.title(known, rows) == "mrc: 3 places broke, and no queue pair failed"
    assert harm.title(known, []) == "mrc: nothing broke"
    assert len(harm.cells(rows)[0]) == len(harm.COLUMNS)


def test_what_keeps_no_account_names_the_places_that_are_too_narrow() -> None:
    lines = ["nic 1 plane 1: MTU?", "nic 5 plane 0: MTU?"]
    answer = why(record(account=None, summary=SUMMARY | {"narrow_paths": lines}))
    assert not answer.findings
    assert (
        "3 packets were sent again. Across nic 1 plane 1: MTU? Across nic 5 plane 0: MTU? Of other"
        " losses senders keep no account here; probes could." in answer.text
    )


def test_where_senders_find_a_lab_too_narrow_is_said_unless_the_place_is_found() -> None:
    summary = SUMMARY | {"narrow_paths": ["nic 1 plane 1: MTU?"]}
    assert "Across" not in told(replace(CUT, narrow_bytes=4096), summary=summary)
    said = told(summary=summary)
    assert "Across nic 1 plane 1: MTU?" in said
    assert "Nothing broke" not in said


def test_what_was_not_recorded_is_said_with_the_remedy() -> None:
    answer = why(record(account=None))
    assert (answer.knows, answer.as_json()["nothing_broke"]) == (False, False)
    assert "was not recorded, so nobody can say where; run it packet by packet" in answer.text


def test_of_a_run_without_packets_nobody_can_say_where_they_were_lost() -> None:
    summary = SUMMARY | {"packets": SUMMARY["packets"] | {"retransmitted": None}}
    said = words.unknown(record(summary=summary))
    assert said == "It has no packets; mrc run --level packet tells what they met."
