"""Messages between agents and controller: what is written is read, and nothing else passes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import multiplane
from openmrc.ops.mapper import words
from openmrc.ops.mapper.agent import BurstReport, Loss, Report, Round
from openmrc.ops.mapper.bursts import Count, Order
from openmrc.ops.mapper.collector import Collector
from openmrc.units import MS
from openmrc.verbs import denylist
from openmrc.verbs.denylist import Denylist, Entry
from tests.ops.mapper.world import small

SCHEDULE = small()
LOST = 319, 15  # number and turn
NIC = int(SCHEDULE.judges(LOST[1], [LOST[0]])[0])
LATE = int(np.flatnonzero(SCHEDULE.judges(0, range(SCHEDULE.n_probes)) == NIC)[0])
REPORT = Report(
    5 * MS,
    3,
    [Loss(*LOST, 2 * MS)],
    [Loss(LATE, 0, MS)],
    [BurstReport(9, (0, 99), (), (7,))],
    [Round(LOST[1], 2 * MS), Round(0, MS, (LATE,))],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["report", "at_us", "periods", "lost", "late", "bursts", "down", "counted", "heard",
             "join", "schedule", "count", "burst", "port", "n", "entries", "where", "version"]
        ),
        inner,
        max_size=8,
    ),
    max_leaves=10,
)  # fmt: skip


def over_the_wire(message: dict[str, Any]) -> Any:
    return json.loads(json.dumps(message))


def test_what_is_written_is_read() -> None:
    read = words.read(over_the_wire(words.said(REPORT, [2])), SCHEDULE, NIC)
    assert read == words.Reported(REPORT, (2,))
    count = BurstReport(7, (), (1, 98))
    assert words.read(over_the_wire(words.counted(count)), SCHEDULE, NIC) == words.Counted(count)
    for order in (Order(1, 5, 100), Count(3)):
        assert words.read_order(over_the_wire(words.ordered(order)), SCHEDULE) == order
    assert words.read_join(over_the_wire(words.join(SCHEDULE, 7)), SCHEDULE) == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lost", [[320, 0, 1]]),  # no such probe
        ("lost", [[0, 16, 1]]),  # nor such a turn
        ("lost", [[0, 0]]),
        ("lost", [[True, 0, 1]]),
        ("lost", [[0, 0, 1]] * 8193),
        ("late", {}),
        ("bursts", [[1, [100], []]]),
        ("bursts", [[1, [], [100]]]),
        ("rounds", [[16, 0, None]]),
        ("rounds", [[0, -1, None]]),
        ("rounds", [[0, 0]]),
        ("rounds", [[0, 0, [320]]]),
        ("bursts", [[1, 2, 3]]),
        ("down", [4]),
        ("down", [0] * 5),
        ("periods", -1),
        ("at_us", 1 << 62),
        ("at_us", 1.5),
    ],
)
def test_a_report_just_outside_of_what_can_be_is_refused(key: str, value: Any) -> None:
    message = words.said(REPORT, [])
    message["report"][key] = value
    with pytest.raises(InputError):
        words.read(message, SCHEDULE, NIC)


def test_a_probe_that_another_judges_is_refused() -> None:
    for key in ("lost", "late"):
        message = words.said(REPORT, [])
        for nic in range(8):
            if nic != NIC:
                with pytest.raises(InputError, match=f"{NIC} judges, not nic {nic}"):
                    words.read(message, SCHEDULE, nic)
        other = int(np.flatnonzero(SCHEDULE.judges(3, range(SCHEDULE.n_probes)) != NIC)[0])
        message["report"][key] += [[other, 3, 1]]
        with pytest.raises(InputError, match=f"judges, not nic {NIC}"):
            words.read(message, SCHEDULE, NIC)


def test_an_agent_with_another_schedule_is_told_of_both() -> None:
    message = words.join(SCHEDULE, 1)
    message["schedule"]["period_us"] = 1000
    with pytest.raises(InputError, match="start both with the same"):
        words.read_join(message, SCHEDULE)
    with pytest.raises(InputError, match="join"):
        words.read_join({"join": 8}, SCHEDULE)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["report", "counted", "heard", "join", "burst", "count"]), JSON)
)
def test_whatever_is_said_is_read_or_refused_and_a_collector_survives_it(
    message: dict[str, Any],
) -> None:
    for read in (words.read_join, words.read_order):
        with contextlib.suppress(InputError):
            read(message, SCHEDULE)
    try:
        found = words.read(message, SCHEDULE, NIC)
    except InputError:
        return
    collector = Collector(SCHEDULE, 0)
    collector.join(MS, 1)
    if isinstance(found, words.Counted):
        collector.bursts.counted(MS, 1, found.report)
    else:
        collector.hear(MS, 1, found.report)
    collector.tick(MS)


# --- the denylist

FABRIC = multiplane(64, 4, 10**9, 8, 8, 0, 0)
WHERE = "plane 2 t0 3 > t1 7"
S_US = 10**6


def of(*entries: Entry, made_us: int = 100 * S_US) -> Denylist:
    return Denylist(3, made_us, 30.0, entries)


def test_an_entry_counts_from_since_until_until_and_only_while_the_list_is_fresh() -> None:
    one = Entry(WHERE, 90 * S_US, 120 * S_US, "lost all", "mapper")
    assert of(one).valid(100 * S_US) == (one,)
    assert of(one).valid(120 * S_US - 1) == (one,)
    assert of(one).valid(120 * S_US) == ()
    late = Entry(WHERE, 110 * S_US, None, "lost all", "mapper")
    assert of(late).valid(110 * S_US - 1) == ()
    assert of(late).valid(130 * S_US) == (late,)
    assert of(late).valid(130 * S_US + 1) == ()  # stale
    assert of(late, made_us=200 * S_US).valid(199 * S_US) == ()  # from the future


def test_a_version_changes_with_the_entries_and_with_nothing_else() -> None:
    one = Entry(WHERE, 90 * S_US, None, "lost all", "mapper")
    first = of().changed([one], 101 * S_US)
    assert (first.version, first.made_us) == (4, 101 * S_US)
    again = first.changed([one], 105 * S_US)
    assert (again.version, again.made_us) == (4, 105 * S_US)
    assert again.changed([], 106 * S_US).version == 5


def test_a_document_is_read_again_and_one_that_names_what_is_not_there_is_refused() -> None:
    one = Entry(WHERE, 90, None, "lost all", "mapper")
    text = json.dumps(of(one).as_json())
    assert denylist.read(FABRIC, text) == of(one)
    for bad in (
        text.replace("t1 7", "t1 8"),
        text.replace('"since_us": 90', '"since_us": -1'),
        text.replace("lost all", ""),
        text.replace("30.0", "0"),
        text[:-1],
        "[]",
        '{"entries": {}}',
    ):
        with pytest.raises(InputError, match="denylist"):
            denylist.read(FABRIC, bad)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_document_is_read_or_refused(document: Any) -> None:
    with contextlib.suppress(InputError):
        denylist.read(FABRIC, document)


def test_a_list_that_would_deny_much_of_a_fabric_denies_nothing() -> None:
    few = [Entry(WHERE, 0, None, "-", "mapper")]
    assert [FABRIC.port_name(port) for port in denylist.ports(FABRIC, few)] == [WHERE]
    many = [Entry(f"plane {k} t1 {i}", 0, None, "-", "mapper") for k in range(4) for i in range(8)]
    assert len(denylist.ports(FABRIC, many)) == 0
