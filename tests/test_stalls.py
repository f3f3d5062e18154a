"""`benchmarks/stalls.py`: gaps, rows and their table, and faults that a lab carries out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openmrc.fabric import Fault, compile_faults
from openmrc.live.lab.health import healing
from openmrc.run.lab.spec import lab_spec
from openmrc.scenario.scenario import load_lab
from tests import benchmark

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def rows() -> Any:
    return benchmark.load("stalls_rows")


@pytest.fixture(scope="module")
def watch() -> Any:
    return benchmark.load("stalls_watch")


@pytest.fixture(scope="module")
def kinds() -> Any:
    return benchmark.load("stalls_kinds")


@pytest.fixture(scope="module")
def stalls(rows: Any, watch: Any, kinds: Any) -> Any:
    return benchmark.load("stalls")


def a_row(stall_ms: float, share: float, **more: Any) -> dict[str, Any]:
    world = {"switch": "linux", "kind": "a kind", "rate_mbps": 100, "busy": False, "priority": 3}
    return {**world, "stall_ms": stall_ms, "share": share, "gone_ms": 0.0, "load": 1.0, **more}


class FakeLab:
    """Takes faults as a lab does, and carries out none."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.failed: list[str] = []

    def fail(self, where: str, kind: str, **how: float) -> None:
        made: Any = Fault  # its fields by name
        fault = made(at_ps=0, kind=kind, where=where, **how)
        assert len(compile_faults([fault], self.fabric).events)
        self.failed.append(where)

    def heal(self, where: str) -> None:
        assert len(healing(self.fabric, where))


def test_the_longest_gap_counts_both_ends(stalls: Any) -> None:
    at_s = np.array([1.01, 1.02, 1.07])
    assert stalls.longest_gap_ms(at_s, 1.0, 1.1) == pytest.approx(50)
    assert stalls.longest_gap_ms(at_s, 0.9, 1.1) == pytest.approx(110)
    assert stalls.longest_gap_ms(at_s[:0], 1.0, 1.25) == pytest.approx(250)


def test_completions_are_remembered_in_a_ring(
    watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "RING", 4)
    writer = watch.Completions(tmp_path / "ring", "w+")
    times = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(times))
    for n, bad in ((2, 0), (1, 3), (2, 0)):
        writer.add(n, bad)
    reader = watch.Completions(tmp_path / "ring", "r")
    assert (reader.total, reader.paths_bad) == (5, 0)
    assert reader.between(1, 0.0, 9.0).tolist() == [1.0, 2.0, 3.0, 3.0]
    assert reader.between(3, 3.0, 9.0).tolist() == [3.0, 3.0]
    assert reader.between(1, 0.0, 3.0).tolist() == [1.0, 2.0]


