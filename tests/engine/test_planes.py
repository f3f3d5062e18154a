"""Silent planes, the floor of active EVs, and whose turn it is (rows 12, 13, 15)."""

from __future__ import annotations

from collections import Counter

import pytest

from openmrc.engine import packet as pk
from tests.engine.cases import long
from tests.engine.pair import US, Pair


def planes_used(pair: Pair, since: int = 0) -> Counter[int]:
    return Counter(int(x.p.plane) for x in pair.packets("data", "rtx", since=since))


def test_row_13_a_message_too_short_for_all_planes_begins_with_any() -> None:
    """Else those of an incast meet on one. A longer one goes round from the first."""
    pair = Pair(planes=4, evs=8, qps=40)
    for qp in range(40):
        pair.post((2 if qp else 8) * 4096, qp=qp)
        pair.drive()
    begun: Counter[int] = Counter()
    for q in pair.st.qp[:40]:
        planes = [int(x.p.plane) for x in pair.packets("data") if x.p.dst_qpn == q.peer_qpn]
        if len(planes) == 8:
            assert planes == 2 * [0, 1, 2, 3]
            continue
        begun[planes[0]] += 1
        assert planes[1] == (planes[0] + 1) % 4
    assert all(5 <= begun[plane] <= 15 for plane in range(4))


@long
def test_row_12_a_plane_that_delivers_nothing_is_silent_within_three_round_trips() -> None:
    pair = Pair(planes=4, evs=8, mpr=1024)
    pair.post(800 * 4096)
    pair.advance(us=20)
    pair.cut(plane=1)
    dead = pair.now
    pair.until(lambda: pair.plane(1).silent)
    data = [x.at for x in pair.packets("data", since=dead) if x.p.plane == 1]
    assert data[-1] - data[0] <= 3 * pair.rtt
    assert pair.path_states(1) == "A" * 8
    pair.drive()
    pair.assert_intact()
    after = planes_used(pair, since=dead + 3 * pair.rtt)
    assert after[1] == 0
    assert max(after.values()) - min(after[p] for p in (0, 2, 3)) <= 3
    assert pair.q.n_epochs == 0


def test_row_12_what_all_planes_lose_alike_is_no_silence() -> None:
    """As a full queue at the receiver does where nothing trims, in a burst's last packets."""
    pair = Pair(planes=4, evs=8, mpr=1024)
    for seq in range(160, 200):
        pair.drop(seq=seq)
    pair.post(200 * 4096)
    silent = 0

    def is_over() -> bool:
        nonlocal silent
        silent = max(silent, *(int(pair.plane(k).silent) for k in range(4)))
        return pair.settled()

    pair.until(is_over)
    pair.assert_intact()
    assert (silent, pair.q.n_epochs) == (0, 0)
    assert pair.q.n_inferred >= 36


@long
def test_row_12_a_silent_plane_returns_with_its_first_revived_ev() -> None:
    pair = Pair(planes=4, evs=8, mpr=1024)
    pair.post(900 * 4096)
    pair.advance(us=20)
    cut = pair.cut(plane=1)
    pair.until(lambda: pair.plane(1).silent)
    pair.heal(cut)
    assert pair.q.planes_ok == 0b1101
    pair.until(lambda: pair.q.n_revived == 1)
    assert pair.q.planes_ok == 0b1111
    back = pair.now
    pair.drive()
    pair.assert_intact()
    pair.run_out()
    assert pair.path_states(1) == "G" * 8
    used = planes_used(pair, since=back)
    assert abs(used[1] - used[0]) <= 2


@long
def test_row_12_backups_are_not_tried_one_by_one_on_a_dead_plane() -> None:
    """8 active and 8 backup paths: what is lost is what was sent before the news came back."""
    pair = Pair(planes=4, evs=8, backup=8, mpr=1024)
    pair.post(800 * 4096)
    pair.advance(us=20)
    pair.cut(plane=1)
    dead = pair.now
    pair.drive()
    pair.assert_intact()
    sent = [x.at for x in pair.packets("data", "rtx", since=dead) if x.p.plane == 1]
    assert sent[-1] - dead <= 3 * pair.rtt


def test_row_12_what_answers_serves_before_what_was_demoted_first() -> None:
    """Two of four paths are dead; on the others a full queue drops all data for a while, and no
    probe. Afterwards data flows within a few round trips, not an RTO for each dead path.
    """
    pair = Pair(planes=1, evs=4)
    for k in range(2):
        pair.cut(ev=pair.ev(0, k))
    pair.post(400 * 4096)
    pair.until(lambda: pair.path_states(0) == "AAGG")
    full = [pair.cut(ev=pair.ev(0, k), kind="payload") for k in (2, 3)]
    pair.advance(us=6 * pair.rtt / US)
    for rule in full:
        pair.heal(rule)
    before = pair.now
    delivered = int(pair.q.una)
    pair.until(lambda: pair.q.una > delivered)
    assert pair.now - before <= 6 * pair.rtt < pair.rto
    pair.drive()
    pair.assert_intact()


