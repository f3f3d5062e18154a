"""Which paths a requester may not take yet."""

from __future__ import annotations

from openmrc.conform.model.left import Left

RTT = 1000


def test_a_path_that_lost_is_back_when_anything_comes_that_took_it() -> None:
    left = Left(evs=4, rtt_ps=RTT)
    left.loses(0, 1, sent_ps=0, now_ps=RTT)
    assert (left.takes(1), left.takes(2)) == ({"left": 1}, {"left": 0})
    left.answers(1)
    left.loses(1, 1, sent_ps=0, now_ps=2 * RTT)  # it left before the path was left
    assert left.takes(1) == {"left": 0}


def test_what_comes_too_soon_or_twice_was_not_lost() -> None:
    for late_ps, known, left_n in [(RTT, False, 1), (RTT // 4, False, 0), (RTT, True, 0)]:
        left = Left(evs=4, rtt_ps=RTT)
        left.loses(0, 1, sent_ps=0, now_ps=RTT)
        left.shows(0, RTT, RTT + late_ps, known)
        assert left.takes(1) == {"left": left_n}


def test_a_plane_that_may_be_silent_may_take_all_of_its_paths() -> None:
    left = Left(evs=8, rtt_ps=RTT)
    for seq in range(2):
        left.loses(seq, 1 + seq, sent_ps=seq, now_ps=RTT)
    left.delivers(4, sent_ps=5, now_ps=5 + RTT)
    left.loses(2, 3, sent_ps=6, now_ps=2 * RTT)
    assert [left.takes(ev)["left"] for ev in range(1, 5)] == [1, 1, 1, 0]
    for seq in range(3, 5):
        left.loses(seq, 1 + seq, sent_ps=6, now_ps=2 * RTT)
    assert not any(left.takes(ev)["left"] for ev in range(1, 8))
    left.doubts()
    assert left.takes(1) == {}


def test_a_path_that_answered_a_probe_before_the_lost_packet_went_again_is_not_left() -> None:
    left = Left(evs=4, rtt_ps=RTT)
    left.answered(1, now_ps=3 * RTT)
    left.loses(0, 1, sent_ps=RTT, now_ps=4 * RTT)
    left.loses(1, 2, sent_ps=RTT, now_ps=4 * RTT)
    assert (left.takes(1), left.takes(2)) == ({"left": 0}, {"left": 1})
