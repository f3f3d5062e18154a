"""What the engine says of each packet that comes, and that what it refuses changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine import timers, verdict
from tests.engine.pair import Pair, next_deadline

RTX = pk.RTX | pk.ACK_REQ


def data(pair: Pair, seq: int, opcode: int = pk.WRITE_MIDDLE, **fields: int) -> list[Any]:
    """A packet of one long message arrives at NIC 1; what it answers."""
    region = pair.st.region[1]
    what = {
        "psn": pair.psn(seq),
        "va": int(region.va) + seq * 4096,
        "rkey": int(region.rkey),
        "dma_len": 400 * 4096,
        "payload_len": 4096,
    }
    return pair.inject(1, opcode, **(what | fields))


def test_what_a_transfer_is_told() -> None:
    pair = Pair()
    pair.trim(seq=3)
    pair.duplicate(seq=5)
    pair.post(20 * 4096)
    pair.drive()
    pair.run_out()
    assert pair.verdicts["placed"] == 20
    assert pair.verdicts["trimmed, and requested again"] == 1
    assert pair.verdicts["received before"] == 1
    answers = sum(pair.sent[kind] for kind in ("sack", "nack", "ack", "request", "response"))
    assert pair.verdicts["taken in"] == answers
    assert sum(pair.verdicts.values()) == 22 + answers


CONTRADICTORY = "headers that contradict each other or the message's other packets"
REFUSED: dict[str, dict[str, Any]] = {
    "longer than the path MTU": {"payload_len": 4097},
    "PSN outside the window": {"seq": 512},
    "not from the queue pair's peer": {"src": 7},
    "an opcode out of place": {"opcode": 0xDF},
    CONTRADICTORY: {"dma_len": 8192},
}


@pytest.mark.parametrize("guarded", [0, 1])
@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_changes_nothing(text: str, guarded: int) -> None:
    pair = Pair(guarded=guarded)
    before = pair.st.qp[1].tobytes()
    nacks = data(pair, **({"seq": 0} | REFUSED[text]))
    if text == CONTRADICTORY and not guarded:  # nobody lies there
        assert pair.verdicts == {"placed": 1}
        return
    assert pair.verdicts == {text: 1}
    if text == "PSN outside the window":
        assert [int(p.reason) for p in nacks] == [pk.NACK_PSN_OOR_WINDOW]
        return
    assert nacks == []
    assert pair.st.qp[1].tobytes() == before


def test_answers_to_what_needs_none_are_rationed_where_anybody_can_send() -> None:
    """32 at once, from the first on, then one each round trip, and one for 16 new packets."""
    pair = Pair(guarded=1)
    for rtts in (0, 1000):
        pair.advance(ps=rtts * pair.rtt)
        assert sum(len(data(pair, 600)) for _ in range(40)) == 32
    pair.advance(ps=pair.rtt)
    assert len(data(pair, 600)) == 1
    assert data(pair, 600) == []
    for seq in range(16):
        data(pair, seq)
    assert pair.verdicts["placed"] == 16
    assert len(data(pair, 600)) == 1
    assert data(pair, 600) == []


def test_row_20_a_question_about_a_size_is_no_duplicate() -> None:
    pair = Pair(guarded=1)
    for _ in range(32):
        data(pair, -1, pk.WRITE_ONLY, dma_len=4096, flag_bits=RTX)
    assert pair.verdicts["a probe of the path's MTU"] == 32
    assert pair.r.n_dup == 0
    data(pair, -1, pk.WRITE_ONLY, dma_len=4096, flag_bits=RTX)  # no answer is left for it
    assert pair.verdicts["received before"] == pair.r.n_dup == 1


def test_who_repeats_a_wrong_key_as_a_peer_would_ends_the_queue_pair() -> None:
    """Three times, half a round trip apart, at the next sequence; a burst of guesses does not."""
    pair = Pair(guarded=1)
    for seq in (0, 0, 0, 5, 5, 5, 0):
        assert data(pair, seq, rkey=1, flag_bits=RTX) == []
    for _ in range(2):
        assert pair.r.state == es.RTS
        pair.advance(ps=pair.rtt // 2)
        answers = data(pair, 0, rkey=1, flag_bits=RTX)
    assert [int(p.reason) for p in answers] == [pk.AETH_NAK_ACCESS_ERROR]
    assert pair.error(1) == "access outside a memory region by the peer"
    assert pair.verdicts["wrong rkey, out of bounds or no write right"] == 9
    data(pair, 0)
    assert pair.verdicts["queue pair is not ready"] == 1


def test_packets_of_a_message_that_disagree_are_refused_where_anybody_can_send() -> None:
    contradictory = verdict.VERDICT_TEXTS[verdict.CONTRADICTORY]
    pair = Pair(guarded=1)
    data(pair, 3)
    data(pair, 5, dma_len=401 * 4096)
    data(pair, 5, va=int(pair.st.region[1].va))
    data(pair, 5, pk.WRITE_FIRST)
    data(pair, 5, msn=64)
    assert pair.verdicts == {"placed": 1, contradictory: 4}
    data(pair, 5)
    assert pair.verdicts["placed"] == 2


def test_a_port_that_says_it_is_down_is_not_believed() -> None:
    pair = Pair()
    status = {"reason": pk.OP_PORT_STATUS, "psn": 7, "plane": 0}
    assert pair.inject(1, pk.ENDPOINT_REQUEST, imm=0b10, **status) == []
    assert pair.r.planes_ok == 0b11
    assert len(pair.inject(1, pk.ENDPOINT_REQUEST, imm=0b01, **status)) == 1
    assert pair.r.planes_ok == 0b01


@pytest.mark.parametrize("name", timers.TIMERS)
def test_every_timer_counts_and_stops(name: str) -> None:
    pair = Pair(checked=False)
    pair.q[name] = 5
    assert next_deadline(pair.st, 0) == 5
    pair.q.state = es.ERROR
    pair.advance(us=1)  # and none stays due
    assert pair.deadline(0) == es.NEVER


def test_a_port_that_comes_back_finds_nothing_due_at_a_queue_pair_in_error() -> None:
    pair = Pair(rto_exponent=6, linear_cnt=2, exp_cnt=2)
    pair.cut(src=0)
    pair.post(8192)
    pair.drive(errors=True)
    assert pair.q.n_bad > 0
    pair.port(0, 1, up=False)
    pair.port(0, 1, up=True)
    pair.advance(us=10)
    assert pair.deadline(0) == es.NEVER
