"""Messages become packets and bytes at their places; what the headers of each packet say."""

from __future__ import annotations

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from tests.engine.cases import long
from tests.engine.pair import Pair


def test_a_healthy_write_costs_its_packets_and_two_acks() -> None:
    pair = Pair()
    pair.post(10 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.done() == [0]
    assert pair.sent["data"] == 10
    assert pair.sent["rtx"] == pair.sent["nack"] == pair.sent["probe"] == 0
    assert pair.sent["ack"] == 2
    assert pair.q.inflight == 0


@pytest.mark.parametrize(
    ("size", "opcodes"),
    [
        (1, [pk.WRITE_ONLY]),
        (4096, [pk.WRITE_ONLY]),
        (4097, [pk.WRITE_FIRST, pk.WRITE_LAST]),
        (8192, [pk.WRITE_FIRST, pk.WRITE_LAST]),
        (8193, [pk.WRITE_FIRST, pk.WRITE_MIDDLE, pk.WRITE_LAST]),
    ],
)
def test_opcodes_follow_the_place_in_the_message(size: int, opcodes: list[int]) -> None:
    pair = Pair()
    pair.post(size)
    pair.drive()
    pair.assert_intact()
    assert [int(x.p.opcode) for x in pair.packets("data")] == opcodes
    assert sum(int(x.p.payload_len) for x in pair.packets("data")) == size


def test_an_immediate_rides_on_the_last_packet_alone() -> None:
    pair = Pair()
    pair.post(5000, imm=0xDEAD_BEEF)
    pair.post(100, imm=7)
    pair.drive()
    got = [(int(x.p.opcode), int(x.p.imm)) for x in pair.packets("data")]
    assert got == [
        (pk.WRITE_FIRST, 0),
        (pk.WRITE_LAST_IMM, 0xDEAD_BEEF),
        (pk.WRITE_ONLY_IMM, 7),
    ]
    assert pair.immediates() == [0xDEAD_BEEF, 7]


def test_reth_is_in_every_packet_va_advanced_length_constant() -> None:
    pair = Pair()
    pair.post(10_000)
    pair.drive()
    region = pair.st.region[1]
    got = [(int(x.p.va), int(x.p.rkey), int(x.p.dma_len)) for x in pair.packets("data")]
    va, key = int(region.va), int(region.rkey)
    assert got == [(va, key, 10_000), (va + 4096, key, 10_000), (va + 8192, key, 10_000)]


def test_row_33_rqmsn_counts_immediates_and_is_0_in_plain_writes() -> None:
    pair = Pair()
    for imm in (None, 1, 2, None, 3):
        pair.post(4097, imm=imm)
    pair.drive()
    numbers = [(int(x.p.msn), int(x.p.rqmsn)) for x in pair.packets("data")]
    assert numbers == [(n, r) for n, r in enumerate([0, 0, 1, 0, 2]) for _ in range(2)]


def test_an_empty_message_is_one_packet_and_places_nothing() -> None:
    pair = Pair()
    pair.post(0)
    pair.post(0, imm=9)
    pair.post(4096)
    pair.drive()
    pair.assert_intact()
    assert pair.done() == [0, 1, 2]
    assert pair.immediates() == [9]
    assert [int(x.p.payload_len) for x in pair.packets("data")] == [0, 0, 4096]


def test_a_lost_empty_message_is_sent_again() -> None:
    pair = Pair()
    pair.drop(seq=0)
    pair.post(0, imm=9)
    pair.drive()
    assert pair.sent["rtx"] == 1
    assert pair.immediates() == [9]


def test_a_retransmission_has_the_same_headers() -> None:
    pair = Pair()
    pair.drop(seq=1)
    pair.post(20 * 4096, imm=5)
    pair.drive()
    pair.assert_intact()
    (again,) = pair.packets("rtx")
    first = pair.packets("data")[1]
    same = ("psn", "va", "rkey", "dma_len", "msn", "rqmsn", "opcode", "payload_len", "imm")
    assert all(again.p[name] == first.p[name] for name in same)
    assert again.p.flag_bits & pk.RTX
    assert not first.p.flag_bits & pk.RTX


@pytest.mark.parametrize("first_psn", [pk.PSN_MASK, pk.PSN_MASK - 7, pk.PSN_MASK - 100])
@pytest.mark.parametrize("lost", [(), (3, 7, 8, 9, 100, 101)], ids=["healthy", "lossy"])
def test_psn_wrap_around_is_crossed(first_psn: int, lost: tuple[int, ...]) -> None:
    pair = Pair(first_psn=first_psn)
    for seq in lost:
        pair.drop(seq=seq)
    pair.post(200 * 4096)
    pair.post(10, imm=1)
    pair.drive()
    pair.assert_intact()
    assert pair.done() == [0, 1]
    assert pair.sent["rtx"] == len(lost)
    psns = [int(x.p.psn) for x in pair.packets("data")]
    assert psns == [(first_psn + i) & pk.PSN_MASK for i in range(201)]


def test_msn_wraps_after_65536_messages() -> None:
    pair = Pair(messages=4)
    for end, number in ((pair.q, "msg"), (pair.r, "rx")):
        if number == "msg":
            end.msg_done = end.msg_cur = end.msg_end = 65_534
        else:
            end.rx_msn = 65_534
    for _ in range(4):
        pair.post(100)
    pair.drive()
    pair.assert_intact()
    assert [int(x.p.msn) for x in pair.packets("data")] == [65_534, 65_535, 0, 1]
    assert pair.done() == [0, 1, 2, 3]


def test_both_ends_send_at_once() -> None:
    pair = Pair(qps=2)
    for src in (0, 1):
        for qp in (0, 1):
            pair.post(50 * 4096, imm=10 * src + qp, src=src, qp=qp)
    pair.drive()
    pair.assert_intact()
    assert sorted(pair.immediates()) == [0, 1, 10, 11]


def test_the_send_queue_has_a_limit() -> None:
    pair = Pair(messages=4)
    assert [pair.post(100, pump=False) for _ in range(5)] == [True] * 4 + [False]
    pair.drive()
    assert pair.post(100)
    pair.drive()
    assert pair.done() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("pmtu", [1024, 2048, 4096, 8192])
def test_row_20_pmtu(pmtu: int) -> None:
    pair = Pair(pmtu=pmtu)
    pair.drop(seq=3)
    pair.post(10 * pmtu + 1)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["data"] == 11
    assert pair.sent["rtx"] == 1


def test_row_24_one_window_per_qp() -> None:
    """Trims of one QP leave the other's window alone."""
    pair = Pair(qps=2)
    window = float(pair.st.qp[1].cwnd)
    pair.post(40 * 4096)
    pair.post(40 * 4096, qp=1)
    pair.advance(us=5)
    for seq in range(5, 10):
        pair.nack(seq, pk.NACK_TRIMMED)
    assert pair.q.cwnd < window
    assert pair.st.qp[1].cwnd == window


@long
def test_row_24_qps_to_one_destination_may_share_a_window() -> None:
    """Two start as one does; one that has sent everything leaves its part to the other."""
    pair = Pair(qps=2, share_window=True, rtt_us=80)
    whole = Pair(rtt_us=80).q.max_wnd
    assert [float(q.cwnd) for q in pair.st.qp[:2]] == [whole, whole]
    pair.post(400 * 4096)
    pair.post(40 * 4096, qp=1)
    first, second = pair.st.qp[:2]
    assert first.cwnd == second.cwnd == whole / 2
    pair.advance(us=20)
    assert first.inflight + second.inflight <= whole
    while second.una < second.seq_end:
        before = float(first.cwnd + second.cwnd)
        pair.advance(us=1)
    assert first.cwnd == pytest.approx(before, rel=0.1)
    pair.drive()
    kept = float(first.cwnd)
    pair.post(4096, qp=1)
    assert second.cwnd == pytest.approx(kept)


def test_row_24_a_qp_that_fails_leaves_its_part_of_the_window() -> None:
    pair = Pair(qps=2, share_window=True)
    for qp in range(2):
        pair.post(40 * 4096, qp=qp)
    half = float(pair.st.qp[1].cwnd)
    pair.advance(us=1)
    pair.nack(0, pk.NACK_UNEXP_EVENT)
    assert pair.error() == "remote operation error"
    assert pair.st.qp[1].cwnd == pytest.approx(2 * half, rel=0.1)


@pytest.mark.parametrize("reason", [0x03, 0x08, 0x1D, 0xFF])
def test_an_unknown_nack_brings_the_packet_again_and_ends_no_qp(reason: int) -> None:
    """However often it comes: only reasons that are known to be resources charge a retry."""
    pair = Pair(linear_cnt=1, exp_cnt=0)
    pair.post(4096)
    pair.cut(kind="payload")
    for _ in range(4):
        pair.advance(us=3)
        pair.nack(0, reason)
        pair.q.charged_at = -es.NEVER
    assert pair.error() == "no error"
    assert pair.packets("rtx")
    pair.heal()
    pair.drive()
    assert pair.done() == [0]


def test_a_qp_that_is_not_in_rts_takes_no_message() -> None:
    pair = Pair()
    pair.q.state = es.ERROR
    assert not pair.post(100)
