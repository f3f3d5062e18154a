"""The window of PSNs at both ends, fixed and dynamic (row 16, MRC 1.5)."""

from __future__ import annotations

import pytest

from openmrc.engine import fate
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from tests.engine.arriving import data
from tests.engine.cases import long
from tests.engine.pair import Pair

MPR = 128


def placed(pair: Pair) -> int:
    return int(pair.writes.sum())


@pytest.mark.parametrize("cack", [-1, 9])
def test_row_16_cack_plus_mpr_passes_and_one_more_fails(cack: int) -> None:
    pair = Pair(mpr=MPR)
    for seq in range(cack + 1):
        data(pair, seq)
    before = placed(pair)
    (nack,) = data(pair, cack + MPR + 1)
    assert (nack.opcode, nack.reason) == (pk.NACK, pk.NACK_PSN_OOR_WINDOW)
    assert nack.psn == pair.psn(cack + MPR + 1)
    assert placed(pair) == before
    assert data(pair, cack + MPR) == []
    assert placed(pair) == before + 4096


@pytest.mark.parametrize("cack", [-1, 9])
def test_row_16_cack_plus_one_passes_and_cack_is_ignored_and_sacked(cack: int) -> None:
    pair = Pair(mpr=MPR)
    for seq in range(cack + 1):
        data(pair, seq)
    before = placed(pair)
    (sack,) = data(pair, cack)  # before the first one, for cack = -1
    assert sack.opcode == pk.SACK
    assert placed(pair) == before
    data(pair, cack + 1)
    assert placed(pair) == before + 4096


def test_row_16_a_psn_far_below_is_ignored_and_sacked() -> None:
    pair = Pair(mpr=MPR)
    (sack,) = data(pair, -(1 << 23) + 1)
    assert sack.opcode == pk.SACK
    assert placed(pair) == 0


def test_row_16_the_sender_stops_at_cack_plus_mpr() -> None:
    pair = Pair(mpr=MPR, rtt_us=80)
    pair.cut(src=1)
    pair.post(400 * 4096)
    pair.advance(us=70)
    assert pair.q.nxt == MPR  # sequences 0 .. 127 = cack + MPR
    assert pair.q.inflight < pair.q.cwnd
    pair.sack(9)
    pair.advance(us=20)
    assert pair.q.nxt == MPR + 10


def test_row_16_a_window_full_of_holes_moves_only_with_the_oldest() -> None:
    pair = Pair(mpr=MPR, rtt_us=80)
    pair.drop(next=3, seq=0, kind=None)
    pair.post(400 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.r.rx_high == 399


def test_without_dynamic_mpr_the_field_is_zero_and_ignored() -> None:
    pair = Pair(mpr=256)
    pair.set_mpr(128)
    pair.post(40 * 4096)
    pair.drive()
    assert {int(x.p.mpr) for x in pair.packets("sack")} == {0}
    pair.post(40 * 4096)
    pair.advance(us=3)
    pair.sack(41, mpr=1)
    assert pair.q.mpr == 256


def test_dynamic_mpr_rides_in_each_sack_in_units_of_128() -> None:
    pair = Pair(mpr=512, dynamic_mpr=1)
    pair.post(40 * 4096)
    pair.drive()
    assert {int(x.p.mpr) for x in pair.packets("sack")} == {4}
    pair.set_mpr(256)
    pair.post(40 * 4096)
    pair.drive()
    assert {int(x.p.mpr) for x in pair.packets("sack")} == {4, 2}
    assert pair.q.mpr == 256


def test_dynamic_mpr_never_grows_beyond_what_was_agreed() -> None:
    pair = Pair(mpr=256, dynamic_mpr=1)
    pair.set_mpr(1024)
    pair.post(40 * 4096)
    pair.drive()
    assert pair.q.mpr == 256


@pytest.mark.parametrize(
    ("packets", "size", "sent"),
    [
        (1.0, 4096, 1),
        (1.49, 4096, 1),
        (1.5, 4096, 2),
        (2.01, 4096, 3),
        (1.0, 2004, 1),  # half a packet with its overhead is in flight
        (1.0, 2003, 2),
    ],
)
def test_a_window_nearer_to_one_packet_than_to_two_sends_one(
    packets: float, size: int, sent: int
) -> None:
    pair = Pair()
    pair.q.cwnd = packets * pair.q.pkt
    for _ in range(8):
        pair.post(size)
    pair.advance(us=3)  # all ports are free, and nothing has been heard
    assert pair.q.nxt == sent


def test_a_shrunken_window_pauses_new_packets() -> None:
    pair = Pair(mpr=512, rtt_us=80, dynamic_mpr=1)
    pair.cut(src=1)
    pair.post(600 * 4096)
    pair.advance(us=50)
    out = int(pair.q.nxt)
    assert out > 200
    pair.sack(9, mpr=1)
    pair.advance(us=20)
    assert pair.q.nxt == out
    pair.sack(out - 10, mpr=1)
    pair.advance(us=40)
    assert pair.q.nxt == out - 9 + 128


def test_a_shrunken_window_delays_retransmissions_that_would_violate_it() -> None:
    pair = Pair(mpr=512, rtt_us=80, dynamic_mpr=1)
    pair.cut(src=1)
    pair.post(300 * 4096)
    pair.advance(us=60)
    pair.sack(9, mpr=1)  # 10 .. 137 may be sent now
    pair.nack(137, pk.NACK_TRIMMED)
    assert pair.sent["rtx"] == 1
    pair.nack(138, pk.NACK_TRIMMED)
    assert pair.slot(138).fate == fate.TRIMMED
    pair.advance(us=1)
    assert pair.sent["rtx"] == 1
    pair.sack(10, mpr=1)
    assert pair.sent["rtx"] == 2


@long
def test_a_shrink_under_way_is_survived() -> None:
    pair = Pair(mpr=512, rtt_us=40, dynamic_mpr=1)
    pair.post(900 * 4096)
    pair.advance(us=30)
    pair.set_mpr(128)
    pair.advance(us=200)
    pair.set_mpr(512)
    pair.drive()
    pair.assert_intact()
    assert pair.q.state == es.RTS


def test_an_overtaken_sack_does_not_bring_back_an_older_mpr() -> None:
    pair = Pair(mpr=512, dynamic_mpr=1)
    pair.cut(src=1)
    pair.post(40 * 4096)
    pair.advance(us=8)
    pair.sack(20, mpr=1)
    pair.sack(10, mpr=4)
    assert pair.q.mpr == 128