def test_the_samples_of_a_fault_begin_with_the_last_one_before_it(
    watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SAMPLES", 8)
    writer = watch.Completions(tmp_path / "ring", "w+")
    assert len(writer.samples(0.0, 9.0)) == 0
    for at_s in range(1, 11):  # the ring has the last eight, of which the writer may be in four
        writer.note([float(at_s)] * len(watch.COLUMNS))
    reader = watch.Completions(tmp_path / "ring", "r")
    assert reader.samples(8.5, 9.5)[:, 0].tolist() == [8.0, 9.0]
    assert reader.samples(0.0, 99.0)[:, 0].tolist() == [7.0, 8.0, 9.0, 10.0]


def test_a_watchdog_notes_when_it_woke_late_and_one_that_sleeps_still_is_late(
    watch: Any, tmp_path: Path
) -> None:
    gaps = watch.Gaps(tmp_path / "gaps", "w+")
    gaps.note(1.000, 1.0005)  # the precision of a sleep
    gaps.note(2.000, 2.0070)
    gaps.note(3.000, 3.0001)
    reader = watch.Gaps(tmp_path / "gaps", "r")
    assert reader.between(0.0, 3.001).tolist() == [[2.0, 2.007]]
    assert reader.between(2.006, 3.001).tolist() == [[2.0, 2.007]]
    assert reader.between(2.008, 3.001).tolist() == []
    [[due_s, woke_s]] = reader.between(2.5, 3.1).tolist()  # it should have woken since
    assert (due_s, woke_s) == (pytest.approx(3.0011), 3.1)


@pytest.mark.parametrize(
    ("spans", "covered_s"),
    [
        ([], 0.0),
        ([[1.2, 1.3]], 0.1),
        ([[0.0, 1.1], [1.9, 9.0]], 0.2),  # as far as they are in this time
        ([[1.5, 1.7], [1.2, 1.6], [1.5, 1.6]], 0.5),  # two cores at once count once
        ([[0.0, 0.5], [2.5, 3.0]], 0.0),
        ([[0.0, 9.0]], 1.0),
    ],
)
def test_spans_cover_a_time(watch: Any, spans: list[list[float]], covered_s: float) -> None:
    rows = np.array(spans).reshape(-1, 2)
    assert watch.covered_s(rows, 1.0, 2.0) == pytest.approx(covered_s)


def test_paths_set_aside_are_counted_from_the_last_sample_before(
    watch: Any, tmp_path: Path
) -> None:
    seen = watch.Completions(tmp_path / "ring", "w+")
    assert (seen.set_aside(0.0, 9.0), seen.silenced(0.0, 9.0)) == (0, 0)
    for at_s, bad, silent in ((1.0, 2, 4), (2.0, 2, 0), (3.0, 5, 1), (4.0, 9, 0)):
        level = dict.fromkeys(watch.COLUMNS, 7)
        found = {"at_s": at_s, "paths_bad": bad, "planes_silent": silent}
        seen.note([*{**level, **found}.values()])
    assert seen.set_aside(2.5, 3.5) == 3
    assert seen.set_aside(1.5, 2.5) == 0
    assert (seen.silenced(2.5, 3.5), seen.silenced(1.5, 2.5)) == (1, 4)


def test_how_long_a_process_waited_and_what_the_host_took_are_known(watch: Any) -> None:
    assert watch.waited_ms(os.getpid()) >= 0
    assert watch.stolen_ms() >= 0


def test_a_priority_is_lowered_as_far_as_there_are_steps(
    watch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []
    now = {0: 3, 7: 1}
    monkeypatch.setattr(watch.os, "sched_getscheduler", lambda _: os.SCHED_RR)
    monkeypatch.setattr(watch.os, "sched_getparam", lambda thread: os.sched_param(now[thread]))
    monkeypatch.setattr(
        watch.os,
        "sched_setscheduler",
        lambda thread, _, to: made.append((thread, to.sched_priority)),
    )
    watch.step_down(2)
    watch.step_down(2, 7)
    assert made == [(0, 1), (7, 1)]
    monkeypatch.setattr(watch.os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    watch.step_down(1)  # not real-time: left alone
    assert len(made) == 2


def test_each_kind_is_a_fault_of_the_lab_and_can_be_healed(
    stalls: Any, kinds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "AFTER_S", 0.0)  # flapping keeps on for so long
    scenario = tmp_path / "lab.toml"
    scenario.write_text(stalls.SCENARIO.format(planes=4, rate_mbps=100, switch="linux"))
    lab = FakeLab(lab_spec(load_lab(str(scenario), [])).fabric)
    rng = np.random.default_rng(1)
    n_failed = []
    for kind in kinds.KINDS.values():
        lab.failed.clear()
        healing_of = kind.begin(lab, rng, 2)
        if healing_of:
            lab.heal(healing_of)
        n_failed.append(len(lab.failed))
    assert n_failed == [0, 1, 1, 1, 1, 0, 1, 3]


def test_a_line_has_percentiles_shares_and_the_histogram(rows: Any) -> None:
    found = [a_row(ms, share) for ms, share in ((0.5, 1.0), (3.0, 0.98), (250.0, 0.5))]
    found.append(a_row(3.0, 0.96, away=0.02))
    cells = rows.line("a kind", found).strip("| ").split(" | ")
    assert cells[:4] == ["a kind", "4", "3.0", "242.6"]
    assert cells[4:9] == ["250.0", "0.97", "0.51", "0.500", "2"]
    assert cells[9:11] == ["0.500", "1"]
    assert cells[11:] == ["1", "0", "2", "0", "0", "0", "0", "0", "1"]
    assert len(rows.head().splitlines()[0].split(" | ")) == len(cells)


def test_faults_during_which_a_core_was_gone_count_and_are_shown_apart(rows: Any) -> None:
    there = [a_row(1.0, 1.0), a_row(12.0, 0.9)]
    gone = [a_row(7.0, 0.96, gone_ms=6.5)]
    assert [one.split(" | ")[:2] for one in rows.lines("cut", there + gone)] == [
        ["| cut", "3"],
        ["| cut, all cores there", "2"],
        ["| cut, a core gone", "1"],
    ]
    assert len(rows.lines("cut", there)) == 1
    assert len(rows.lines("cut", gone)) == 2
    assert [rows.is_bad(row) for row in there + gone] == [False, True, True]


def test_a_table_is_made_of_any_files_each_world_by_itself(rows: Any, tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    rows.append(one, a_row(1.0, 1.0, load=0.5))
    rows.append(one, a_row(1.0, 1.0, switch="openmrc"))
    rows.append(other, a_row(2.0, 1.0, load=4.0))
    rows.append(other, a_row(2.0, 1.0, busy=True, priority=0))
    with other.open("a") as out:
        out.write('{"switch": "linux", "ki')  # the disk was full
    text = rows.table(rows.read([one, other]))
    assert [words for words in text.splitlines() if words.endswith("; ms")] == [
        "linux's switches, 100 Mb/s a plane, real-time priority, load 0.5 to 4.0; ms",
        "openmrc's switches, 100 Mb/s a plane, real-time priority, load 1.0 to 1.0; ms",
        "linux's switches, 100 Mb/s a plane, normal priority, all cores busy, load 1.0 to 1.0; ms",
    ]
    assert [words.split(" | ")[:2] for words in text.splitlines() if "| a kind" in words] == [
        ["| a kind", "2"],
        ["| a kind", "1"],
        ["| a kind", "1"],
    ]


def test_a_run_goes_on_where_the_file_ends(stalls: Any, rows: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    options = argparse.Namespace(rate_mbps=100, busy=False, priority=3, seed=1, faults=4, rows=path)
    path.touch()
    assert stalls.missing("linux", "nothing", options) == [0, 1, 2, 3]
    for number in (0, 2):
        rows.append(path, {**a_row(1, 1), **stalls.key("linux", "nothing", number, options)})
    rows.append(path, stalls.key("openmrc", "nothing", 1, options))
    rows.append(path, stalls.key("linux", "silent plane", 1, options))
    assert stalls.missing("linux", "nothing", options) == [1, 3]
    options.seed = 2
    assert stalls.missing("linux", "nothing", options) == [0, 1, 2, 3]
    options.seed, options.busy = 1, True
    assert stalls.missing("linux", "nothing", options) == [0, 1, 2, 3]


def test_a_lost_queue_pair_is_a_fault_that_misses_both_bars(stalls: Any, rows: Any) -> None:
    row = stalls.lost_row()
    assert (row["stall_ms"], row["share"]) == (250.0, 0.0)
    assert rows.is_bad(row)
    assert not rows.is_gone(row)


def test_a_trace_has_goodput_counters_since_the_fault_and_the_times_without_a_core(
    stalls: Any, watch: Any, tmp_path: Path
) -> None:
    seen = watch.Completions(tmp_path / "ring", "w+")
    seen.at_s[:3] = 10.001, 10.002, 10.015
    seen.at_s[watch.RING] = 3
    for at_s, rtx in ((9.99, 5), (10.005, 5), (10.015, 12)):
        level = dict.fromkeys(watch.COLUMNS, 7)
        seen.note([*{**level, "at_s": at_s, "rtx": rtx}.values()])
    found = stalls.trace(seen, [[1, 3.0, 6.5]], 0, 10.0, 10.03)
    assert found["mbps"] == [26, 13]
    assert [sample[:2] for sample in found["samples"]] == [[-10, 0], [5, 0], [15, 7]]
    assert found["samples"][0][-1] == 7  # a level, not a counter
    assert found["columns"][:2] == ["at_ms", "rtx"]
    assert found["gone"] == [[1, 3.0, 6.5]]
