"""What a responder must hold, packet by packet."""

from __future__ import annotations

from openmrc.conform.model import received
from openmrc.conform.model.received import Received, Told
from openmrc.engine import packet as pk

TOLD = Told(first_psn=0xFF_FFFE, pmtu=1024, mpr=128, region=(1 << 32, 7, 1 << 20))


def data(seq: int, index: int, n: int, **more: int) -> dict[str, int]:
    last = index == n - 1
    opcode = pk.WRITE_ONLY if n == 1 else pk.WRITE_LAST if last else pk.WRITE_MIDDLE
    opcode = pk.WRITE_FIRST if index == 0 < n - 1 else opcode
    return {
        "psn": TOLD.first_psn + seq & pk.PSN_MASK, "opcode": opcode, "rkey": 7,
        "va": (1 << 32) + index * 1024, "dma_length": n * 1024, "length": 1024,
    } | more  # fmt: skip


def test_a_hole_a_duplicate_and_the_end_of_a_message_over_the_wrap() -> None:
    r = Received(TOLD)
    assert r.take(data(2, 2, 3)) == (received.PLACED, 0)
    assert (r.now.cack, r.now.high, r.now.bitmap(0)) == (-1, 2, 0b100)
    assert r.take(data(2, 2, 3)) == (received.DUPLICATE, 1)
    assert r.take(data(0, 0, 3, a=1)) == (received.PLACED, 1)
    assert (r.now.cack, r.now.done, r.now.n_bytes) == (0, 0, 2 * 1112)
    assert r.take(data(1, 1, 3)) == (received.PLACED, 0)
    assert (r.now.cack, r.now.done, r.now.end, r.psn(2)) == (2, 1, 3, 0)


def test_the_window_the_region_and_the_message_refuse() -> None:
    r = Received(TOLD)
    assert r.take(data(128, 128, 200)) == (received.BEYOND, 0)
    assert r.take(data(0, 0, 3, rkey=8)) == (received.REFUSED, 0)
    assert r.take(data(0, 0, 3, va=(1 << 32) + (1 << 20) - 1023)) == (received.REFUSED, 0)
    assert r.take(data(0, 0, 3)) == (received.PLACED, 0)
    assert r.take(data(1, 1, 4)) == (received.REFUSED, 0)  # another length
    assert r.take(data(1, 1, 3, length=512)) == (received.REFUSED, 0)
    assert r.take(data(3, 2, 3)) == (received.REFUSED, 0)  # the last packet at the wrong place
    assert r.now.got == 1


def test_a_sack_is_owed_every_16384_bytes_and_for_what_was_waited_for() -> None:
    r = Received(TOLD)
    owed = [r.take(data(k, k, 40))[1] for k in range(30)]
    assert [k for k, n in enumerate(owed) if n] == [14, 29]
    r.take(data(31, 31, 40, a=1))
    assert r.take(data(30, 30, 40)) == (received.PLACED, 1)  # it is late


def test_a_header_owes_a_nack_and_a_sack_if_anything_is_unreported() -> None:
    r = Received(TOLD)
    assert r.take(data(1, 1, 8, trimmed=1, a=1)) == (received.HEADER, 0)
    r.take(data(0, 0, 8))
    assert r.take(data(1, 1, 8, trimmed=1, a=1)) == (received.HEADER, 1)


def test_immediates_come_in_order_and_end_a_queue_pair_without_receives() -> None:
    r = Received(Told(0, 1024, 128, (1 << 32, 7, 1 << 20), receives=1))
    imm = {"opcode": pk.WRITE_ONLY_IMM}
    r.take(data(1, 0, 1, msn=1, imm=6, **imm) | {"psn": 1})
    assert r.immediates == []
    r.take(data(0, 0, 1, msn=0, imm=5, **imm) | {"psn": 0})
    assert r.immediates == [5]
    assert r.ended
    assert r.take(data(2, 0, 1, msn=2) | {"psn": 2}) == (received.UNHEARD, 0)
