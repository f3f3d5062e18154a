"""The window of NSCC, by the numbers of MRC 4.6."""

from __future__ import annotations

import pytest

from openmrc.conform.model.window import Window
from openmrc.units import US

T, RATE = 8 * US, 100 * 10**9  # a BDP of 100,000 bytes


def window(flying: int = 100) -> Window:
    w = Window(RATE, T, 1024, trimming=True)
    for seq in range(flying):
        p = {"length": 1024, "tx_timestamp": seq, "rtx": 0, "ev": 1}
        w.sends(seq, p, 0, first=seq == 0)
    return w


def test_it_begins_with_one_and_a_half_bdp() -> None:
    w = window()
    assert (w.bytes, w.flying) == (150_000, 100 * 1112)


def test_a_trim_takes_a_packet() -> None:
    w = window()
    w.trimmed(3, T)
    assert (w.bytes, w.flying) == (150_000 - 1112, 99 * 1112)
    assert (w.flying_copy(3) is None, w.flying_copy(4) is None) == (True, False)


def test_marks_with_delay_above_the_target_shrink_it_once_a_round_trip() -> None:
    w = window()
    for k in range(400):
        w.on_sack(0, 2 * T, True, 2 * T + k)
    assert w.bytes == pytest.approx(150_000 * (1 - 0.8 * (1 - 0.75 / 0.7597)), rel=0.01)
    shrunk = w.bytes
    w.on_sack(0, 2 * T, True, 2 * T + 401)
    assert w.bytes == shrunk


def test_a_sample_names_its_copy() -> None:
    w = window()
    own = {"ack_psn_offset": 0, "sack_offset": 1, "tx_timestamp": 5}
    assert w.sample(5, own, 1, T) == T
    assert w.sample(5, own | {"pr": 1}, 1, T) is None
    header = {"ack_psn_offset": 2, "sack_offset": 1, "sack_bitmap": 0b1}
    assert w.sample(5, own | header, 1, T) is None
    w.acked({5}, 1, T)
    assert w.sample(5, own, 2, T) is None  # a second copy
    w.sends(6, {"length": 1024, "tx_timestamp": 600, "rtx": 1, "ev": 1}, T, first=False)
    assert w.sample(6, own | {"tx_timestamp": 6}, 1, 2 * T) is None
    assert w.sample(6, own | {"tx_timestamp": 600}, 1, 2 * T) == T
    assert w.sample(7, own, 1, 2 * T) == 2 * T  # also where a retransmission overtook it (row 15)


def again(seq: int) -> dict[str, int]:
    return {"length": 1024, "tx_timestamp": 600 + seq, "rtx": 1, "ev": 1}


def test_each_loss_takes_a_packet_and_those_of_a_round_trip_at_most_half() -> None:
    w = window()
    for seq in range(67):
        assert w.lost(seq, False, 2 * T)
        w.sends(seq, again(seq), 2 * T, first=False)
    assert (w.bytes, w.flying) == (150_000 - 67 * 1112, 100 * 1112)
    assert not w.lost(67, False, 2 * T)


def test_a_plane_that_loses_alone_takes_one() -> None:
    w = window()
    w.lost(3, True, 2 * T)
    w.lost(4, True, 2 * T)
    assert w.bytes == 150_000 - 1112


@pytest.mark.parametrize("how", ["the echo of an earlier copy", "too early"])
def test_a_false_alarm_gives_it_back(how: str) -> None:
    w = window()
    w.lost(6, False, 2 * T)
    w.sends(6, again(6), 2 * T, first=False)
    if how == "too early":
        w.acked({6}, 1, 2 * T + T // 2 - 1)
    else:
        assert w.sample(6, {"ack_psn_offset": 0, "tx_timestamp": 6}, 1, 3 * T) is None
    assert w.bytes == 150_000


def test_what_goes_again_and_comes_costs_its_packet() -> None:
    w = window()
    w.lost(6, False, 2 * T)
    w.sends(6, again(6), 2 * T, first=False)
    w.acked({6}, 1, 3 * T)
    assert w.sample(6, {"ack_psn_offset": 0, "tx_timestamp": 606}, 1, 3 * T) == T
    assert w.bytes == 150_000 - 1112


def test_penalties_cut_it_until_it_is_restored() -> None:
    w = window()
    w.on_sack(0, 2 * T, True, 0)
    w.on_sack(1000, None, True, 1, penalty=64)
    w.on_sack(1000, None, True, 2, penalty=32)
    assert w.bytes == 150_000 - 500 - 250
    w.on_sack(0, None, True, 3, restores=True)
    assert w.bytes == 150_000


def test_the_window_before_penalties_is_kept_until_a_sack_asks_for_none() -> None:
    w = window()
    w.on_sack(0, 2 * T, True, 0)
    w.on_sack(128_000, None, True, 1, penalty=64)
    w.on_sack(0, None, True, 2)
    w.on_sack(0, None, True, 3, restores=True)
    assert w.bytes == 150_000 - 64_000
