"""`mrc soak`: what is drawn, what is checked, and that what is wrong would be said."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from openmrc.cli.command import main
from openmrc.fabric.kinds import BEGINS
from openmrc.jit import interpreted
from openmrc.scenario.scenario import make_scenario
from openmrc.scenario.transports import MRC_KEYS
from openmrc.sim.watch import books
from openmrc.sim.world import World
from openmrc.soak import sim as soak

# Keys of MRC that no round has, and why.
NOT_DRAWN = {
    "name": "it is only a label",
    "rules": "htsim's rules lose what MRC's must not",
    "base_rtt": "one that is wrong breaks promises that rest on it",
    "linear_cnt": "a round must not wait longer than STOP_PS",
    "exp_cnt": "as linear_cnt",
    "trim_nack": "what a peer may lack; the rounds' peers are alike",
    "dynamic_mpr": "as trim_nack",
}


@pytest.mark.skipif(interpreted(), reason="hours in plain Python")
def test_rounds_of_it_pass() -> None:
    """A few; hours of it are the command's."""
    said: list[str] = []
    assert soak.soak(20_000, rounds=20, say=said.append) == 0, "\n".join(said)
    fine = sorted(int(line.split()[1]) for line in said if line.startswith("ok "))
    assert fine == [*range(20_000, 20_020)]
    assert said[-1].startswith(
        "20 rounds, 0 failed: seeds 20000 to 20019, 16.031232901ms simulated, 118,784 packets, "
    )


def test_everything_there_is_is_drawn() -> None:
    seen: dict[str, Counter[Any]] = {key: Counter() for key in ("workload", "paths", "fault")}
    keys: Counter[Any] = Counter()
    for seed in range(200):
        tables = soak.draw(seed)
        make_scenario(tables).build()
        seen["workload"][tables["workload"]["kind"]] += 1
        transport = tables["transport"]
        seen["paths"][transport.get("paths", transport.get("kind"))] += 1
        keys.update(f"{key} = {value}" for key, value in transport.items())
        seen["fault"].update(fault["kind"] for fault in tables["fault"])
    assert set(seen["workload"]) == {*soak.KINDS, "training"}
    assert set(seen["paths"]) == {"mrc", "oblivious", "single", "reps", "roce"}
    for drawn in ("srv6 = False", "trim = True", "ecn_skip = False", "pfc = False", "cc = dcqcn"):
        assert keys[drawn] > 0, drawn
    for drawn in ("adaptive", "spray"):
        assert keys[f"routing = {drawn}"] > 0, drawn
    assert set(BEGINS) <= set(seen["fault"])
    drawn_keys = {key.partition(" = ")[0] for key in keys}
    assert drawn_keys & set(MRC_KEYS) == set(MRC_KEYS) - set(NOT_DRAWN)