def test_row_12_what_delivered_lately_serves_before_what_never_did() -> None:
    """Four of eight paths are dead from the start; then the others lose everything, too. They serve
    again first, although they were demoted last.
    """
    pair = Pair(planes=1, evs=8, rto_exponent=11)
    for k in range(4):
        pair.cut(ev=pair.ev(0, k))
    pair.post(800 * 4096)
    pair.until(lambda: pair.path_states(0) == "AAAAGGGG")
    pair.advance(us=6 * pair.rtt / US)
    lost = [pair.cut(ev=pair.ev(0, k)) for k in range(4, 8)]
    pair.until(lambda: pair.path_states(0).count("G") == 1)
    assert pair.path_states(0).startswith("AAAA")
    for rule in lost:
        pair.heal(rule)
    before = pair.now
    pair.drive()
    pair.assert_intact()
    assert pair.now - before < pair.rto


def test_row_12_what_is_sent_again_takes_a_path_that_showed_a_sign_of_life() -> None:
    """Seven of eight paths are dead, and the floor keeps two in service: one of the dead ones. No
    packet is lost on it that was lost before.
    """
    pair = Pair(planes=1, evs=8, rto_exponent=11)
    for k in range(7):
        pair.cut(ev=pair.ev(0, k))
    pair.post(150 * 4096)
    pair.until(lambda: pair.plane(0).n_good == 2)
    since = pair.now
    pair.drive()
    pair.assert_intact()
    again = [x.p.ev for x in pair.packets("rtx", since=since)]
    assert set(again) == {pair.ev(0, 7)}


def test_row_12_at_the_floor_the_oldest_assumed_bad_ev_serves_again() -> None:
    """Seven of eight paths are dead, the eighth delivers within each RTO: never fewer than a
    quarter serve.
    """
    pair = Pair(planes=1, evs=8, rto_exponent=11)
    for k in range(7):
        pair.cut(ev=pair.ev(0, k), src=0)
    pair.post(150 * 4096)
    least = 8
    end = 50_000 * US
    while not pair.settled() and pair.now < end:
        pair.until(lambda now=pair.now: pair.now > now or pair.settled())  # type: ignore[misc]
        least = min(least, int(pair.plane(0).n_good))
    assert pair.settled()
    pair.assert_intact()
    assert least == 2


def test_row_12_if_every_plane_is_silent_the_oldest_ev_of_each_serves() -> None:
    pair = Pair(planes=2, evs=4, rto_exponent=6)
    pair.cut(src=0)
    pair.post(100 * 4096)
    pair.until(lambda: pair.plane(0).n_active == pair.plane(1).n_active == 1)
    assert pair.q.planes_ok == 0b11
    assert [pair.path_states(p).count("G") for p in (0, 1)] == [1, 1]
    pair.heal()
    pair.drive()
    pair.assert_intact()
    pair.run_out()
    assert [int(pair.plane(p).silent) for p in (0, 1)] == [0, 0]


def test_row_12_a_plane_that_served_while_all_were_silent_is_not_forgotten() -> None:
    """One path per plane, as below one switch. Both planes fall silent, and when the wire is back
    one packet brings back one plane: the other must return too.
    """
    pair = Pair(planes=2, evs=1, rto_exponent=6)
    cut = pair.cut(src=0)
    pair.post(4096)
    pair.until(lambda: pair.blame(0, 0).demoted_at > 0 and pair.blame(1, 0).demoted_at > 0)
    pair.heal(cut)
    pair.drive()
    pair.post(4096)
    pair.drive()
    pair.advance(us=5000)
    assert pair.plane(0).silent == pair.plane(1).silent == 0
    assert pair.q.planes_ok == 0b11


@long
def test_row_12_a_plane_silent_before_its_port_went_down_returns_with_the_port() -> None:
    pair = Pair(planes=2, evs=4)
    pair.post(200 * 4096)
    pair.advance(us=5)
    cut = pair.cut(plane=1)
    pair.until(lambda: pair.plane(1).silent)
    pair.port(0, 1, up=False)
    pair.advance(us=3000)
    pair.heal(cut)
    pair.port(0, 1, up=True)
    pair.advance(us=1000)
    assert pair.plane(1).silent == 0
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.packets("data")[-1].p.plane == 1 or pair.packets("data")[-2].p.plane == 1


