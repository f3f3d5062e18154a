"""Stories of what the engine tells of packets and paths (`engine.account`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from openmrc.engine import account
from openmrc.engine.account import PROBES, REASONS, WHATS
from openmrc.engine.ev import EVENTS
from openmrc.engine.packet import TIMESTAMP_UNIT_PS
from tests.engine.pair import Pair

TRANSMISSIONS = WHATS[:4]


def told(room: int = 4096, **how: Any) -> Pair:
    """Two endpoints that keep an account."""
    pair = Pair(**how)
    pair.st = account.kept(pair.st, room)
    return pair


def why(record: Any) -> str:
    """The reason of a record, in words."""
    what, number = WHATS[int(record.what)], int(record.why)
    if what == "EV changed":
        return EVENTS[number].name
    if what.startswith("probe"):
        return PROBES[number]
    return REASONS[number] if what in TRANSMISSIONS else str(number)


def lines(pair: Pair, *whats: str, nic: int = 0) -> list[tuple[str, str, int, int, int]]:
    """What was told since the last call: what, why, EV, when the packet left, and when, ps."""
    found, missing = account.take(pair.st)
    assert missing == 0
    return [
        (WHATS[int(r.what)], why(r), int(r.ev), int(r.sent_at), int(r.at))
        for r in found
        if r.nic == nic and (not whats or WHATS[int(r.what)] in whats)
    ]


def first_of(pair: Pair, seq: int) -> Any:
    """When a packet first left, and on which EV."""
    log = next(x for x in pair.packets("data", src=0) if pair.seq(x.p) == seq)
    values = pair.st.ev.value[int(pair.q.ev0) :][: int(pair.q.n_evs)]
    return log.at, int(np.flatnonzero(values == log.p.ev)[0])


def test_without_an_account_nothing_is_told_and_no_packet_is_counted() -> None:
    pair = Pair()
    pair.post(100_000)
    pair.drop(seq=5)
    pair.drive()
    assert len(account.take(pair.st)[0]) == 0
    assert not pair.st.tally.any()


def test_a_lost_packet_its_path_and_the_probe_that_is_answered() -> None:
    pair = told()
    pair.post(400_000)
    pair.drop(seq=5)
    pair.drive()
    pair.advance(us=100)
    sent_at, ev = first_of(pair, 5)
    seen = lines(pair)
    lost = seen[0]
    assert lost[:4] == ("lost", "overdue", ev, sent_at)
    assert seen[1] == ("EV changed", "loss", ev, lost[4], lost[4])
    (probe,) = pair.packets("probe", src=0)
    back = probe.at + 2 * pair.one_way_ps
    assert probe.at == lost[4] + pair.rtt
    assert seen[2:] == [
        ("probe sent", "path", ev, probe.at, probe.at),
        ("probe answered", "path", ev, probe.at, back),
        ("EV changed", "answer", ev, back, back),
    ]


def test_each_probe_of_a_dead_path_is_missed_with_the_time_at_which_it_left() -> None:
    pair = told()
    dead = pair.cut(ev=pair.ev(0, 1))
    pair.post(400_000)
    pair.drive()
    pair.advance(us=300)
    pair.heal(dead)
    pair.advance(us=2000)
    seen = lines(pair, "probe sent", "probe missed", "probe answered", "EV changed")
    ev = pair.ev_index(0, 1)
    asked = [line for line in seen if line[1] != "queue pair"]
    assert {line[2] for line in asked} == {ev}
    every = [line for line in seen if line[0] == "probe sent"]
    assert [line[4] for line in every] == [x.at for x in pair.packets("probe", src=0)]
    assert [line[1] for line in every].count("queue pair") == 1
    sent = [line[4] for line in every if line[1] == "path"]
    missed = [line for line in asked if line[0] == "probe missed"]
    answered = [line[3] for line in asked if line[0] == "probe answered"]
    assert [line[3] for line in missed] + answered == sent  # each has one fate
    assert [line[4] for line in missed] == sent[1:]  # known when the next one leaves
    assert len(missed) >= 4
    assert len(answered) == 1


def test_an_answer_to_a_missed_probe_is_late() -> None:
    pair = told()
    pair.post(400_000)
    pair.drop(seq=5)
    rule = pair.delay(us=40, kind="probe")
    pair.drive()
    pair.advance(us=1000)
    assert rule.times == 0
    first, *others = [x.at for x in pair.packets("probe", src=0)]
    seen = lines(pair, "probe missed", "probe late", "probe answered")
    late = first // TIMESTAMP_UNIT_PS * TIMESTAMP_UNIT_PS
    assert [line[:2] + line[3:4] for line in seen if line[0] != "probe answered"] == [
        ("probe missed", "path", first),
        ("probe late", "path", late),
    ]
    assert others


def test_a_packet_that_comes_after_it_was_judged_lost_is_late() -> None:
    pair = told()
    pair.delay(us=32, seq=10)
    pair.post(1_000_000)
    pair.drive()
    sent_at, ev = first_of(pair, 10)
    seen = lines(pair, "lost", "late")
    assert [line[0] for line in seen] == ["lost", "late"]
    assert {line[2] for line in seen} == {ev}
    assert seen[0][3] == sent_at
    assert sent_at - 1000 < seen[1][3] <= sent_at


def test_every_transmission_has_one_fate() -> None:
    """Of each EV: what was sent is what was delivered, trimmed, lost, or never doubted again."""
    pair = told(planes=2, evs=4, backup=2)
    for seq in range(3, 190, 7):
        pair.drop(seq=seq)
    for seq in range(5, 190, 11):
        pair.trim(seq=seq)
    pair.delay(us=20, seq=60)
    pair.post(800_000)
    pair.drive()
    pair.run_out()
    q, st = pair.q, pair.st
    found, missing = account.take(st)
    assert missing == 0
    assert st.tally[:, account.N_TRIMMED].sum() > 10
    mine = found[(found.qp == 0) & (found.what <= account.LATE)]
    n = int(q.n_evs)
    ends = np.bincount(mine.ev[np.isin(mine.what, (account.LOST, account.DELIVERED))], minlength=n)
    assert ends.sum() > 10
    ordinary = st.tally[int(q.ev0) : int(q.ev0) + n].sum(axis=1)
    used = np.asarray(st.ev.used[int(q.ev0) : int(q.ev0) + n])
    assert (ordinary + ends).tolist() == used.tolist()


def test_a_silent_plane_a_port_and_a_queue_pair_that_fails() -> None:
    pair = told(planes=2, exp_cnt=0, linear_cnt=2)
    dead = pair.cut(plane=1)
    pair.post(2_000_000)
    pair.advance(us=150)
    pair.heal(dead)
    pair.drive()
    pair.advance(us=1000)
    seen = lines(pair, "plane silent", "plane back")
    assert [line[0] for line in seen] == ["plane silent", "plane back"]
    down_at = pair.now
    pair.port(0, 1, up=False)
    pair.advance(us=50)
    pair.port(0, 1, up=True)
    pair.advance(us=50)
    account_of = account.take(pair.st)[0]
    ports = account_of[np.isin(account_of.what, (account.PORT_DOWN, account.PORT_UP))]
    assert [(int(r.nic), WHATS[int(r.what)], int(r.why), int(r.plane)) for r in ports] == [
        (0, "port down", account.OWN, 1),
        (1, "port down", account.PEERS, 1),
        (0, "port up", account.OWN, 1),
        (1, "port up", account.PEERS, 1),
    ]
    assert int(ports[0].at) == down_at
    assert int(ports[1].at) == down_at + pair.one_way_ps
    pair.cut()
    pair.post(10_000)
    pair.drive(errors=True)
    failed = lines(pair, "QP failed")
    assert [line[:2] for line in failed] == [("QP failed", str(int(pair.q.error)))]
    assert failed[0][4] == int(pair.q.error_at)


def test_a_denied_path_is_told_and_a_mark_and_the_turn_after_it() -> None:
    pair = told(planes=1, evs=2)
    pair.deny(0, 0)
    pair.deny(0, 0, denied=False)
    assert [line[:2] for line in lines(pair)] == [("EV changed", "deny"), ("EV changed", "lift")]
    pair.mark(next=1, seq=3)
    pair.post(400_000)
    pair.drive()
    assert [line[1] for line in lines(pair)] == ["mark", "turn"]


def test_what_finds_no_room_is_counted_and_the_first_records_are_kept() -> None:
    whole, small = told(), told(room=3)
    for pair in (whole, small):
        for seq in (5, 17, 40):
            pair.drop(seq=seq)
        pair.post(400_000)
        pair.drive()
    every, none = account.take(whole.st)
    kept, missing = account.take(small.st)
    assert none == 0
    assert len(kept) == 3
    assert missing == len(every) - 3 > 0
    assert (np.asarray(kept) == np.asarray(every[:3])).all()
    assert account.take(small.st)[1] == 0


def test_an_account_changes_nothing() -> None:
    def run(pair: Pair) -> list[tuple[int, str]]:
        for seq in range(3, 150, 7):
            pair.drop(seq=seq)
        pair.delay(us=32, seq=10)
        pair.post(600_000)
        pair.drive()
        return [(x.at, x.kind) for x in pair.log]

    assert run(told()) == run(Pair())
