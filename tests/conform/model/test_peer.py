"""The kit as a whole peer, on a bad network that is drawn from a seed."""

from __future__ import annotations

from collections import Counter

from openmrc.conform.events import Event
from openmrc.conform.model.peer import Network, Requester, Responder
from openmrc.conform.model.received import PLACED, Received, Told

TOLD = Told(first_psn=10, pmtu=1024, mpr=128, region=(1 << 32, 7, 1 << 20))
RTT = 1000


def nothing(*_: object) -> bool:
    """May be believed."""
    return False


def test_a_requester_sends_until_all_has_come() -> None:
    held = Received(TOLD)
    network = Network(seed=3, loss=20, trim=10, mark=10, twice=10, late=50)
    kinds: Counter[str] = Counter()
    for kind, p in Requester(TOLD, network, 2, 4).packets(100, held):
        kinds[kind + "+trimmed" * bool(p.get("trimmed") or p.get("trimmed_lasthop"))] += 1
        if kind == "data":
            held.take(p)
    assert held.now.cack == held.now.high >= 99
    assert held.now.end == held.now.high + 1
    assert kinds["data+trimmed"] > 5
    assert kinds["data"] > 100
    assert kinds["probe"] > 0


def test_messages_reach_both_ends_of_the_region_and_may_be_empty_and_copies_come_late() -> None:
    held = Received(TOLD)
    va, _, room = TOLD.region
    begins, ends, late = set[int](), set[int](), 0
    for kind, p in Requester(TOLD, Network(seed=4, twice=30), 1, 1).packets(900, held):
        if kind == "data":
            late += held.now.high - held.sequence(p["psn"]) > 1 and p["rtx"]
            held.take(p)
            begins |= {p["va"]} if p["length"] else set()
            ends |= {p["va"] + p["length"]}
            ends |= {-1} if p["va"] == va + room and p["length"] == 0 else set()
    assert va in begins
    assert {va + room, -1} <= ends
    assert late > 10


def data(psn: int, **more: int) -> Event:
    fields = {"psn": psn, "opcode": 0xCA, "va": 0, "dma_length": 8, "length": 8, "ev": 5}
    return Event(0, "data", fields | {"plane": 1, "tx_timestamp": 9, "no_trim": 0} | more)


def test_a_responder_answers_a_round_trip_later() -> None:
    r = Responder(TOLD, RTT)
    r.network(Network())
    r.hears(data(10, a=1))
    assert list(r.answers(RTT - 1, nothing)) == []
    [(_, sack), (_, ack)] = r.answers(RTT, nothing)
    assert (sack["cack_psn"], sack["entropy"], sack["tx_timestamp"], ack["msn"]) == (10, 5, 9, 0)


def test_its_network_loses_trims_marks_and_repeats() -> None:
    for network, kinds in [
        (Network(loss=100), []),
        (Network(loss=100, plane=0), ["sack", "ack"]),
        (Network(trim=100), ["nack"]),
        (Network(twice=100), ["sack", "ack", "sack", "ack"]),
    ]:
        r = Responder(TOLD, RTT)
        r.network(network)
        r.hears(data(10, a=1))
        assert [kind for kind, _ in r.answers(2 * RTT, nothing)] == kinds
    r.network(Network(mark=100))
    r.hears(data(11, a=1, msn=1))
    assert [p["m"] for kind, p in r.answers(2 * RTT, nothing) if kind == "sack"] == [1]


def test_what_is_wrong_is_what_nobody_may_take_the_nearest_and_by_one_bit() -> None:
    held = Received(TOLD)
    va, rkey, room = TOLD.region
    wrong, keys, near = 0, set[int](), 0
    for kind, p in Requester(TOLD, Network(seed=5, wrong=15), 1, 1).packets(900, held):
        if kind == "data":
            before = held.now
            if held.take(p)[0] != PLACED:
                assert held.now == before
                wrong += 1
                keys |= {p["rkey"] ^ rkey}
                near += p["va"] + p["length"] == va + room + 1 or p["va"] == va - 1
    assert held.now.cack == held.now.high >= 899
    assert wrong > 300
    assert len(keys) > 15
    assert near > 5


def test_a_wrong_answer_comes_before_the_right_one() -> None:
    r = Responder(TOLD, RTT)
    r.network(Network(wrong=100))
    r.hears(data(10, a=1))
    told = list(r.answers(RTT, lambda kind, p: kind == "ack" or p["cack_psn"] == 10))
    assert [kind for kind, _ in told] in (["sack", "ack"], ["sack", "sack", "ack"])
    assert told[-2][1]["cack_psn"] == 10
    r.network(Network(refuse=100))
    r.hears(data(11, a=1, msn=1))
    assert [kind for kind, _ in r.answers(2 * RTT, nothing)] == ["nack"]


def test_answers_may_be_overtaken_by_others() -> None:
    r = Responder(TOLD, RTT)
    r.network(Network(behind=100))
    r.hears(data(10, a=1))
    assert list(r.answers(RTT, nothing)) == []
    assert r.next_at == RTT + RTT // 8
    r.network(Network())
    r.hears(data(11, a=1, msn=1))
    told = [p for kind, p in r.answers(RTT + RTT // 8, nothing) if kind == "sack"]
    assert [p["cack_psn"] for p in told] == [11, 10]
