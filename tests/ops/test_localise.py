"""Faults of all kinds, found by probes or by paths, with exact answers."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric import Fabric, multiplane, places
from openmrc.fabric.ways import routes
from openmrc.ops import causes, evidence, schedule
from openmrc.ops.localise import Rules, Verdict, localise, suspected
from openmrc.units import MS

RATE = 100 * 10**9
FABRIC = multiplane(64, 2, RATE, 8, 8, 0, 0)
SCHEDULE = schedule.make(FABRIC)
BOTH_WAYS = ("plane 1 t0 3 > t1 5", "plane 1 t0 3 < t1 5")


def losing(fabric: Fabric, bad: Mapping[str, float]) -> np.ndarray:
    """By directed port (and one for none), what a packet loses there: log of what comes through."""
    through = np.zeros(fabric.n_ports + 1)
    for where, rate in bad.items():
        through[places.ports(fabric, where)] += np.log1p(-min(rate, 1 - 1e-15))
    return through


def probed(bad: Mapping[str, float], periods: int = 10) -> evidence.Evidence:
    """What agents see in so many periods: of each probe as many lost as are to be expected, and the
    rest carried on to the next one.
    """
    through = losing(FABRIC, bad)
    turns, numbers, lost = [], [], []
    carried = 0.0
    for turn in range(min(periods, schedule.TURNS)):
        sent = -(-(periods - turn) // schedule.TURNS)
        expected = -np.expm1(through[SCHEDULE.routes(turn)].sum(axis=1)) * sent
        for number in np.flatnonzero(expected).tolist():
            carried += expected[number] + 1e-9
            turns.append(turn)
            numbers.append(number)
            lost.append(int(carried))
            carried -= int(carried)
    lossy = np.flatnonzero(lost)
    return evidence.of_probes(
        SCHEDULE, np.array(turns)[lossy], np.array(numbers)[lossy], np.array(lost)[lossy], periods
    )


def named(verdicts: list[Verdict]) -> set[str]:
    return {verdict.where for verdict in verdicts if verdict.is_sure}


@pytest.mark.parametrize(
    "where",
    [
        "nic 7 plane 1 > t0",
        "nic 7 plane 1 < t0",
        "plane 1 t0 3 > t1 5",
        "plane 1 t0 3 < t1 5",
        "plane 0 t0 7",
        "plane 1 t1 2",
        "nic 40",
    ],
)
def test_what_forwards_nothing_is_named_within_a_period_with_its_direction(where: str) -> None:
    (verdict,) = localise(FABRIC, probed({where: 1.0}, 1))
    assert (verdict.where, verdict.is_sure) == (where, True)
    assert verdict.rate == pytest.approx(1)
    assert verdict.lost == verdict.crossed


def test_a_cable_that_is_cut_is_two_directions_and_no_switch() -> None:
    found = localise(FABRIC, probed(dict.fromkeys(BOTH_WAYS, 1.0)))
    assert named(found) == set(BOTH_WAYS)
    assert len(found) == 2


@pytest.mark.parametrize("late", [0, 2])
def test_a_cut_cable_is_no_switch_where_most_of_what_crosses_the_switch_crosses_it(
    late: int,
) -> None:
    fabric = multiplane(8, 1, RATE, 4, 2, 0, 0)
    probes = schedule.make(fabric)
    up = [int(places.ports(fabric, f"plane 0 t0 {i} > t1 {j}")[0]) for i in (0, 1) for j in (0, 1)]
    sent = np.concatenate([probes.burst(port, 60) for port in up])
    cut = {up[1], int(fabric.port_reverse[up[1]])}
    lost = np.asarray(np.isin(sent, list(cut)).any(axis=1), np.int64)
    over = (sent == up[3]).any(axis=1)  # crosses the same T1
    lost[np.flatnonzero(over & (lost == 0))[:late]] = 1
    found = localise(fabric, evidence.of_burst(fabric, sent, lost, 0, MS))
    assert {verdict.cause for verdict in found if verdict.is_sure} == cut
    assert not any(verdict.kind == causes.SWITCH for verdict in found)


@pytest.mark.parametrize("where", ["nic 7 plane 1 < t0", "plane 1 t0 3 > t1 5"])
def test_a_link_that_loses_one_of_a_thousand_is_named_with_its_rate(where: str) -> None:
    (verdict,) = localise(FABRIC, probed({where: 1e-3}, 2000))
    assert verdict.where == where
    assert verdict.is_sure
    assert verdict.rate == pytest.approx(1e-3, rel=0.1)
    assert verdict.crossed == 20_000


def test_three_bad_links_of_a_switch_are_not_the_switch() -> None:
    bad = {f"plane 0 t0 {i} > t1 4": 0.002 for i in (1, 3, 6)}
    assert named(localise(FABRIC, probed(bad, 2000))) == set(bad)


def test_both_directions_of_a_gray_port_are_not_the_nic() -> None:
    bad = {f"nic 6 plane 1 {arrow} t0": 0.004 for arrow in "<>"}
    assert named(localise(FABRIC, probed(bad, 2000))) == set(bad)


def test_a_switch_that_loses_a_little_of_everything_is_not_its_links() -> None:
    (verdict,) = localise(FABRIC, probed({"plane 0 t1 4": 0.001}, 2000))
    assert verdict.where == "plane 0 t1 4"
    assert verdict.rate == pytest.approx(0.002, rel=0.1)  # a packet meets two of its links


def test_a_gray_link_is_found_behind_a_dead_one_that_shares_probes_with_it() -> None:
    bad = {"plane 1 t0 3 > t1 5": 1.0, "plane 1 t0 3 > t1 6": 0.002, "nic 25 plane 1 < t0": 0.002}
    assert named(localise(FABRIC, probed(bad, 2000))) == set(bad)


def test_where_nothing_was_lost_nothing_is_broken() -> None:
    nothing = probed({}, 100)
    assert localise(FABRIC, nothing) == []
    assert suspected(FABRIC, nothing).tolist() == []


def test_single_losses_here_and_there_name_nobody() -> None:
    numbers = np.arange(0, SCHEDULE.n_probes, 173)
    ones = np.ones(len(numbers), np.int64)
    seen = evidence.of_probes(SCHEDULE, 0 * ones, numbers, ones, 1000)
    assert localise(FABRIC, seen) == []


def test_two_losses_make_a_suspect_and_a_burst_a_verdict() -> None:
    port = int(places.links(FABRIC, "plane 1 t0 3 > t1 5")[0])
    crossing = np.flatnonzero((SCHEDULE.routes(0) == port).any(axis=1))[:2]
    seen = evidence.of_probes(SCHEDULE, [0, 0], crossing, [1, 1], 100)
    assert localise(FABRIC, seen) == []
    assert port in suspected(FABRIC, seen)
    burst = SCHEDULE.burst(port, 100)
    lost = np.arange(100) % 20 == 0  # 5 %
    both = evidence.joined([seen, evidence.of_burst(FABRIC, burst, lost, 0, 100 * MS)])
    (verdict,) = localise(FABRIC, both)
    assert verdict.where == "plane 1 t0 3 > t1 5"
    assert verdict.lost == 7


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_few_dead_links_are_found_and_no_others(data: st.DataObject) -> None:
    ports = data.draw(st.sets(st.integers(0, FABRIC.n_ports - 1), min_size=1, max_size=5))
    bad = {FABRIC.port_name(port): 1.0 for port in ports}
    found = localise(FABRIC, probed(bad, 16))
    wrong = named(found) - set(bad)
    assert wrong == set()
    missing = ports - {verdict.cause for verdict in found}
    # Who is missing may be a link behind a NIC port of which the other direction is dead as well:
    # then no probe but the one-way ones of others tells of it.
    of_nic = (FABRIC.port_nic >= 0) | (FABRIC.port_peer_nic >= 0)
    assert all(of_nic[port] for port in missing)


# --- passively: by the paths of queue pairs


def carried(
    pairs: list[tuple[int, int]], bad: Mapping[str, float], sent: int = 1000, **more: int
) -> evidence.Evidence:
    """Every path of these pairs carries `sent` packets and loses what is to be expected."""
    rows = [
        (src, dst, FABRIC.ev_of_path(src, dst, plane, index))
        for src, dst in pairs
        for plane in range(FABRIC.n_planes)
        for index in range(FABRIC.n_paths(src, dst, plane))
    ]
    crossed = routes(FABRIC, *zip(*rows, strict=True))
    lost = np.rint(-np.expm1(losing(FABRIC, bad)[crossed].sum(axis=1)) * sent).astype(np.int64)
    first = np.where(lost > 0, more.get("first_ps", 0), 0)
    return evidence.of_paths(
        FABRIC, crossed, np.full(len(lost), sent), lost, 0, 100 * MS, first,
        np.full(len(lost), more.get("last_ps", 100 * MS)),
    )  # fmt: skip


ALL_TO_ALL = [(src, dst) for src in range(0, 64, 4) for dst in range(0, 64, 4) if src != dst]


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        ("nic 8 plane 1 > t0", 0.01),
        ("nic 8 plane 1 < t0", 0.01),
        ("plane 1 t0 3 > t1 5", 0.004),
        ("plane 1 t0 3 < t1 5", 0.004),
        ("plane 0 t1 2", 0.5),
        ("plane 0 t0 2", 1.0),
    ],
)
def test_endpoints_alone_find_it_by_their_traffic(where: str, rate: float) -> None:
    (verdict,) = localise(FABRIC, carried(ALL_TO_ALL, {where: rate}))
    assert (verdict.where, verdict.is_sure) == (where, True)


def test_a_nic_on_every_lossy_path_is_not_to_blame_for_gray_links_of_its_peers() -> None:
    pairs = [(5, 8), (5, 14), (5, 20), (5, 32), (56, 5), (56, 5), (56, 3)]
    pairs += [(28, 0), (40, 0), (52, 0), (52, 36)]
    bad = {
        "nic 5 plane 0 < t0": 0.005,
        "nic 5 plane 1 < t0": 0.002,
        "nic 8 plane 1 < t0": 0.002,
        "nic 14 plane 0 < t0": 0.006,
        "nic 32 plane 1 < t0": 0.005,
    }
    assert named(localise(FABRIC, carried(pairs, bad))) == set(bad)


def test_what_one_pair_sees_alone_is_one_of_several() -> None:
    (verdict,) = localise(FABRIC, carried([(0, 63)], {"plane 1 t0 0 > t1 5": 0.1}))
    assert not verdict.is_sure
    could_be = {causes.name(FABRIC, cause) for cause in (verdict.cause, *verdict.one_of)}
    assert could_be == {"plane 1 t0 0 > t1 5", "plane 1 t0 7 < t1 5", "plane 1 t1 5"}
    (alone,) = localise(FABRIC, carried([(0, 63)], {"nic 0 plane 1 > t0": 0.1}))
    assert {"nic 0 plane 1 > t0", "nic 63 plane 1 < t0"} <= {
        causes.name(FABRIC, cause) for cause in (alone.cause, *alone.one_of)
    }


def test_a_switch_of_which_one_cable_is_used_may_be_that_cable() -> None:
    pairs = [(a, b) for a in range(24, 32) for b in range(0, 64, 8) if b != 24]
    pairs += [(b, a) for a, b in pairs]
    found = localise(FABRIC, carried(pairs, dict.fromkeys(BOTH_WAYS, 1.0)))
    assert "plane 1 t1 5" not in named(found)
    could_be = {
        causes.name(FABRIC, cause)
        for verdict in found
        for cause in (verdict.cause, *verdict.one_of)
    }
    assert set(BOTH_WAYS) <= could_be


def test_probes_tell_what_one_pair_cannot() -> None:
    where = "plane 1 t0 0 > t1 5"
    both = evidence.joined([carried([(0, 63)], {where: 0.1}), probed({where: 0.1}, 10)])
    (verdict,) = localise(FABRIC, both)
    assert (verdict.where, verdict.is_sure) == (where, True)


def test_a_verdict_says_since_when_and_whether_it_is_over() -> None:
    where = "plane 1 t0 3 > t1 5"
    seen = carried(ALL_TO_ALL, {where: 0.01}, first_ps=20 * MS, last_ps=40 * MS)
    (verdict,) = localise(FABRIC, seen)
    assert (verdict.since_ps, verdict.until_ps) == (20 * MS, 40 * MS)
    # Lost in a fifth of the window, so it lost five times as much as over all of it.
    assert verdict.rate == pytest.approx(0.05, rel=0.01)
    (still,) = localise(FABRIC, carried(ALL_TO_ALL, {where: 0.01}, first_ps=20 * MS))
    assert still.until_ps is None


def test_losses_everywhere_are_chance_and_one_link_stands_out_of_them() -> None:
    everywhere = dict.fromkeys(["everywhere"], 1e-4)
    assert localise(FABRIC, carried(ALL_TO_ALL, everywhere, sent=10_000)) == []
    where = "plane 1 t0 3 > t1 5"
    found = localise(FABRIC, carried(ALL_TO_ALL, {**everywhere, where: 0.01}, sent=10_000))
    assert named(found) == {where}


def test_what_it_takes_to_be_named_can_be_asked_for() -> None:
    seen = probed({"plane 1 t0 3 > t1 5": 1e-3}, 600)
    (verdict,) = localise(FABRIC, seen, Rules(alarm=20.0))
    assert localise(FABRIC, seen, Rules(alarm=verdict.nats - 0.1))
    assert localise(FABRIC, seen, Rules(alarm=verdict.nats + 0.1)) == []


def test_ends_of_a_link_are_named_with_their_ports() -> None:
    (port,) = places.links(FABRIC, "plane 1 t0 3 > t1 5")
    assert causes.ends(FABRIC, int(port)) == (("plane 1 t0 3", 8 + 5), ("plane 1 t1 5", 3))
    (port,) = places.links(FABRIC, "nic 9 plane 1 < t0")
    assert causes.ends(FABRIC, int(port)) == (("plane 1 t0 1", 1), ("nic 9", 1))


# --- the benchmark


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/localise.py"))


def test_faults_that_the_benchmark_draws_are_found(benchmark: dict[str, Any]) -> None:
    place = benchmark["Place"].of(64, 2, 8, 1)
    rng = np.random.default_rng(1)
    for case, (_, _, ways) in benchmark["CASES"].items():
        for how in ways[-1:] if len(ways) == 3 else ways:  # bursts for many links take seconds
            truth, found, _ = benchmark["trial"](place, rng, case, how)
            figures = benchmark["score"]([(truth, found, 0.0)])
            assert figures["wrong"] == 0, (case, how)
            assert figures["missed"] == 0, (case, how)
            assert figures["right"] == len(truth)


def test_the_benchmark_counts_what_is_wrong_and_missed(benchmark: dict[str, Any]) -> None:
    right, wrong = localise(FABRIC, probed({"nic 7 plane 1 > t0": 1.0, "nic 40 plane 0 > t0": 1.0}))
    figures = benchmark["score"]([({right.cause, 1}, [right, wrong], 0.0)])
    assert (figures["right"], figures["wrong"], figures["missed"]) == (1, 1, 1)
    assert figures["f1"] == 0.5


def test_the_benchmark_of_scale_finds_all_of_its_faults(benchmark: dict[str, Any]) -> None:
    figures = benchmark["scale"](True, 1)
    assert (figures["all_found"], figures["lossy_paths"]) == (True, 20_000)


def test_of_causes_that_nothing_tells_apart_one_stays_suspected_and_the_others_are_told() -> None:
    # Loops over one cable: both directions, and what ends it, explain the losses equally well.
    (up,) = places.links(FABRIC, "plane 1 t0 3 > t1 5").tolist()
    down, own = int(FABRIC.port_reverse[up]), 3 * 8 * 2 + 1
    loop = [own, up, down, int(FABRIC.port_reverse[own])]
    seen = evidence.of_burst(FABRIC, np.array([loop] * 4, np.int32), [1] * 4, 0, MS)
    (verdict,) = localise(FABRIC, seen, Rules(learns_chance=False))
    assert not verdict.is_sure
    assert {up, down} <= {verdict.cause, *verdict.one_of}
