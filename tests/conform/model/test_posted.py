"""What a requester may send, and what answers do to it."""

from __future__ import annotations

from openmrc.conform.model.posted import Posted, Told
from openmrc.engine import packet as pk

TOLD = Told(first_psn=100, pmtu=1024, mpr=128, va=1 << 32, rkey=7, max_wimm=1)


def test_every_field_of_a_packet_follows_from_what_was_posted() -> None:
    q = Posted(TOLD)
    q.post(8, 1)
    q.post(2500, 2)
    q.sends({"psn": 100, "rtx": 0})
    right = [q.sends({"psn": 101 + k, "rtx": 0}) for k in range(3)]
    assert [r["opcode"] for r in right] == [pk.WRITE_FIRST, pk.WRITE_MIDDLE, pk.WRITE_LAST_IMM]
    assert [r["va"] - (1 << 32) for r in right] == [0, 1024, 2048]
    assert [r["length"] for r in right] == [1024, 1024, 452]
    assert {(r["msn"], r["rqmsn"], r["dma_length"]) for r in right} == {(1, 1, 2500)}
    assert (right[2]["imm"], [r["asks"] for r in right]) == (2, [0, 0, 1])
    assert right[0]["open_imms"] == 2  # one more than agreed
    assert q.sends({"psn": 104, "rtx": 0})["posted"] == 0


def test_answers_show_complete_and_are_not_believed_of_what_was_never_sent() -> None:
    q = Posted(TOLD)
    q.post(4096, None)
    for k in range(4):
        q.sends({"psn": 100 + k, "rtx": 0})
    assert q.hears("sack", {"cack_psn": 104}) is None
    assert q.hears("sack", {"cack_psn": 100, "rcvd_bytes": 99}) is None
    heard = q.hears("sack", {"cack_psn": 100, "sack_offset": 1, "sack_bitmap": 2, "rcvd_bytes": 9})
    assert heard is not None
    assert (heard.fresh, heard.n_bytes, q.una) == ({0, 2}, 9 * 256, 1)
    assert q.sends({"psn": 102, "rtx": 1})["shown"] == 1
    acked = q.hears("ack", {"msn": 0})
    assert acked is not None
    assert (acked.fresh, acked.acked, q.una) == ({1, 3}, 1, 4)
    assert q.hears("ack", {"msn": 1}) is None


def test_a_window_that_is_told_limits_what_may_be_sent() -> None:
    q = Posted(Told(100, 1024, 512, 1 << 32, 7, dynamic_mpr=True))
    q.post(300 * 1024, None)
    q.sends({"psn": 100, "rtx": 0})
    q.hears("sack", {"cack_psn": 100, "mpr": 1, "rcvd_bytes": 1})
    for k in range(1, 129):
        assert q.may_send
        q.sends({"psn": 100 + k, "rtx": 0})
    assert not q.may_send


def test_counters_that_wrap_go_on() -> None:
    q = Posted(Told(100, 1024, 128, 1 << 32, 7, messages=0xFFFF, n_bytes=(1 << 32) - 1024))
    q.post(1024, 1)
    q.post(1024, 2)
    rights = [q.sends({"psn": 100 + k, "rtx": 0}) for k in range(2)]
    assert [(right["msn"], right["rqmsn"]) for right in rights] == [(0xFFFF, 0xFFFF), (0, 0)]
    heard = q.hears("sack", {"cack_psn": 101, "rcvd_bytes": 5})
    assert heard is not None
    assert heard.n_bytes == 9 * 256
    assert not q.may_believe("ack", {"msn": 1}, sent=True)
    assert q.hears("ack", {"msn": 0x1_0000}) is not None
    assert q.acked == 2
