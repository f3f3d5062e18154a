"""What `mrc why` leaves out: what came late, what only crowds, and what began before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from openmrc.fabric import multiplane
from openmrc.ops import causes, harm
from openmrc.ops.balance import Missing
from openmrc.ops.damage import Damaged, damaged
from openmrc.ops.doubts import is_late, without_drops_around, without_echoes
from openmrc.ops.hung import Hang
from openmrc.ops.localise import Verdict
from openmrc.ops.records import BACKGROUND, JAMMED, UNPROVEN, Record
from openmrc.ops.together import Finding
from openmrc.ops.why import (
    PROBES_MIN,
    Answer,
    _answered_none,
    _earliest_us,
    _is_dead,
    _ranked,
    _whole_switches,
    why,
)

FABRIC = multiplane(64, 2, 100 * 10**9, 8, 8, 0, 0)
SUMMARY = {"sim_time_us": 400.0, "qp_errors": [], "packets": {"trimmed": 0, "data": 10_000}}
UNTIL_US = 100.0


def record(
    lost: Sequence[tuple[int, int, int, int, float, int]],
    events: Sequence[tuple[int, float, str]] = (),
    trimmed: float = 0.0,
) -> Record:
    """Queue pair q sends from NIC q to NIC 63 - q, over every path of both planes, 100 packets a
    path, of which a part is `trimmed`; `lost` has (queue pair, plane, uplink, sent, when, lost),
    `events` (row of lost, when, what).
    """
    evs = [FABRIC.ev(plane, uplink) for _, plane, uplink, *_ in lost]
    rows = [
        (0.0, UNTIL_US, q, q, 63 - q, ev, *more[2:])
        for (q, *more), ev in zip(lost, evs, strict=True)
    ]
    columns = ["from_us", "until_us", "qp", "src", "dst", "ev", "sent", "first_us", "lost"]
    paths = pl.DataFrame(rows, schema=columns, orient="row").with_columns(
        last_us="first_us", narrow_bytes=pl.lit(0)
    )
    told = [(at, lost[i][0], lost[i][0], 63 - lost[i][0], evs[i], what) for i, at, what in events]
    names = ["t_us", "qp", "src", "dst", "ev", "event"]
    kinds = dict(zip(names, [pl.Float64, *[pl.Int64] * 4, pl.String], strict=True))
    every = [
        (port, 100)
        for q in range(32)
        for plane in range(2)
        for uplink in range(8)
        for port in FABRIC.route(q, 63 - q, FABRIC.ev(plane, uplink))
    ]
    links = pl.DataFrame(every, schema=["port", "packets"], orient="row").group_by("port").sum()
    flows = pl.DataFrame(
        {"qp": range(32), "dst": range(63, 31, -1), "bytes": [1600 * 4096] * 32}
    ).with_columns(retransmitted=pl.lit(0), failed=False, done_us=400.0, start_us=0.0, job=None)
    return Record(
        "mrc", FABRIC, SUMMARY, flows, None, pl.DataFrame(told, schema=kinds, orient="row"), paths,
        links.with_columns(from_us=0.0, until_us=UNTIL_US, trimmed=trimmed * pl.col("packets")),
    )  # fmt: skip


def dead(uplink: int = 3, at: float = 20.0) -> list[tuple[int, int, int, int, float, int]]:
    """T0 1 of plane 1, whose NICs 8 to 15 send: one uplink lets nothing through."""
    return [(q, 1, uplink, 3, at + q, 4) for q in range(8, 16)]


def test_an_uplink_that_lost_everything_is_named() -> None:
    rows = dead()
    aside = [(i, 28.0 + i, "set aside") for i in range(8)]
    (found,) = why(record(rows, aside)).findings
    assert (found.where, found.since_us, found.paths) == ("plane 1 t0 1 > t1 3", 28.0, 8)
    assert found.aside_us == sum(400.0 - 28.0 - i for i in range(8))


def test_an_uplink_that_passes_small_packets_only_is_said_to_have_too_small_an_mtu() -> None:
    """If most of its paths show it: with fewer it is a place that lost packets."""
    rows = dead()
    one = record(rows, [(i, 28.0 + i, "set aside") for i in range(8)])
    for n, bytes_, sentence in (
        (5, 4096, "passes 120 B and loses 4,096 B of data (MTU?) from 28us on;"),
        (4, 0, "let nothing through"),
    ):
        narrow = pl.Series("narrow_bytes", [4096] * n + [0] * (8 - n))
        answer = why(replace(one, paths=one.paths.with_columns(narrow)))
        assert answer.findings[0].narrow_bytes == bytes_
        assert sentence in answer.text


def by_bins(lost: Sequence[int], sent: int = 40, one: Record | None = None) -> Record:
    """What each path of `one` (None: NIC 8's only lossy link) loses in each of some bins of 100 us,
    of `sent` packets.
    """
    one = record([(8, 1, 3, sent, 20.0, 1)]) if one is None else one
    begins = [100.0 * i for i in range(len(lost))]

    def in_bin(frame: pl.DataFrame, i: int) -> pl.DataFrame:
        return frame.with_columns(from_us=pl.lit(begins[i]), until_us=pl.lit(begins[i] + 100))

    when = [pl.lit(begin) for begin in begins]
    paths = pl.concat(
        in_bin(one.paths, i).with_columns(lost=pl.lit(n), first_us=when[i], last_us=when[i])
        for i, n in enumerate(lost)
    )
    counts = pl.col("packets", "trimmed") * (sent / pl.col("packets"))
    links = pl.concat(in_bin(one.links.with_columns(counts), i) for i in range(len(lost)))
    return replace(one, paths=paths, links=links)


def test_what_loses_a_little_for_a_part_of_a_crowded_run_is_named() -> None:
    """32 of 400 packets in each of four bins of sixteen: where two of a hundred may be late, that
    is not enough in a bin, and no more than chance in the whole run.
    """
    crowded = record([(q, 1, 3, 50, 20.0, 4) for q in range(8, 16)], trimmed=0.38)
    run = by_bins([0] * 6 + [4] * 4 + [0] * 6, 400, crowded)
    (found,) = why(replace(run, paths=run.paths.filter(pl.col("lost") > 0))).findings
    assert (found.where, found.lost, found.dead) == ("plane 1 t0 1 > t1 3", 128, False)
    assert (found.since_us, found.until_us) == (600.0, 900.0)
    run = by_bins([0] * 6 + [4, 0, 0, 4] + [0] * 6, 400, crowded)
    assert not why(replace(run, paths=run.paths.filter(pl.col("lost") > 0))).findings


def test_behind_full_queues_one_queue_pair_is_no_witness() -> None:
    """It judges many packets lost at once; two that do so may be the same accident."""
    alone = [(8, 1, 3, 25, at, 7) for at in (0.0, 30.0, 60.0, 90.0)] + [(9, 1, 3, 100, 20.0, 1)]
    assert why(record(alone)).findings
    assert not why(record(alone, trimmed=0.25)).findings
    many = [(q, 1, 3, 100, 12.0 * (q - 8), 13) for q in range(8, 16)]
    (found,) = why(record(many, trimmed=0.25)).findings
    assert found.where == "plane 1 t0 1 > t1 3"


@pytest.mark.parametrize(
    ("apart_us", "event", "named"),
    [(0.5, "back", False), (9.0, "back", True), (0.5, "congested", True)],
)
def test_what_many_lost_at_one_moment_is_one_event_unless_their_paths_stay_away(
    apart_us: float, event: str, named: bool
) -> None:
    """Such as packets whose answers stay away: each queue pair judges its own lost."""
    rows = [(q, 1, 3, 50, 20.0 + apart_us * (q - 8), 3) for q in range(8, 16)]
    events = [(i, 20.0 + apart_us * i, "set aside") for i in range(8)]
    answer = why(record(rows, [*events, *((i, 190.0, event) for i in range(8))]))
    assert bool(answer.findings) is named


def test_where_full_queues_dropped_as_many_only_what_let_nothing_through_is_named() -> None:
    place = "plane 1 t0 1 > t1 3"
    some = record([(q, 1, 3, 100, 12.0 * (q - 8), 13) for q in range(8, 16)])
    assert why(some).findings
    answer = why(dropping(104, place, some))
    assert not answer.findings
    assert "104 packets on 1 path count as lost, maybe to full queues." in answer.text
    aside = [(i, 28.0 + i, "set aside") for i in range(8)]
    assert not why(dropping(104, place, record(dead(), aside))).findings
    (found,) = why(dropping(0, place, record(dead(), aside))).findings
    assert (found.where, found.dead) == (place, True)


def test_a_loss_long_after_all_others_does_not_prolong_a_fault_if_chance_explains_it() -> None:
    crowded = record([(q, 1, 3, 50, 20.0, 3) for q in range(8, 16)], trimmed=0.3)
    for last, until_us in ((1, 300.0), (30, 900.0)):
        run = by_bins([5, 5, 5, 5, 0, 0, 0, 0, 0, last], 400, crowded)
        late = (pl.col("from_us") == 900.0) & (pl.col("qp") != 8)
        rows = run.paths.filter((pl.col("lost") > 0) & ~late)
        (found,) = why(replace(run, paths=rows)).findings
        assert (found.since_us, found.until_us) == (0.0, until_us)


def test_what_loses_a_part_in_the_middle_is_not_dead_and_began_with_its_first_loss() -> None:
    rows = by_bins([10, 8, 9, 10, 4]).paths
    cause = FABRIC.route(8, 55, FABRIC.ev(1, 3))[0]
    assert not _is_dead(by_bins([10, 8, 9, 10, 4]), cause, rows)


@pytest.mark.parametrize(("trimmed", "since_us"), [(0.0, 30.0), (0.5, 300.0)])
def test_a_few_early_losses_are_another_event_only_if_they_may_be_chance(
    trimmed: float, since_us: float
) -> None:
    early = [(q, 1, 3, 100, 30.0 + q - 8, 1) for q in range(8, 11)]
    most = [(q, 1, 3, 100, 300.0 + 8 * (q - 8), 22) for q in range(8, 16)]
    (found,) = why(record([*early, *most], trimmed=trimmed)).findings
    assert (found.where, found.since_us) == ("plane 1 t0 1 > t1 3", since_us)


def test_a_path_that_is_set_aside_again_had_not_returned() -> None:
    """What answers one probe of 41 by accident is dead all the same."""
    aside = [(i, 28.0 + 5 * i, "set aside") for i in range(8)]
    again = [(0, 30.0, "back"), (0, 31.0, "set aside")]
    back = [(i, 90.0 + i, "back") for i in range(8)]
    rows = [(q, 1, 3, 100, 20.0 + q, 10) for q in range(8, 16)]
    (found,) = why(record(rows, [*aside, *again, *back])).findings
    assert found.dead


def test_what_lets_nothing_through_between_its_first_and_its_last_bin_is_dead() -> None:
    gone = by_bins([10, 40, 40, 40, 4])
    cause = FABRIC.route(8, 55, FABRIC.ev(1, 3))[0]
    assert _is_dead(gone, cause, gone.paths)
    few = by_bins([100, 100, 1, 1], 100)  # what is judged late does not keep it alive
    assert _is_dead(few, cause, few.paths)


@pytest.mark.parametrize(("back", "dead_until"), [(310.0, 300.0), (15.0, None)])
def test_what_no_path_comes_back_from_is_dead_and_over_when_one_does(
    back: float, dead_until: float | None
) -> None:
    events = [(i, 10.0 + i, "set aside") for i in range(8)]
    events += [(i, back + i, "back") for i in range(8)]
    half = by_bins([5, 5, 5, 5, 1], 80, record(dead(), events))  # late probes are lost in the end
    (found,) = why(half).findings
    assert found.where == "plane 1 t0 1 > t1 3"
    assert (found.dead, found.until_us) == (dead_until is not None, dead_until or 400.0)


@pytest.mark.parametrize(
    ("each", "passed", "gone"), [(3, 40, True), (3, 90, False), (2, 40, False)]
)
def test_what_passed_before_a_place_failed_for_good_does_not_keep_it_alive(
    each: int, passed: int, gone: bool
) -> None:
    """It failed at the end of a bin in which 4,000 packets crossed it, and 8 paths met it."""
    aside = [(i, 28.0 + i, "set aside") for i in range(8)]
    run = by_bins([3, each, each], passed, record(dead(), aside))
    before = pl.when(pl.col("from_us") == 0).then(4000).otherwise(pl.col("packets"))
    (found,) = why(replace(run, links=run.links.with_columns(packets=before))).findings
    assert (found.where, found.paths, found.dead) == ("plane 1 t0 1 > t1 3", 8, gone)


@pytest.mark.parametrize(
    ("probes", "answered", "dead"), [(40, 0, True), (39, 0, False), (45, 5, True), (44, 5, False)]
)
def test_what_answered_hardly_any_of_many_probes_until_paths_returned_was_dead(
    probes: int, answered: int, dead: bool
) -> None:
    assert PROBES_MIN == 40
    lost = [(q, 1, 3, 100, 20.0, 1 + probes // 8 + (q < 8 + probes % 8)) for q in range(8, 16)]
    events = [(i, 28.0 + i, "set aside") for i in range(8)]
    events += [(i % 8, 60.0 + i, "back") for i in range(answered)]
    events += [(i, 80.0 + i, "back") for i in range(8)]
    one = record(lost, events)
    assert one.events is not None
    assert _answered_none(one.paths, one.events, 80.0) is dead


def test_a_fault_that_is_shorter_than_a_bin_is_known_by_its_probes() -> None:
    rows = [(q, 1, 3, 30, at, lost) for q, *_, at, lost in dead()]
    events = [(i, 28.0 + i, "set aside") for i in range(8)]
    events += [(i, 80.0 + i, "back") for i in range(8)]
    (few,) = why(record(rows, events)).findings
    (many,) = why(record([(*row[:5], 6) for row in rows], events)).findings
    assert (few.dead, many.dead) == (False, True)
    assert (many.since_us, many.until_us) == (28.0, 35.0)


def test_paths_that_answered_no_probe_are_told_as_such() -> None:
    answer = why(record([(*row[:3], 0, *row[4:]) for row in dead()]))
    (found,) = answer.findings
    assert (found.paths, found.unanswered, found.dead) == (0, 8, True)
    assert "8 paths of 8 queue pairs answered no probe and never carried data." in answer.text


def test_a_place_of_whose_losses_nearly_as_many_proved_to_be_late_is_not_named() -> None:
    cause, rows = FABRIC.route(8, 55, FABRIC.ev(1, 3))[1], np.ones(8, np.bool_)
    alarms = [(i, 40.0 + i, "false alarm") for i in range(8)]
    assert is_late(record(dead(), alarms), cause, rows)
    assert not is_late(record(dead(), alarms[1:]), cause, rows)
    much = [(q, 1, 3, 100, 20.0, 8) for q in range(8, 16)]
    assert not is_late(record(much, alarms * 2), cause, rows)


def dropping(drops: int, place: str, run: Record | None = None) -> Record:
    """NICs 8 to 15 lose 32 of the packets that they send over an uplink, evenly, and switches that
    do not trim dropped some packets at the port of this place; or what a `run` loses.
    """
    if run is None:
        run = record([(q, 1, 3, 100, 12.0 * (q - 8), 4) for q in range(8, 16)])
    port = next(port for port in range(FABRIC.n_ports) if FABRIC.port_name(port) == place)
    dropped = pl.when(pl.col("port") == port).then(drops).otherwise(0)
    links = run.links.with_columns(dropped=dropped)
    return replace(run, links=links, trims=False)


@pytest.mark.parametrize(
    ("drops", "place", "named"),
    [
        (0, "plane 1 t0 1 > t1 3", True),
        (32, "plane 1 t0 1 > t1 3", False),  # its own queue was full: it is slow, not damaged
        (1, "plane 1 t0 1 > t1 3", True),
        (900, "plane 1 t0 1 > t1 4", True),  # a queue that none of these packets crossed
        (900, "nic 55 plane 1 < t0", True),  # one that an eighth of them did
    ],
)
def test_what_lost_a_part_is_named_if_full_queues_dropped_less(
    drops: int, place: str, named: bool
) -> None:
    findings = why(dropping(drops, place)).findings
    assert [it.where for it in findings] == ["plane 1 t0 1 > t1 3"] * named
    assert all(it.beyond_drops for it in findings)


def test_what_full_queues_dropped_is_told() -> None:
    told = why(dropping(900, "plane 1 t0 1 > t1 4")).text
    assert "full queues dropped 900 packets, most of them at plane 1 t0 1 to t1 4" in told


def misses(one: Record, packets: float, *switches: str) -> Record:
    """The record, if so many packets are missing at each of these switches."""
    found = np.zeros(FABRIC.n_switches)
    names = [FABRIC.switch_name(switch) for switch in range(FABRIC.n_switches)]
    found[[names.index(switch) for switch in switches]] = packets
    summary = {**SUMMARY, "packets": {"trimmed": 0, "data": 10_000, "dropped_corrupt": 0}}
    return replace(one, summary=summary, missing=Missing(FABRIC, found))


@pytest.mark.parametrize(
    ("apart_us", "switches", "where", "known"),
    [
        (12.0, ["plane 1 t0 1"], "nic 8 plane 1 > t0", True),
        (12.0, ["plane 0 t0 1"], "nic 55 plane 1 < t0", True),  # behind the last switch
        (0.1, ["plane 1 t0 1"], "nic 8 plane 1 > t0", False),  # all at once: what was down ...
        (0.1, [], "nic 8 plane 1 > t0", False),  # ... did not send
    ],
)
def test_the_end_at_which_a_queue_pair_loses_is_known_by_whether_packets_are_missing(
    apart_us: float, switches: list[str], where: str, known: bool
) -> None:
    """NIC 8 loses packets on every path of a plane to NIC 55, and no other does."""
    rows = [(8, 1, uplink, 100, apart_us * uplink, 4) for uplink in range(8)]
    aside = [(uplink, apart_us * uplink, "set aside") for uplink in range(8)]
    (found,) = why(misses(record(rows, aside), 32, *switches)).findings
    assert found.where == where
    assert found.one_of == ("nic 55 plane 1 < t0",) * (not known)


def arrived(one: Record, packets: int, until_us: float = UNTIL_US) -> Damaged:
    """So many damaged packets for each path that lost packets, on its last link, until then."""
    ports = one.routes(one.paths)[:, -1].tolist()
    rows = [(port, 0.0, until_us, packets) for port in ports]
    columns = ["port", "from_us", "until_us", "damaged"]
    return damaged(FABRIC, pl.DataFrame(rows, schema=columns, orient="row"))


def test_a_switch_at_which_nothing_is_missing_is_not_blamed_unless_packets_were_damaged() -> None:
    rows = [(q, 1, 3, 100, 12.0 * (q - 8), 13) for q in range(8, 16)]
    one = record(rows)
    (found,) = why(misses(one, 104, "plane 1 t1 3")).findings
    assert found.where == "plane 1 t0 1 > t1 3"
    clear = misses(one, 0)
    assert not why(clear).findings
    assert why(replace(clear, damaged=arrived(one, 13))).findings


def test_a_switch_at_which_packets_are_missing_is_no_echo() -> None:
    def told(counted: bool) -> list[Finding]:
        one = Finding(
            "plane 1 t1 3", "switch", (), (), False, 0.02, 30, 0.0, 100.0, 8, 8, 8, 120.0, 50.0,
            counted=counted,
        )  # fmt: skip
        dead_too = replace(one, where="plane 0 t1 1", dead=True, rate=1.0, lost=1000)
        return without_echoes(record(dead()), [one, dead_too])

    assert [len(told(counted)) for counted in (False, True)] == [1, 2]


def test_what_set_paths_aside_only_after_its_last_loss_was_not_dead() -> None:
    again = [(i, 300.0 + i, "set aside") for i in range(8)]
    (found,) = why(record(dead(), again)).findings
    assert (found.dead, found.since_us, found.until_us) == (False, 28.0, 35.0)


def test_one_queue_pair_whose_probes_no_one_answers_yet_is_no_witness() -> None:
    """It probes eight paths before it sends; what eight do is no accident."""

    def waiting(*qps: int) -> Record:
        return record([(q, 1, uplink, 0, 12.0 * uplink, 2) for q in qps for uplink in range(8)])

    assert not why(waiting(8)).findings
    assert why(waiting(*range(8, 16))).findings
    used = [(i, 0.0, "set aside") for i in range(8)]
    rows = [(8, 1, uplink, 0, 12.0 * uplink, 2) for uplink in range(8)]
    assert why(record(rows, used)).findings


def test_paths_that_were_back_before_met_something_else() -> None:
    rows = dead()
    aside = [(i, 28.0 + i, "set aside") for i in range(8)]
    aside += [(5, 3.0, "set aside"), (5, 9.0, "back")]
    (found,) = why(record(rows, aside)).findings
    assert found.since_us == 28.0


def test_packets_that_proved_to_be_late_make_chance_likelier() -> None:
    everywhere = [(q, 1, 3, 100, 30.0, 1) for q in range(32)]
    some = record(everywhere, [(i, 40.0, "false alarm") for i in range(5)])
    proved = UNPROVEN * 5 / (32 * 8 * 100)
    assert some.evidence(some.bins()).background == pytest.approx([BACKGROUND + proved] * 32)
    many = record(everywhere, [(i, 40.0, "false alarm") for i in range(32)])
    usual = 1 / 800  # no more than most NICs miss
    assert many.evidence(many.bins()).background == pytest.approx([BACKGROUND + usual] * 32)
    few = record(dead(), [(i, 40.0, "false alarm") for i in range(8)])
    assert few.evidence(few.bins()).background == pytest.approx([BACKGROUND] * 8)


def test_where_most_packets_are_trimmed_more_may_be_late() -> None:
    jam = record(dead(), trimmed=0.1)
    expected = BACKGROUND + JAMMED * 0.1**2
    assert jam.evidence(jam.bins()).background == pytest.approx([expected] * 8)


def test_a_switch_that_lost_a_little_is_an_echo_of_something_dead_or_of_what_was_late() -> None:
    quiet = record(dead())
    gray = finding("plane 0 t0 1", "switch", 80, 0.01, False)
    worst = finding("plane 1 t0 2 > t1 3", "link", 200, 1.0, True)
    assert without_echoes(quiet, [gray]) == [gray]
    assert without_echoes(quiet, [gray, worst]) == [worst]
    assert without_echoes(quiet, [gray, replace(worst, lost=150)])[0] == gray
    assert without_echoes(quiet, [replace(gray, rate=0.5), worst])[0].rate == 0.5
    late = record(dead(), [(i % 8, 40.0 + i, "false alarm") for i in range(20)])
    assert without_echoes(late, [gray]) == []
    assert without_echoes(late, [replace(gray, lost=81)]) != []


def finding(where: str, kind: str, lost: int, rate: float, is_dead: bool) -> Finding:
    return Finding(
        where, kind, (), (), is_dead, rate, lost, 1.0, 9.0, 3, 3, 0, None, 90.0, 10.0 * lost
    )


def test_the_worst_stands_first_and_what_to_watch_last() -> None:
    broken = [
        finding("plane 0 t0 1", "switch", 10, 0.9, True),
        finding("plane 1 t0 2 > t1 3", "link", 40, 0.2, False),
    ]
    quiet = record([(40 % 32, 0, 5, 100, 50.0, 2)])
    rows = harm.ranked(quiet, Answer("mrc", True, tuple(broken), ""))
    assert [(row.where, row.what) for row in rows[:2]] == [
        ("plane 1 t0 2 > t1 3", "lossy"),
        ("plane 0 t0 1", "dead"),
    ]
    watched = rows[2:]
    assert {row.what for row in watched} == {"to watch"}
    assert "plane 0 t0 1 > t1 5" in {row.where for row in watched}
    assert all(row.lost == 2 for row in watched)
    assert harm.title(quiet, rows) == "mrc: 2 places broke, and no queue pair failed"
    assert harm.title(quiet, watched) == "mrc: nothing broke"
    unknown = replace(quiet, events=None)
    assert harm.title(unknown, []) == "mrc: its senders keep no account of paths"
    assert len(harm.cells(rows)[0]) == len(harm.COLUMNS)


def test_what_keeps_no_account_names_the_places_that_are_too_narrow() -> None:
    lines = ["nic 1 plane 1: MTU?", "nic 5 plane 0: MTU?"]
    summary = SUMMARY | {"packets": {"retransmitted": 3}, "narrow_paths": lines}
    answer = why(replace(record(dead()), events=None, summary=summary))
    assert (
        "3 packets were sent again. Across nic 1 plane 1: MTU? Across nic 5 plane 0: MTU? Of other"
        " losses senders keep no account here; probes could." in answer.text
    )


def verdict(cause: int, nats: float, kind: str = "link", one_of: tuple[int, ...] = ()) -> Verdict:
    return Verdict(cause, kind, "", 0.1, 9, 90, 0, None, nats, 9.0, one_of)


@pytest.mark.parametrize(
    ("outline", "nats"),
    [(None, [90, 90, 30, 20, 70]), (SimpleNamespace(fabric=FABRIC), [50, 40, 30, 20, 70])],
)
def test_links_of_a_switch_named_beside_each_other_count_together(
    outline: Any, nats: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three links in one plane, of which two lead to the same T1; one of two; and a switch."""
    first, second, apart = (
        int(FABRIC.route(src, 63, FABRIC.ev(0, up))[1]) for src, up in ((0, 1), (8, 1), (16, 2))
    )

    found = [
        verdict(first, 50),
        verdict(second, 40),
        verdict(apart, 30),
        verdict(first, 20, one_of=(second,)),
        verdict(FABRIC.n_ports, 70, "switch"),
    ]
    monkeypatch.setattr("openmrc.ops.why.localise", lambda *_: found)
    seen = replace(record([(0, 0, 1, 90, 50.0, 9)]), outline=outline)
    monkeypatch.setattr(Record, "evidence", lambda *_: None)
    assert [each[2] for each in _ranked(seen, [0.0])] == nats


UP, DOWN, OTHER = "plane 1 t0 1 > t1 3", "plane 1 t0 6 < t1 3", "plane 1 t0 0 > t1 3"


@pytest.mark.parametrize(
    ("links", "missing", "where"),
    [
        ([UP, DOWN], {"plane 1 t1 3": 104}, "plane 1 t1 3"),
        ([UP, DOWN], {"plane 1 t1 3": 400}, "plane 1 t1 3"),  # more than senders know of
        ([UP, DOWN], {"plane 1 t1 3": 50}, None),
        ([UP, DOWN], {"plane 1 t1 3": 104, "plane 1 t0 6": 30}, None),  # it came out
        ([UP, DOWN], {"plane 1 t1 3": 104, "plane 1 t0 1": 30}, None),  # a port was down
        ([UP, OTHER], {"plane 1 t1 3": 104}, None),  # it may be these links
        ([DOWN], {"plane 1 t1 3": 104}, None),
    ],
)
def test_links_into_and_out_of_a_switch_are_the_switch_if_packets_are_missing_there_alone(
    links: list[str], missing: dict[str, int], where: str | None
) -> None:
    one = dropping(0, UP, record([(q, 1, 3, 100, 12.0 * (q - 8), 13) for q in range(8, 16)]))
    found = np.zeros(FABRIC.n_switches)
    names = [FABRIC.switch_name(switch) for switch in range(FABRIC.n_switches)]
    for at, packets in missing.items():
        found[names.index(at)] = packets
    one = replace(one, missing=Missing(FABRIC, found))
    ports = [FABRIC.port_name(port) for port in range(FABRIC.n_ports)]
    blamed = [verdict(ports.index(link), 30.0 + i) for i, link in enumerate(links)]
    crossed = causes.of_routes(FABRIC, one.routes(one.paths))
    switches = _whole_switches(one, blamed, crossed)
    assert [it.where for it in switches.values()] == [where] * (where is not None)
    assert all(it.kind == "switch" and it.nats == 61 for it in switches.values())
    assert not _whole_switches(replace(one, trims=True), blamed, crossed)


@pytest.mark.parametrize(
    ("rate", "since_us", "earliest_us"),
    [
        (0.05, 100.0, 0.0),  # five losses of 100 packets, all but none
        (0.1, 100.0, 50.0),
        (0.1, 80.0, 30.0),
        (0.01, 100.0, 0.0),
    ],
)
def test_before_its_first_loss_a_link_may_have_been_bad_while_few_packets_crossed(
    rate: float, since_us: float, earliest_us: float
) -> None:
    one = record([(8, 1, 3, 100, 20.0, 4)])  # 100 packets on each link from 0 to 100 us
    port = FABRIC.route(8, 55, FABRIC.ev(1, 3))[0]
    links = one.links.with_columns(packets=pl.lit(100))
    found = _earliest_us(replace(one, links=links), port, rate, since_us)
    assert found == pytest.approx(earliest_us)


def test_a_switch_that_hung_is_told_by_what_ports_counted() -> None:
    switch = FABRIC.port_peer_switch[FABRIC.route(8, 55, FABRIC.ev(1, 3))[1]]
    hung = Hang(int(switch), 40.0, 60.0, 1234, True)
    answer = why(replace(record([(8, 1, 3, 100, 20.0, 4)]), hung=(hung,)))
    assert [it.where for it in answer.findings] == ["plane 1 t1 3"]
    said = "Plane 1 t1 3 let nothing through from 40us to 60us: 1,234 packets went in and none came"
    assert said in answer.text
    assert not why(replace(record([(8, 1, 3, 100, 20.0, 4)]), hung=(hung,)), since_us=61).findings


def test_what_was_lost_outside_the_time_of_blame_alone_is_kept() -> None:
    one = dropping(0, UP)
    mine = np.ones(len(one.paths), np.bool_)
    port = next(port for port in range(FABRIC.n_ports) if FABRIC.port_name(port) == UP)
    assert without_drops_around(one, port, mine, ~mine).all()
    half = np.arange(len(mine)) < 4
    assert (without_drops_around(one, port, mine, half) == half).all()