def test_row_12_the_floor_holds_for_always_skip_too() -> None:
    pair = Pair(planes=1, evs=8)
    pair.post(8 * 4096)
    pair.drive()
    for k in range(8):
        entropy = pair.ev(0, k)
        pair.sack(7, m=pk.M_ALWAYS_SKIP, entropy=entropy, rcvd_units=int(pair.q.rcvd_high))
    assert pair.plane(0).n_good == 2


# --- row 13


@long
def test_row_13_evs_of_a_plane_are_used_equally_to_within_one() -> None:
    pair = Pair(planes=2, evs=16, checked=False)
    pair.post(999 * 4096)
    pair.drive()
    for p in (0, 1):
        used = [int(pair.path(p, k).used) for k in range(16)]
        assert max(used) - min(used) <= 1


@long
def test_row_13_planes_are_used_equally() -> None:
    pair = Pair(planes=4, evs=8, checked=False, mpr=1024)
    pair.post(1000 * 4096)
    pair.drive()
    used = planes_used(pair)
    assert set(used.values()) == {250}


@long
def test_row_13_the_rotation_is_reshuffled_each_64_rounds() -> None:
    pair = Pair(planes=1, evs=8, checked=False)
    pair.post(2 * 64 * 8 * 4096)
    pair.drive()
    evs = [int(x.p.ev) for x in pair.packets("data")]
    rounds = [tuple(evs[i : i + 8]) for i in range(0, len(evs), 8)]
    assert len(set(rounds[:64])) == len(set(rounds[64:])) == 1
    assert rounds[0] != rounds[64]
    assert sorted(rounds[64]) == sorted(rounds[0])


def test_row_13_a_plane_passed_over_goes_first_when_free_and_owes_one_round_at_most() -> None:
    pair = Pair(planes=4, evs=4)
    pair.post(60 * 4096, pump=False)
    for _ in range(30):
        assert pair.pull(0, 0b1011)
    for _ in range(16):
        assert pair.pull(0, 0b1111)
    planes = [int(x.p.plane) for x in pair.packets("data")]
    assert Counter(planes[:30]) == {0: 10, 1: 10, 3: 10}
    assert planes[30] == 2
    after = Counter(planes[30:])
    assert 4 <= after[2] <= 5
    assert sorted(after.values()) in ([4, 4, 4, 4], [3, 4, 4, 5])


def test_row_13_a_busy_plane_is_passed_over_not_waited_for() -> None:
    pair = Pair(planes=2)
    pair.post(4 * 4096, pump=False)
    pair.port_free_at[0][0] = 100 * US
    pair.drive()
    assert {int(x.p.plane) for x in pair.packets("data")} == {1}


def test_row_13_a_retransmission_does_not_take_the_ev_that_lost_it() -> None:
    pair = Pair(planes=1, evs=4)
    for seq in (4, 9, 14, 19):
        pair.trim(seq=seq, last_hop=True)
    pair.post(100 * 4096)
    pair.drive()
    first = {pair.seq(x.p): int(x.p.ev) for x in pair.packets("data")}
    again = {pair.seq(x.p): int(x.p.ev) for x in pair.packets("rtx")}
    assert sorted(again) == [4, 9, 14, 19]
    assert all(again[seq] != first[seq] for seq in again)


@pytest.mark.parametrize("k", range(4))
def test_row_13_two_planes_share_equally_after_an_ev_is_lost(k: int) -> None:
    pair = Pair(planes=2, evs=4)
    pair.cut(ev=pair.ev(0, k))
    pair.post(300 * 4096)
    pair.drive()
    pair.assert_intact()
    used = planes_used(pair)
    assert abs(used[0] - used[1]) <= 2


# --- row 15


def test_row_15_classes() -> None:
    pair = Pair()
    pair.drop(seq=19)
    pair.trim(seq=3)
    pair.post(20 * 4096)
    pair.drive()
    pair.port(0, 1, up=False)
    pair.run_out()
    classes = {kind: {int(x.p.klass) for x in pair.packets(kind)} for kind in pair.sent}
    assert classes.pop("data") == classes.pop("probe") == {pk.CLASS_DATA}
    assert classes.pop("rtx") == {pk.CLASS_RETRANSMIT}
    assert set(classes) >= {"sack", "nack", "ack", "response"}
    assert all(c == {pk.CLASS_CONTROL} for c in classes.values())


def test_without_trimming_nothing_is_trimmable() -> None:
    """MRC 1.9: no trim NACKs from the responder, so packets are marked NO_TRIM."""
    pair = Pair(trimming=0)
    pair.drop(seq=3)
    pair.post(20 * 4096)
    pair.drive()
    assert all(x.p.flag_bits & pk.NO_TRIM for x in pair.packets("data", "rtx"))
