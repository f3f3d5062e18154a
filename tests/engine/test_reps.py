"""Recycled entropies (REPS): what comes back unmarked is used again, and losses freeze."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.engine import state as es
from tests.engine.pair import US, Pair

BDP_PACKETS = 23  # 100 Gb/s x 8 us, in packets of 4184 B


def recycling(**how: Any) -> Pair:
    """One plane of 16 EVs, each packet answered by a SACK of its own."""
    made: dict[str, Any] = {"planes": 1, "evs": 16, "paths": "reps", "sack_bytes": 1}
    return Pair(**(made | how))


def taken(pair: Pair, n: int) -> list[int]:
    """The EVs, counted from 0, that the next `n` packets take; all have been answered then."""
    before = len(pair.packets("data"))
    pair.post(n * 4096)
    pair.drive()
    return [int(x.p.ev) - 1 for x in pair.packets("data")[before:]]


def held(pair: Pair, plane: int = 0) -> list[int]:
    """EVs in the ring that no packet has taken again, oldest first."""
    r = pair.st.reps[int(pair.q.plane0) + plane]
    places = [(int(r.head) - int(r.fresh) + i) % es.REPS_HELD for i in range(int(r.fresh))]
    return [int(r.held[place]) - plane * int(pair.q.order_len) for place in places]


def frozen(pair: Pair) -> Pair:
    """Six EVs are held when a seventh packet is lost, silently."""
    pair.drop(seq=6)
    pair.post(7 * 4096)
    pair.until(lambda: pair.st.reps[0].frozen)
    pair.drive()
    return pair


def test_evs_that_come_back_unmarked_are_used_again_oldest_first_and_once() -> None:
    pair = recycling()
    first = taken(pair, 5)
    assert held(pair) == first
    assert taken(pair, 5) == first
    assert held(pair) == first, "and came back again"
    pair.mark()
    assert taken(pair, 3) == first[:3]
    assert held(pair) == first[3:]


def test_a_marked_ev_is_not_kept_and_its_place_is_explored() -> None:
    pair = recycling()
    pair.mark(next=1, seq=1)
    first = taken(pair, 4)
    assert held(pair) == [first[0], first[2], first[3]]
    again = taken(pair, 4)
    assert again[:3] == [first[0], first[2], first[3]]
    assert pair.q.n_skips == 0


def test_the_ring_holds_the_last_eight() -> None:
    pair = recycling()
    first = taken(pair, 11)
    assert es.REPS_HELD == 8
    assert held(pair) == first[-8:]
    assert taken(pair, 8) == first[-8:]


def test_a_sack_of_several_packets_recycles_one_ev() -> None:
    pair = recycling(sack_bytes=16_384)
    assert len(taken(pair, 16)) == 16
    assert len(held(pair)) == 4


def test_a_trim_is_no_failure_and_its_ev_is_not_kept() -> None:
    pair = recycling()
    pair.trim(seq=2)
    first = taken(pair, 4)
    assert int(pair.packets("rtx")[0].p.ev) - 1 == first[0], "the retransmission takes the oldest"
    assert held(pair) == [first[1], first[3], first[0]]
    assert not pair.st.reps[0].frozen


def test_a_loss_freezes_and_nothing_is_explored() -> None:
    pair = frozen(recycling())
    ring = [int(ev) for ev in pair.st.reps[0].held[: pair.st.reps[0].known]]
    pair.cut(kind="sack")
    pair.post(40 * 4096)
    pair.advance(us=7)
    sent = [int(x.p.ev) - 1 for x in pair.packets("data")[7:]]
    fresh = len(set(ring))
    assert len(sent) > 2 * len(ring)
    assert set(sent) <= set(ring), "none that was not known before"
    rest = sent[-2 * len(ring) :]
    assert rest[: len(ring)] == rest[len(ring) :], "round and round"
    assert fresh > 1
    assert pair.st.reps[0].fresh == 0


def test_freezing_ends_with_an_unmarked_answer_after_ten_milliseconds() -> None:
    pair = frozen(recycling())
    thaw_at = int(pair.st.reps[0].thaw_at)
    loss_seen_at = thaw_at - 10_000 * US
    assert 0 < loss_seen_at <= pair.now
    pair.advance(ps=thaw_at - pair.now - 20 * US)
    taken(pair, 1)
    assert pair.st.reps[0].frozen, "before its time"
    pair.advance(ps=thaw_at - pair.now + 1)
    assert pair.st.reps[0].frozen, "time alone does not"
    pair.mark(next=1)
    taken(pair, 1)
    assert pair.st.reps[0].frozen, "nor does a marked answer"
    taken(pair, 1)
    assert not pair.st.reps[0].frozen
    assert pair.st.reps[0].explore == BDP_PACKETS


def test_afterwards_one_packet_in_eight_explores_for_a_bdp() -> None:
    pair = frozen(recycling(evs=256))
    pair.advance(ps=int(pair.st.reps[0].thaw_at) - pair.now + 1)
    taken(pair, 1)
    new = []
    for number in range(1, BDP_PACKETS + 9):
        known = held(pair)
        if taken(pair, 1) != known[:1]:
            new.append(number)
    assert new == [7, 15, 23]
    assert pair.st.reps[0].explore == 0


def test_a_loss_while_it_explores_does_not_freeze_it_again() -> None:
    pair = frozen(recycling())
    pair.advance(ps=int(pair.st.reps[0].thaw_at) - pair.now + 1)
    taken(pair, 1)
    pair.drop(seq=int(pair.q.nxt))
    taken(pair, 4)
    assert pair.q.n_inferred + pair.q.n_timeouts == 2
    assert not pair.st.reps[0].frozen


def test_no_path_is_ever_given_up_or_probed() -> None:
    pair = recycling(evs=4)
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    taken(pair, 200)
    assert pair.path_states(0) == "GGGG"
    assert (int(pair.q.n_bad_total), int(pair.q.n_bad)) == (0, 0)
    assert [x for x in pair.packets("probe") if int(x.p.ev) == pair.ev(0, 2)] == []


def test_each_plane_has_a_ring_of_its_own() -> None:
    pair = recycling(planes=4, evs=8)
    taken(pair, 40)
    evs = [int(x.p.ev) for x in pair.packets("data")]
    for plane in range(4):
        mine = [(ev & 0xFFFF) - 1 for ev in evs if ev >> 16 == plane]
        assert len(mine) == 10, "planes take turns"
        assert held(pair, plane)[-1] == mine[-1]
        assert set(held(pair, plane)) <= set(mine)


def test_backups_are_explored_like_the_others() -> None:
    pair = recycling(evs=2, backup=6)
    pair.mark()
    assert set(taken(pair, 200)) == set(range(8))


def test_what_is_denied_is_neither_explored_nor_used_again() -> None:
    pair = recycling(evs=4)
    first = taken(pair, 4)
    for k in {*first, 0} - {first[1]}:
        pair.deny(0, k)
    after = taken(pair, 30)
    allowed = {0, 1, 2, 3} - {int(k) for k in range(4) if pair.path_state(0, k) == "DENIED"}
    assert allowed
    assert set(after) <= allowed


def test_a_retransmission_that_explores_avoids_the_path_of_the_loss() -> None:
    pair = recycling(evs=2)
    pair.mark()
    for _ in range(20):
        before = int(pair.q.n_rtx)
        lost = int(pair.q.nxt)
        pair.trim(seq=lost)
        (ev,) = taken(pair, 1)
        assert pair.q.n_rtx == before + 1
        assert int(pair.packets("rtx")[-1].p.ev) - 1 == 1 - ev


def test_a_state_without_reps_keeps_no_rings() -> None:
    assert len(Pair(planes=4).st.reps) == 1
    assert len(recycling(planes=4).st.reps) == 8
    assert es.REPS.itemsize == 40


# --- marks that make no EV SKIP


def test_a_mark_that_is_ignored_moves_the_window_all_the_same() -> None:
    """Marked and late, beyond the target: the window shrinks at the same instant, skips or not."""
    shrunk = []
    for ignore in (0, 1):
        pair = Pair(planes=1, evs=1, ignore_marks=ignore, sack_bytes=1)
        pair.mark(kind="data")
        pair.delay(us=12, next=1000, kind="data")
        pair.delay(us=12, next=1000, kind="probe")
        pair.post(900 * 4096)
        while pair.q.cwnd == pair.q.max_wnd:
            pair.advance(ps=max(pair.next_at() - pair.now, 0))
        assert pair.q.n_inferred == 0
        shrunk.append((pair.now, float(pair.q.cwnd)))
        assert (pair.q.n_skips > 0) == (ignore == 0)
    assert shrunk[0] == shrunk[1]


def test_a_trim_makes_an_ev_skip_also_where_marks_are_ignored() -> None:
    pair = Pair(planes=1, evs=4, ignore_marks=1)
    pair.trim(ev=pair.ev(0, 1))
    pair.post(4 * 4096)
    pair.until(lambda: pair.sent["rtx"] == 1)
    assert pair.q.n_skips == 1


@pytest.mark.parametrize(("ignore", "state"), [(0, "SKIP"), (1, "GOOD")])
def test_a_probes_marked_answer_revives_as_good_where_marks_are_ignored(
    ignore: int, state: str
) -> None:
    pair = Pair(planes=1, evs=4, rate_gbps=10, ignore_marks=ignore)
    cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.post(900 * 4096)
    pair.until(lambda: pair.q.n_inferred > 0)
    pair.heal(cut)
    pair.mark(kind="probe")
    pair.until(lambda: pair.q.n_revived > 0)
    assert pair.path_state(0, 2) == state
