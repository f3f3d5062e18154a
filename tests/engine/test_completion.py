"""Completions in order, the transport ACK, immediates and access errors (rows 17, 18; MRC 1.3)."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from tests.engine.arriving import data
from tests.engine.pair import MS, US, Pair


def test_row_17_a_write_completes_with_the_ack_that_covers_its_msn() -> None:
    pair = Pair()
    pair.cut(kind="ack")
    for _ in range(3):
        pair.post(4096)
    pair.advance(us=9)
    assert pair.q.una == 3  # all SACKed
    assert pair.done() == []
    pair.inject(0, pk.ACKNOWLEDGE, msn=1, reason=pk.AETH_ACK)
    assert pair.done() == [0, 1]
    pair.inject(0, pk.ACKNOWLEDGE, msn=2, reason=pk.AETH_ACK)
    assert pair.done() == [0, 1, 2]


def test_row_17_an_ack_about_a_message_not_sent_is_ignored() -> None:
    pair = Pair()
    pair.cut()
    pair.post(4096)
    pair.inject(0, pk.ACKNOWLEDGE, msn=1, reason=pk.AETH_ACK)
    assert pair.done() == []


def test_row_17_an_old_ack_completes_nothing_twice() -> None:
    pair = Pair()
    pair.post(4096)
    pair.post(4096)
    pair.drive()
    pair.inject(0, pk.ACKNOWLEDGE, msn=0, reason=pk.AETH_ACK)
    assert pair.done() == [0, 1]


def test_row_17_a_lost_ack_is_asked_for_a_quarter_of_a_round_trip_later() -> None:
    """It left with the SACK of all that was sent, on another plane."""
    pair = Pair()
    pair.drop(2, kind="ack")
    pair.post(4096)
    pair.drive()
    (probe,) = pair.packets("probe")
    (sack,) = pair.packets("sack")[:1]
    heard = sack.at + pair.one_way_ps
    assert probe.at == heard + int(pair.q.base_rtt) // 4
    assert pair.done() == [0]
    assert pair.sent["ack"] == 3
    assert pair.sent["rtx"] == 0


def test_row_17_waiting_for_the_probe_budget_charges_nothing() -> None:
    """No probe may leave for 20 ms: that is no silence of the peer."""
    pair = Pair()
    pair.st.nic[0].probe_tokens = (0, 0)
    pair.st.nic[0].probe_rate = 1 / (20 * MS)
    pair.drop(2, kind="ack")
    pair.post(4096)
    pair.drive()
    assert pair.now > 19 * MS
    assert pair.q.n_epochs <= 1


def test_row_17_lost_acks_are_survived() -> None:
    pair = Pair(rto_exponent=6)
    pair.drop(next=5, kind="ack")
    pair.post(4096)
    pair.drive()
    assert pair.sent["ack"] == 6
    assert pair.sent["rtx"] == 0


def test_row_17_a_peer_that_dies_before_its_ack_is_an_error_in_the_end() -> None:
    """Everything is SACKed, the ACK never comes: completed or an error, never neither."""
    pair = Pair(rto_exponent=6, linear_cnt=2, exp_cnt=2)
    pair.cut(kind="ack")
    pair.post(4096)
    pair.advance(us=10)
    assert pair.q.una == 1
    pair.cut()
    pair.drive(limit_us=30 * pair.rto / US, errors=True)
    assert pair.error() == "retry counter exceeded"


def test_row_17_a_later_ack_covers_a_lost_one() -> None:
    pair = Pair()
    pair.drop(kind="ack")
    pair.post(4096)
    pair.advance(us=5)
    pair.post(4096)
    pair.drive()
    assert pair.done() == [0, 1]
    assert pair.sent["probe"] == 0


def test_row_17_the_responder_repeats_the_ack_on_a_duplicate_of_the_last_message() -> None:
    pair = Pair()
    pair.post(3 * 4096)
    pair.drive()
    for seq in range(3):
        answers = data(pair, seq)
        assert [int(p.opcode) for p in answers] == [pk.SACK, pk.ACKNOWLEDGE]
        assert (answers[1].msn, answers[1].reason) == (0, pk.AETH_ACK)


def test_row_17_a_probe_is_answered_with_sack_and_ack_when_all_is_complete() -> None:
    pair = Pair()
    pair.post(4096)
    pair.drive()
    answers = pair.inject(1, pk.PROBE, ack_offset=5)
    assert [int(p.opcode) for p in answers] == [pk.SACK, pk.ACKNOWLEDGE]


def test_an_ack_that_overtakes_its_sacks_says_all_is_received() -> None:
    pair = Pair()
    pair.cut(kind="sack")
    pair.post(4096)
    pair.drive()
    assert pair.q.una == 1
    assert pair.q.inflight == 0
    assert pair.sent["probe"] == 0


def test_messages_complete_in_any_order_and_are_acked_in_order() -> None:
    pair = Pair()
    pair.drop(seq=0)
    pair.post(2 * 4096)
    pair.post(2 * 4096)
    pair.post(2 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.done(es.DONE_DELIVERED) == [1, 2, 0]
    assert pair.done() == [0, 1, 2]
    assert [int(x.p.msn) for x in pair.packets("ack")] == [2, 2]


def test_immediates_are_released_in_order() -> None:
    """The first message misses a packet: the immediates behind it wait for it."""
    pair = Pair()
    pair.drop(seq=1)
    pair.post(3 * 4096)
    for imm in (11, 12, 13):
        pair.post(4096, imm=imm)
    pair.advance(us=12)
    assert pair.done(es.DONE_DELIVERED) == [1, 2, 3]
    assert pair.immediates() == []
    pair.drive()
    assert pair.immediates() == [11, 12, 13]


def test_an_immediate_needs_a_posted_receive() -> None:
    pair = Pair(must_post_receives=1)
    pair.r.receives = 1
    pair.post(100, imm=1)
    pair.post(100, imm=2)
    pair.drive(errors=True)
    assert pair.immediates() == [1]
    assert pair.error(1) == "no receive posted for an immediate"
    assert pair.error(0) == "remote invalid request"
    assert pair.done() == [0]


def test_a_write_without_immediate_needs_no_receive() -> None:
    pair = Pair(must_post_receives=1)
    pair.post(100)
    pair.drive()
    assert pair.done() == [0]


@pytest.mark.parametrize(("limit", "open_at_once"), [(3, 3), (2, 2)])
def test_the_sender_keeps_to_max_wimm(limit: int, open_at_once: int) -> None:
    pair = Pair(max_wimm=limit)
    for imm in range(6):
        pair.post(4096, imm=imm)
    pair.advance(us=7)
    assert pair.sent["data"] == open_at_once
    pair.drive()
    assert pair.immediates() == list(range(6))


def test_a_write_behind_the_limit_of_immediates_waits_its_turn() -> None:
    pair = Pair(max_wimm=1)
    pair.post(4096, imm=1)
    pair.post(4096, imm=2)
    pair.post(4096)
    pair.advance(us=7)
    assert pair.sent["data"] == 1
    pair.drive()
    assert pair.done() == [0, 1, 2]


@pytest.mark.parametrize(("limit", "state"), [(3, es.RTS), (2, es.ERROR)])
def test_row_18_immediates_overrun_is_the_end_at_both_ends(limit: int, state: int) -> None:
    """The sender has three immediates open; the receiver holds three, or two."""
    pair = Pair(max_wimm=3)
    pair.drop(seq=0)
    pair.post(4096)
    for imm in range(3):
        pair.post(4096, imm=imm)
    pair.advance(us=2)
    assert pair.sent["data"] == 4
    pair.st.config[0].max_wimm = limit
    pair.drive(errors=True)
    assert pair.q.state == pair.r.state == state
    if state == es.ERROR:
        assert pair.error(0) == "remote invalid request"
        assert pair.error(1) == "too many immediates in flight from the peer"
        nak = pair.packets("ack")[-1].p
        assert nak.reason == pk.AETH_NAK_INVALID_REQUEST
        assert pair.immediates() == []
        assert 0 < pair.r.error_at < pair.q.error_at


@pytest.mark.parametrize(
    ("wrong", "size"),
    [({"offset": -1}, 10), ({"offset": (4 << 20) - 9}, 10), ({"rkey": 1}, 10), ({"rkey": 0}, 10)],
    ids=["before", "beyond", "key", "other region"],
)
def test_an_access_error_ends_the_qp_at_both_ends_and_places_nothing(
    wrong: dict[str, Any], size: int
) -> None:
    pair = Pair()
    pair.post(size, **wrong)
    pair.drive(errors=True)
    assert pair.error(0) == "remote access error"
    assert pair.error(1) == "access outside a memory region by the peer"
    assert int(pair.writes.sum()) == 0
    assert pair.done() == []
    nak = pair.packets("ack")[-1].p
    assert nak.reason == pk.AETH_NAK_ACCESS_ERROR


@pytest.mark.parametrize("offset", [0, (4 << 20) - 10])
def test_the_first_and_the_last_bytes_of_a_region_may_be_written(offset: int) -> None:
    pair = Pair()
    pair.post(10, offset=offset)
    pair.drive()
    pair.assert_intact()


def test_the_boundary_is_checked_for_each_packet() -> None:
    """The first packet lies inside, the second half outside."""
    pair = Pair()
    pair.post(8192, offset=(4 << 20) - 6000)
    pair.drive(errors=True)
    assert int(pair.writes.sum()) == 4096
    assert pair.error(0) == "remote access error"


def test_a_region_of_another_nic_is_out_of_reach() -> None:
    pair = Pair()
    mine = pair.st.region[0]
    at = int(mine.va) - int(pair.st.region[1].va)
    pair.post(10, offset=at, rkey=int(mine.rkey))
    pair.drive(errors=True)
    assert pair.error(0) == "remote access error"


def test_a_sacked_packet_can_still_be_refused_by_the_transport() -> None:
    """MRC 1.3: two layers. The good half of the message is SACKed, the QP ends all the same."""
    pair = Pair(sack_bytes=1)
    pair.post(8192, offset=(4 << 20) - 6000)
    pair.advance(us=7.9)
    pair.drive(errors=True)
    assert pair.sent["sack"] == 1
    assert pair.error(0) == "remote access error"


def test_row_17_the_last_ack_leaves_on_two_planes() -> None:
    pair = Pair(planes=4)
    pair.post(4096)
    pair.drive()
    one, other = pair.packets("ack")
    assert int(one.p.msn) == int(other.p.msn) == 0
    assert one.p.plane != other.p.plane


def test_row_17_where_there_is_one_plane_it_leaves_once() -> None:
    pair = Pair(planes=1)
    pair.post(4096)
    pair.drive()
    assert pair.sent["ack"] == 1


def test_row_17_an_ack_that_others_will_follow_leaves_once() -> None:
    """Packets of the next message are there when the first completes."""
    pair = Pair(planes=4)
    pair.delay(0.2, seq=1)
    pair.post(2 * 4096)
    pair.post(16 * 4096)
    pair.drive()
    assert [int(x.p.msn) for x in pair.packets("ack")] == [0, 1, 1]


@pytest.mark.parametrize("lost", [1, 2])
def test_row_17_one_of_the_two_may_be_lost(lost: int) -> None:
    pair = Pair(planes=4)
    pair.drop(lost, kind="ack")
    pair.post(4096)
    pair.drive()
    assert pair.done() == [0]
    assert pair.sent["probe"] == lost - 1
