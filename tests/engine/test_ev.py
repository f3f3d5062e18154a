"""The states of an EV as a table (engine/ev.py), and the counters that go with them."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import openmrc
from openmrc.engine import beliefs, probes, rotation, setup
from openmrc.engine.ev import (
    ALWAYS_SKIP,
    ANSWER,
    ASSUMED_BAD,
    CHECK,
    DENIED,
    DENY,
    EV_STATES,
    EVENTS,
    FALSE_ALARM,
    GOOD,
    INNOCENT,
    LIFT,
    LOSS,
    MARK,
    MARKED_ANSWER,
    SKIP,
    TURN,
    enter,
)
from openmrc.engine.state import NEVER, OUT, timestamp_of
from openmrc.jit import compiled
from tests.engine.cases import COMMON, long
from tests.engine.pair import Pair

N_PLANES, EVS_PER_PLANE = 2, 4
N_EVS = N_PLANES * EVS_PER_PLANE


def pair() -> Pair:
    """Two planes, each with three EVs in the rotation and one in reserve."""
    return Pair(planes=N_PLANES, evs=3, backup=1)


def states(pair: Pair) -> list[int]:
    return [int(e.state) for e in pair.st.ev[:N_EVS]]


# --- the table


def test_every_state_can_be_left_and_every_event_happens_somewhere() -> None:
    assert {state for event in EVENTS for state in event.before} == set(EV_STATES)
    assert {event.after for event in EVENTS} == set(EV_STATES)
    assert all(event.before and event.after not in event.before for event in EVENTS)
    assert len({event.name for event in EVENTS}) == len(EVENTS)


def test_the_events_have_the_names_of_their_constants() -> None:
    from openmrc.engine import ev

    for number, event in enumerate(EVENTS):
        assert getattr(ev, event.name.replace(" ", "_").upper()) == number


@long
def test_nothing_but_the_table_assigns_the_state_of_an_ev() -> None:
    found = []
    root = Path(openmrc.__file__).parent
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                owner = ast.unparse(node.value)
                if node.attr == "state" and (owner == "e" or ".ev" in owner or owner == "ev"):
                    found.append(path.relative_to(root).as_posix())
    assert found == ["engine/ev.py"] * 2, "`enter`, and `begin` for a new QP"


# --- what counts by state


@compiled
def happen(st, qi, i, event):  # type: ignore[no-untyped-def]
    """An event happens to the i-th EV of a QP."""
    q = st.qp[qi]
    plane = st.plane[q.plane0 + st.ev[q.ev0 + i].plane]
    return enter(st, q, plane, i, event, 0)


@COMMON
@given(
    st.lists(
        st.tuples(st.integers(0, N_EVS - 1), st.integers(0, len(EVENTS) - 1)),
        min_size=20,
        max_size=80,
    )
)
def test_after_any_events_each_counter_is_a_recount(happenings: list[tuple[int, int]]) -> None:
    p = pair()
    q, believed, counted = p.q, [GOOD] * N_EVS, Counter[int]()
    for i, event in happenings:
        can = believed[i] in EVENTS[event].before
        assert bool(happen(p.st, 0, i, event)) == can
        if can:
            believed[i] = EVENTS[event].after
            counted[event] += 1
        assert states(p) == believed
        assert q.n_bad == believed.count(ASSUMED_BAD)
        for k in range(N_PLANES):
            own = believed[k * EVS_PER_PLANE : (k + 1) * EVS_PER_PLANE]
            assert p.plane(k).n_good == own.count(GOOD) + own.count(SKIP)
        assert q.n_skips == counted[MARK]
        assert q.n_bad_total == counted[LOSS] + counted[ALWAYS_SKIP]
        assert q.n_revived == counted[ANSWER] + counted[MARKED_ANSWER] + counted[FALSE_ALARM]


def test_an_ev_that_becomes_bad_or_is_so_no_longer_has_no_probe_under_way() -> None:
    p = pair()
    b = p.blame(0, 1)
    for event in (LOSS, ANSWER):
        b.probe_id, b.probe_at, b.answers, b.spacing = 7, 8, 9, 10
        assert happen(p.st, 0, 1, event)
        assert (b.probe_id, b.probe_at, b.answers, b.spacing) == (-1, NEVER, 0, 2 * p.rtt)


def test_an_ev_has_a_record_of_its_own_from_its_first_demotion_on() -> None:
    p = pair()
    for event in (MARK, TURN, DENY, LIFT):
        assert happen(p.st, 0, 1, event)
    assert p.path(0, 1).blame == 0
    for event in (LOSS, ANSWER, LOSS):
        assert happen(p.st, 0, 1, event)
        assert p.path(0, 1).blame == 1
    assert happen(p.st, 0, 3, CHECK)
    assert p.path(0, 3).blame == 2
    assert p.st.blame[0] == INNOCENT


def test_a_new_qp_in_the_place_of_another_has_its_records_and_none_of_its_past() -> None:
    p = pair()
    assert happen(p.st, 0, 1, LOSS)
    p.blame(0, 1).demoted_at, p.blame(0, 1).demotions = 5, 3
    setup.open_qp(p.st, 0)
    assert p.path(0, 1).blame == 1
    assert p.st.blame[1] == INNOCENT


def test_a_mark_and_a_turn_touch_nothing_but_the_state() -> None:
    p = pair()
    e = p.path(0, 1)
    b = p.blame(0, 1)
    b.probe_id, b.probe_at, b.answers, b.spacing = 7, 8, 9, 10
    before, kept = e.copy(), b.copy()
    assert happen(p.st, 0, 1, MARK)
    assert e.state == SKIP
    e.state = before.state
    assert e == before
    assert b == kept


# --- and whoever causes the events


SIZES = np.array([4184, 1088], np.int64)  # with headers: full packets and small ones


@compiled
def act(st, qi, i, what, now):  # type: ignore[no-untyped-def]
    """Something is heard of the i-th EV of a QP, or a packet is to be sent."""
    q = st.qp[qi]
    if what == 0:
        beliefs.on_mark(st, q, i, now)
    elif what == 1:
        beliefs.on_loss(st, q, i, now - 1, SIZES[i % 2], now)
    elif what == 2:
        beliefs.on_always_skip(st, q, i, now)
    elif what == 3:
        beliefs.on_delivery(st, q, i, now - 1, SIZES[now % 2], now)
    elif what == 4:
        if st.ev[q.ev0 + i].state == ASSUMED_BAD:
            beliefs.revive(st, q, i, FALSE_ALARM, now)
    elif what == 5:
        e = st.ev[q.ev0 + i]
        number = int(st.blame[e.blame].probe_id)
        probes.on_probe_answer(st, q, int(e.value), number, now, i % 2 == 0, now)
    elif what == 6:
        probes.probe_bad_evs(st, q, now)
    elif what <= 8:
        beliefs.deny(st, q, i, what == 7, now)
    elif what == 10:
        tried = probes.next_trial(st, q, 4096, 3, 0) if q.waiting > 0 else -1
        if tried >= 0:
            probes.begin_trial(st, q, tried, now)
    elif what == 11:
        if st.ev[q.ev0 + i].state == ASSUMED_BAD:
            b = st.blame[st.ev[q.ev0 + i].blame]
            sent_at = b.probe_at - b.spacing
            probes.on_trial_answer(st, q, i, timestamp_of(sent_at), i % 2 == 0, now)
    else:
        k = rotation.choose_plane(st, q, 3)
        if k >= 0:
            rotation.charge_turn(q, st.plane[q.plane0 + k], 1)
            rotation.choose_ev(st, q, k, -1, now)


HEARD = [0, 1, 1, 1, 2, 3, 4, 5, 5, 6, 6, 7, 8, 9, 10, 11]
ACTS = st.tuples(st.integers(0, N_EVS - 1), st.sampled_from(HEARD))


def along_the_table(before: int, after: int) -> bool:
    """Whether one or two events lead from a state to another: a plane that falls silent is at once
    made to serve again if there is no other.
    """
    once = {event.after for event in EVENTS if before in event.before}
    twice = {event.after for event in EVENTS if once & set(event.before)}
    return after in {before} | once | twice


@long
@settings(COMMON, max_examples=100)
@given(st.lists(ACTS, min_size=30, max_size=120))
def test_whatever_a_qp_hears_its_books_balance(heard: list[tuple[int, int]]) -> None:
    p = pair()
    now = 0
    for i, what in heard:
        now += p.rtt // 3
        before = states(p)
        act(p.st, 0, i, what, now)
        p.st.count[OUT] = 0
        p.check(0)
        assert all(map(along_the_table, before, states(p)))
        if what == 7:
            assert states(p)[i] == DENIED
    for i in range(N_EVS):
        act(p.st, 0, i, 8, now)
    assert DENIED not in states(p)
    p.check(0)


def test_a_qp_whose_paths_are_all_lost_still_sends() -> None:
    """Three losses a path with nothing delivered: planes are silent, and yet one path of each
    serves (row 12).
    """
    p = pair()
    for now in range(1, 13):
        for i in range(N_EVS):
            act(p.st, 0, i, 1, now * p.rtt)
            p.check(0)
    q: Any = p.q
    assert q.planes_ok == 0b11
    assert [int(p.plane(k).n_good) for k in range(N_PLANES)] == [1, 1]
    assert q.n_bad == N_EVS - 2
