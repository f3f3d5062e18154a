"""How long a round trip counts."""

from __future__ import annotations

from openmrc.conform.model.trips import Trips

RTT = 100


def test_an_answer_is_overdue_a_quarter_after_the_longest_of_its_kind() -> None:
    t = Trips(RTT)
    assert (t.is_overdue(False, 0, 124), t.is_overdue(False, 0, 125)) == (False, True)
    t.measured(False, 0, 200)
    assert (t.is_overdue(False, 200, 449), t.is_overdue(False, 200, 450)) == (False, True)
    assert t.is_overdue(True, 200, 325)


def test_what_was_overdue_before_a_longer_round_trip_was_known_stays_so() -> None:
    t = Trips(RTT)
    t.measured(False, 0, 130)
    assert t.is_overdue(False, 5, 140)
    assert not t.is_overdue(False, 6, 140)


def test_a_round_trip_is_forgotten() -> None:
    t = Trips(RTT)
    t.measured(False, 0, 200)
    assert not t.is_overdue(False, 700, 949)
    assert t.is_overdue(False, 1001, 1126)
    assert (t.longest(2600), t.longest(2601)) == (200, RTT)


def test_one_seen_may_count_and_not_surely() -> None:
    t = Trips(RTT)
    t.seen(0, 300)
    assert t.longest(300) == 300
    assert t.is_overdue(False, 300, 425)