def test_a_round_is_a_function_of_its_seed() -> None:
    assert soak.draw(7) == soak.draw(7) != soak.draw(8)


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
def test_a_round_is_looked_at_while_faults_last(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    whole = books.wrong

    def wrong(world: World) -> list[str]:
        looked.append(int(world.net.ctl[0].now))
        return whole(world)

    monkeypatch.setattr(books, "wrong", wrong)
    seed = next(s for s in range(100) if len(soak.draw(s)["fault"]) >= 4)
    r = soak.run_round(seed)
    assert r.wrong == ()
    assert looked == sorted(looked)
    assert len(looked) > 1


@pytest.fixture
def a_world() -> World:
    scenario = make_scenario(soak.draw(3))
    world = soak._world(scenario)
    world.run(until_ps=3_000_000)
    assert books.wrong(world) == []
    return world


@pytest.fixture
def a_roce_world() -> World:
    seed = next(s for s in range(100) if soak.draw(s)["transport"].get("kind") == "roce")
    world = soak._world(make_scenario(soak.draw(seed)))
    world.run(until_ps=3_000_000)
    assert books.wrong(world) == []
    return world


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: _set(w.side.state.qp, "nxt", w, 1 << 40), "una <= nxt <= high"),
        (lambda w: _forget(w.side.state.qp, w), "acknowledged <= received"),
        (lambda w: _set(w.side.state.qp, "alive", w, 0), "an error is a dead QP"),
        (lambda w: _add(w.net.ctl, "delivered", None), "packets injected"),
        (lambda w: _add(w.net.ctl, "wrong_bytes", None), "bytes in the wrong place"),
    ],
)
def test_a_book_of_roce_that_is_wrong_is_noticed(
    spoil: Any, words: str, a_roce_world: World
) -> None:
    spoil(a_roce_world)
    found = books.wrong(a_roce_world)
    assert found
    assert all(words in line for line in found), found


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: _add(w.engine.qp, "inflight", w), "bytes in flight"),
        (lambda w: _add(w.engine.qp, "lost", w), "packets that wait"),
        (lambda w: _add(w.engine.qp, "n_bad", w), "EVs in ASSUMED_BAD"),
        (lambda w: _set(w.engine.qp, "cwnd", w, 1e12), "window within its limits"),
        (lambda w: _add(w.net.ctl, "delivered", None), "packets injected"),
        (lambda w: _add(w.net.ctl, "messages_done", None), "messages by fate"),
        (lambda w: _add(w.net.ctl, "wrong_bytes", None), "bytes in the wrong place"),
    ],
)
def test_a_book_that_is_wrong_is_noticed(spoil: Any, words: str, a_world: World) -> None:
    spoil(a_world)
    found = books.wrong(a_world)
    assert found
    assert all(words in line for line in found), found


def _add(records: Any, name: str, world: World | None) -> None:
    i = 0 if world is None else int(world.ends.sender[0])
    records[i][name] += 1


def _forget(records: Any, world: World) -> None:
    records[int(world.ends.other[world.ends.sender[0]])]["expected"] = -1


def _set(records: Any, name: str, world: World, value: float) -> None:
    records[int(world.ends.sender[0])][name] = value


def test_a_queue_that_is_miscounted_is_noticed() -> None:
    world = soak._world(make_scenario(soak.draw(3)))
    at_ps = 0
    queued = np.zeros(0, np.intp)
    while not queued.size:
        at_ps += 500_000
        world.run(until_ps=at_ps)
        queued = np.flatnonzero((np.asarray(world.net.port.head) >= 0).any(axis=1))
    world.net.port.data_queued_bytes[queued[0]] += 7
    (line,) = books.wrong(world)
    assert "data bytes" in line


def test_a_failure_says_how_to_replay_it(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    soak._report(soak.Round(5, "{}", ("a flow is not done",), 0, 0), said.append)
    assert said == [
        "FAILED 5 {}",
        "  a flow is not done",
        "  replay: mrc soak --seed 5 --rounds 1",
    ]


@pytest.mark.skipif(interpreted(), reason="minutes in plain Python")
def test_the_command_prints_what_was_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--seed", "5", "--rounds", "2", "--workers", "1"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    for line, seed in ((first, 5), (second, 6)):
        verdict, number, options = line.split(" ", 2)
        assert (verdict, int(number)) == ("ok", seed)
        assert json.loads(options)["seed"] == seed
    assert last.startswith("2 rounds, 0 failed: seeds 5 to 6")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--hours 1 --rounds 2", "both --hours and --rounds; name one or the other"),
        ("--rounds 0", "--rounds 0: 1 or more is accepted"),
        ("--hours -1", "--hours -1.0: 0 or more is accepted"),
        ("--hours nan", "--hours nan: 0 or more is accepted"),
        ("--workers 0", "--workers 0: 1 or more is accepted"),
        ("--seed -1", "--seed -1: 0 to "),
        ("--seed x", "argument --seed: invalid int value: 'x'"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["soak", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
