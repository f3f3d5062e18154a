"""When the responder answers, and what its answer says (rows 5, 6; MRC 2.6, 2.7)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from openmrc.engine import fate
from openmrc.engine import packet as pk
from tests.engine.arriving import data
from tests.engine.pair import OVERHEAD, US, Pair

NOMINAL = 4096 + OVERHEAD


def bits_of(p: Any) -> set[int]:
    """Sequences, relative to `cack`, that a SACK's bitmap reports."""
    return {int(p.sack_offset) + i for i in range(64) if (int(p.bitmap) >> i) & 1}


@pytest.mark.parametrize(
    "fields",
    [{"flag_bits": pk.CE}, {"flag_bits": pk.RTX}, {"flag_bits": pk.ACK_REQ}],
    ids=["CE", "RTX", "AckReq"],
)
def test_row_05_sack_at_once(fields: dict[str, int]) -> None:
    pair = Pair()
    (sack,) = data(pair, 0, **fields)
    assert sack.opcode == pk.SACK
    assert sack.klass == pk.CLASS_CONTROL


def test_row_05_sack_at_once_for_a_duplicate() -> None:
    pair = Pair()
    assert data(pair, 0) == []
    (sack,) = data(pair, 0)
    assert (sack.cack_psn, sack.ack_offset) == (pair.psn(0), 0)
    assert pair.r.n_dup == 1


