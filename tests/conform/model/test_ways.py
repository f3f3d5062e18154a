"""The planes and EVs of answers."""

from __future__ import annotations

from openmrc.conform.model.ways import Ways

RTT = 8


def test_answers_take_planes_in_turn_on_the_way_of_what_came() -> None:
    w = Ways(2, RTT)
    w.hears(1, 0x1_0003, 0)
    assert (w.ev, w.next(0b11), w.next(0b01)) == ([None, 0x1_0003], 1, 0)
    w.turn = 1
    assert w.next(0b11) == 0
    assert w.next(0) is None


def test_a_way_that_answered_stays_until_two_probes_come_without_data() -> None:
    w = Ways(2, RTT)
    w.asks(1, 77, 0x1_0002)
    w.answered(76)
    w.answered(77)
    w.hears(1, 0x1_0003, 0)
    assert w.ev[1] == 0x1_0002
    w.probed(1, 500)
    w.hears(1, 0x1_0003, 0)
    assert w.ev[1] == 0x1_0002
    w.probed(1, 500)
    w.hears(1, 0x1_0003, 0)
    assert w.ev[1] == 0x1_0003


def test_a_plane_on_which_nothing_comes_is_left_out_after_two_views() -> None:
    w = Ways(2, RTT)
    for k in range(6):
        w.hears(1, 0x1_0001, k * 2 * RTT)
    assert {w.next(0b11)} == {1}
    w.hears(0, 1, 12 * RTT)
    w.turn = 1
    assert w.next(0b11) == 0
