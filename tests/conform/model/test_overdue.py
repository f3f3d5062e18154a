"""When the oldest missing packet is late."""

from __future__ import annotations

from openmrc.conform.model.overdue import Overdue
from openmrc.conform.model.trips import Trips

RTT, RTO = 100, 400


def two(rtx: int = 0) -> Overdue:
    """Packets 0 and 1 left, at 0 and at 10, with the stamps 0 and 1."""
    o = Overdue(Trips(RTT), RTO, True)
    for seq in range(2):
        o.sends(seq, {"tx_timestamp": seq, "rtx": rtx, "no_trim": 0}, 10 * seq)
    return o


def test_what_left_before_something_received_is_lost_once_it_is_overdue() -> None:
    o = two()
    o.shown({1}, 110)
    assert o.late([0], 2, True, 160) == {"lost": 0, "unasked": 0, "silent": 0}
    assert o.late([0], 2, True, 161) == {"lost": 1, "unasked": 0, "silent": 0}


def test_where_nothing_says_so_a_probe_asks() -> None:
    o = two()
    assert o.late([0], 2, True, 285) == {"unasked": 0, "silent": 0}
    assert o.late([0], 2, True, 286) == {"unasked": 1, "silent": 0}
    o.asks(7, 286)
    assert o.late([0], 2, True, 287) == {"unasked": 0, "silent": 0}


def test_after_an_rto_the_oldest_goes_again() -> None:
    o = two()
    assert o.late([0, 1], 2, True, 20)["silent"] == 0
    assert o.late([0, 1], 2, True, 445)["silent"] == 0
    assert o.late([0, 1], 2, True, 446)["silent"] == 1


def test_what_is_missing_behind_the_oldest_is_late_too() -> None:
    o = two()
    o.sends(2, {"tx_timestamp": 2, "rtx": 0, "no_trim": 0}, 20)
    o.shown({2}, 120)
    o.sends(0, {"tx_timestamp": 9, "rtx": 1, "no_trim": 0}, 130)
    assert o.late([0, 1], 3, True, 160)["lost"] == 0
    assert o.late([0, 1], 3, True, 171)["lost"] == 1


def test_a_retransmission_speaks_of_retransmissions_alone() -> None:
    o = two()
    o.sends(2, {"tx_timestamp": 9, "rtx": 1, "no_trim": 0}, 20)
    o.reflected(2, 9, True, 110)
    assert "lost" not in o.late([0], 3, True, 300)
    o = two(rtx=1)
    o.reflected(1, 1, True, 110)
    assert o.late([0], 2, True, 300) == {"lost": 1, "silent": 0}


def test_what_was_refused_waits_for_the_window() -> None:
    o = two()
    o.refused(0)
    o.shown({1}, 110)
    assert o.late([0], 2, True, 300) == {}


def again(o: Overdue, at: int) -> dict[str, int]:
    o.hears(at - 1)
    return o.sends(0, {"tx_timestamp": 9, "rtx": 1, "no_trim": 0}, at)


def test_of_a_loss_something_speaks_that_left_later() -> None:
    o = two()
    assert again(o, 150) == {"spoken": 0}
    o = two()
    o.shown({1}, 110)
    assert again(o, 150) == {"spoken": 1}
    o = two()
    o.asks(7, 130)
    o.answered(7)
    assert again(o, 150) == {"spoken": 1}
    o = two()
    o.sends(2, {"tx_timestamp": 5, "rtx": 1, "no_trim": 0}, 20)
    o.reflected(2, 5, True, 110)
    assert again(o, 150) == {"spoken": 0}


def test_after_an_rto_of_silence_nothing_has_to() -> None:
    o = two()
    o.hears(350)
    assert o.sends(0, {"tx_timestamp": 9, "rtx": 1, "no_trim": 0}, 399) == {"spoken": 0}
    o = two()
    assert o.sends(0, {"tx_timestamp": 9, "rtx": 1, "no_trim": 0}, 400) == {"spoken": 1}


def test_at_the_end_of_what_was_posted_it_may_be_in_doubt() -> None:
    o = two()
    o.dry_ps = 50
    assert again(o, 150) == {}