def test_row_05_else_every_16384_bytes_of_nominal_size() -> None:
    """3 x 4184 B stay below 16,384 B, the fourth passes it."""
    pair = Pair()
    answers = [len(data(pair, seq)) for seq in range(8)]
    assert answers == [0, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(("sack_bytes", "first"), [(2 * NOMINAL, 1), (2 * NOMINAL + 1, 2)])
def test_row_05_just_at_the_threshold_and_just_below(sack_bytes: int, first: int) -> None:
    pair = Pair(sack_bytes=sack_bytes)
    answers = [len(data(pair, seq)) for seq in range(3)]
    assert answers.index(1) == first


def test_row_05_sack_at_once_for_what_comes_later_than_a_packet_that_asked() -> None:
    """And it shows the block of that packet, whosever turn it is."""
    pair = Pair()
    assert len(data(pair, 99, flag_bits=pk.ACK_REQ)) == 1
    for seq in (5, 70, 98):
        (sack,) = data(pair, seq)
        shown = (pair.psn(seq) - int(sack.cack_psn) - int(sack.sack_offset)) % (1 << 24)
        assert 0 <= shown < 64
        assert int(sack.bitmap) >> shown & 1
    assert [len(data(pair, seq)) for seq in (100, 101, 102, 103)] == [0, 0, 0, 1]


@pytest.mark.parametrize(("before", "sacks"), [(0, 0), (2, 1)])
def test_row_05_a_header_that_asks_is_told_what_is_not_reported_yet(
    before: int, sacks: int
) -> None:
    """Else a closed window whose last packet was trimmed would wait for a timer."""
    pair = Pair()
    for seq in range(before):
        assert data(pair, seq) == []
    answers = data(pair, 9, flag_bits=pk.ACK_REQ | pk.TRIMMED_LASTHOP)
    assert [int(p.opcode) for p in answers] == [pk.NACK] + [pk.SACK] * sacks
    assert len(data(pair, 7)) == 1  # what comes later and was sent before it: at once


def test_row_05_a_closed_window_whose_last_packet_is_trimmed_goes_on_at_once() -> None:
    """Two packets came and are not reported; the third asked, and only its header came."""
    pair = Pair(planes=1, evs=4)
    pair.q.cwnd = 3 * NOMINAL
    pair.trim(seq=2, last_hop=True)
    pair.post(40 * 4096)
    pair.until(lambda: pair.sent["rtx"] == 1)
    assert pair.now < 1.5 * pair.rtt
    assert pair.q.una == 2
    assert pair.q.base_rtt == pair.rtt


def test_row_05_the_counter_is_cleared_by_every_sack() -> None:
    pair = Pair()
    flags = [0, 0, pk.CE, 0, 0, 0, 0]
    answers = [len(data(pair, seq, flag_bits=f)) for seq, f in enumerate(flags)]
    assert answers == [0, 0, 1, 0, 0, 0, 1]


def test_row_05_a_duplicate_adds_nothing_to_rcvd_bytes() -> None:
    pair = Pair()
    data(pair, 0)
    (sack,) = data(pair, 0)
    assert sack.rcvd_units == -(-NOMINAL // 256)


def test_row_05_sender_asks_on_the_last_packet_of_a_message() -> None:
    pair = Pair()
    pair.post(3 * 4096, pump=False)
    pair.post(2 * 4096, pump=False)
    pair.post(9 * 4096)
    pair.drive()
    asked = [bool(x.p.flag_bits & pk.ACK_REQ) for x in pair.packets("data")]
    assert [i for i, a in enumerate(asked) if a] == [2, 4, 13]


def test_row_05_sender_asks_when_the_byte_window_closes() -> None:
    pair = Pair()
    pair.q.cwnd = 5 * NOMINAL
    pair.post(20 * 4096)
    pair.advance(us=3)
    asked = [bool(x.p.flag_bits & pk.ACK_REQ) for x in pair.packets("data")]
    assert asked == [False] * 4 + [True]


def test_row_05_sender_asks_when_the_psn_window_closes() -> None:
    pair = Pair(mpr=128, rtt_us=80)
    pair.post(200 * 4096)
    pair.advance(us=60)
    asked = [bool(x.p.flag_bits & pk.ACK_REQ) for x in pair.packets("data")]
    assert asked == [False] * 127 + [True]


def test_row_05_sender_asks_on_every_retransmission() -> None:
    pair = Pair()
    for seq in (3, 4, 5):
        pair.drop(seq=seq)
    pair.post(40 * 4096)
    pair.drive()
    again = pair.packets("rtx")
    assert len(again) == 3
    assert all(x.p.flag_bits & pk.ACK_REQ for x in again)


def test_row_06_base_is_the_block_of_the_trigger() -> None:
    pair = Pair()
    for seq in range(100):
        data(pair, seq)
    (sack,) = data(pair, 100, flag_bits=pk.CE)
    base = 100 + int(sack.sack_offset)
    assert base == 64
    assert bits_of(sack) == set(range(-36, 1)), "bits at or below cack read 1"


def test_row_06_blocks_alternate_while_holes_exist() -> None:
    """Holes in blocks 0 and 2, triggers in block 4: every second SACK goes back to a hole."""
    pair = Pair()
    for seq in range(256):
        if seq not in (5, 130):
            data(pair, seq)
    bases = []
    for seq in range(256, 272):
        (sack,) = (x for x in data(pair, seq, flag_bits=pk.CE) if x.opcode == pk.SACK)
        assert sack.cack_psn == pair.psn(4)
        bases.append(4 + int(sack.sack_offset))
    assert bases.count(256) == 8
    assert all(a == 256 or b == 256 for a, b in pairwise(bases))
    older = [b for b in bases if b != 256]
    assert older[:2] == [192, 192], "the block just left has had news"
    assert sorted(older[2:]) == [0, 0, 0, 128, 128, 128]


def test_row_06_each_received_psn_is_reported_at_least_twice() -> None:
    """Above a hole, at the normal SACK spacing, each PSN stands in two bitmaps or more (but for
    those that came with the last four SACKs).
    """
    pair = Pair()
    seen = dict.fromkeys(range(1, 200), 0)
    for seq in range(1, 200):
        for sack in data(pair, seq):
            for bit in bits_of(sack):
                if bit - 1 in seen:
                    seen[bit - 1] += 1
    assert [seq for seq, n in seen.items() if n < 2 and seq < 184] == []


def test_row_06_what_comes_late_takes_no_turn_of_the_block_left_last() -> None:
    """Retransmissions fill block 0 while the triggers move on from block 1 to block 2."""
    pair = Pair()
    for seq in (*range(1, 50), *range(64, 128)):
        data(pair, seq)
    shown = []
    for late, seq in zip(range(50, 58), range(128, 136), strict=True):
        for sack in (*data(pair, seq, flag_bits=pk.CE), *data(pair, late, flag_bits=pk.RTX)):
            assert sack.cack_psn == pair.psn(-1)  # sequence 0 is missing throughout
            shown.append(int(sack.sack_offset) - 1)
    assert shown.count(64) == 2
    assert set(shown) == {0, 64, 128}


def test_row_05_a_sack_of_an_older_block_leaves_the_counter() -> None:
    """It tells nothing of what was counted; the SACK of the counter itself clears it."""
    pair = Pair()
    data(pair, 4, flag_bits=pk.ACK_REQ)
    for seq in range(64, 71):
        data(pair, seq)
    assert pair.r.sack_credit == 3 * NOMINAL
    (old,) = data(pair, 2, flag_bits=pk.RTX)
    assert old.sack_offset == 1 + 0
    assert pair.r.sack_credit == 4 * NOMINAL
    (new,) = data(pair, 71)
    assert new.sack_offset in (1, 65)
    assert pair.r.sack_credit == 0


def test_row_06_a_probe_is_answered_from_cack_plus_one() -> None:
    pair = Pair()
    for seq in (0, 1, 2, 5, 60):
        data(pair, seq)
    (sack,) = pair.inject(1, pk.PROBE, ack_offset=77, ev=pair.ev(1, 1))
    assert sack.flag_bits & pk.PROBE_ANSWER
    assert (sack.ack_offset, sack.sack_offset) == (77, 1)
    assert sack.entropy == pair.ev(1, 1)
    assert bits_of(sack) == {3, 58}


@pytest.mark.parametrize(("highest", "answers"), [(66, 1), (67, 2)])
def test_row_06_a_second_answer_covers_the_newest_block(highest: int, answers: int) -> None:
    """cack = 2: the first answer covers 3 .. 66."""
    pair = Pair()
    for seq in (0, 1, 2, highest):
        data(pair, seq)
    sacks = pair.inject(1, pk.PROBE, ack_offset=77)
    assert len(sacks) == answers
    assert {int(s.ack_offset) for s in sacks} == {77}
    assert highest - 2 in bits_of(sacks[-1])


def test_row_06_snapshots_are_ordered_by_rcvd_bytes() -> None:
    """A snapshot that was overtaken judges nothing lost, yet what it reports received counts."""
    pair = Pair()
    pair.cut(kind="sack")
    pair.cut(kind="ack")
    pair.post(40 * 4096)
    pair.advance(us=14)
    assert pair.q.nxt == 40
    units = 30 * NOMINAL // 256
    pair.sack(9, got={20}, rcvd_units=units)
    lost = int(pair.q.n_inferred)
    assert pair.q.rcvd_high == units
    pair.sack(9, got={39}, rcvd_units=units - 100)  # would show 10 .. 38 missing
    assert pair.q.n_inferred == lost
    assert pair.slot(39).fate == fate.DELIVERED
    assert pair.q.rcvd_high == units


def test_what_was_never_sent_cannot_be_received() -> None:
    """One such `rcvd_bytes` believed, and every true snapshot would look old: losses unseen."""
    pair = Pair()
    pair.cut(kind="ack")
    pair.post(30 * 4096)
    pair.advance(us=14)
    units = -(-30 * NOMINAL // 256)
    before = bytes(pair.q.tobytes())
    pair.checked = False
    pair.sack(30)
    pair.sack(9, rcvd_units=units + 1)
    pair.sack(9, got={30})
    pair.sack(9, trigger=9, sack_offset=40, bitmap=1)
    assert bytes(pair.q.tobytes()) == before
    pair.sack(29, rcvd_units=units)
    assert (pair.q.una, pair.q.rcvd_high) == (30, units)


def test_rcvd_bytes_is_in_the_senders_measure_and_wraps_at_24_bits() -> None:
    pair = Pair()
    pair.r.rx_bytes = ((1 << 24) - 40) * 256
    pair.q.rcvd_high = (1 << 24) - 40
    pair.q.sent_bytes = ((1 << 24) - 40) * 256
    pair.post(30 * 4096)
    pair.drive()
    pair.assert_intact()
    last = pair.packets("sack")[-1].p
    assert int(last.rcvd_units) == (30 * NOMINAL + 255) // 256 - 40
    assert pair.q.rcvd_high == (1 << 24) - 40 + -(-30 * NOMINAL // 256)


def test_a_sack_reflects_entropy_timestamp_and_mark() -> None:
    pair = Pair()
    (sack,) = data(pair, 0, flag_bits=pk.CE, ev=pair.ev(1, 2), timestamp=4711)
    assert (sack.entropy, sack.timestamp, sack.m) == (pair.ev(1, 2), 4711, pk.M_SKIP_ONCE)
    (sack,) = data(pair, 1, flag_bits=pk.ACK_REQ, ev=pair.ev(1, 3), timestamp=4712)
    assert (sack.entropy, sack.timestamp, sack.m) == (pair.ev(1, 3), 4712, pk.M_NONE)


def test_ack_offset_is_the_trigger_less_cack() -> None:
    pair = Pair()
    data(pair, 0)
    (sack,) = data(pair, 9, flag_bits=pk.CE)
    assert (sack.cack_psn, sack.ack_offset, sack.ooo_count) == (pair.psn(0), 9, 9)


def test_a_sack_about_nothing_sent_is_ignored() -> None:
    pair = Pair()
    pair.post(4096)
    pair.advance(us=1)
    pair.sack(5)
    assert pair.q.una == 0
    pair.drive()
    pair.assert_intact()


def test_lost_sacks_are_survived() -> None:
    """Four in five SACKs vanish; of 200 packets few are sent again."""
    pair = Pair()
    pair.post(200 * 4096)
    for _ in range(400):
        pair.drop(next=4, kind="sack")
        pair.advance(us=1)
        pair.heal()
        pair.advance(us=0.3)
    pair.drive()
    pair.assert_intact()
    assert pair.dropped["sack"] > 20
    assert pair.sent["rtx"] == pair.q.n_false <= 4


def test_all_sacks_lost_the_transport_ack_says_it_all() -> None:
    pair = Pair()
    pair.cut(kind="sack")
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.now < 20 * US
    assert pair.sent["rtx"] == 1, "the copy that asks"
    assert pair.q.una == pair.q.nxt == 20
