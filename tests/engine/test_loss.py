"""How losses are found: inference, ask probes, tail probes, false alarms (rows 7, 8)."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import requester
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, GOOD
from tests.engine.pair import OVERHEAD, US, Pair
from tests.exposed import exposed

NOMINAL = 4096 + OVERHEAD
sample = exposed(requester._sample)


def silent_pair(n: int = 40, **how: Any) -> Pair:
    """`n` packets are out, and no answer of the receiver ever comes: the story plays it."""
    pair = Pair(**how)
    pair.cut(src=1)
    pair.post(n * 4096)
    pair.advance(us=10)
    assert pair.q.nxt == n
    return pair


def test_row_07_a_lost_packet_is_found_in_about_two_round_trips() -> None:
    pair = Pair()
    pair.drop(seq=10)
    pair.post(200 * 4096)
    pair.drive()
    pair.assert_intact()
    (again,) = pair.packets("rtx")
    first = pair.packets("data")[10]
    assert pair.rtt < again.at - first.at <= 2.5 * pair.rtt
    assert pair.q.n_inferred == 1
    assert pair.q.n_false == pair.q.n_timeouts == 0


@pytest.mark.parametrize(("early_ps", "lost"), [(0, True), (1, False)])
def test_row_07_just_the_reorder_window_later_and_just_not(early_ps: int, lost: bool) -> None:
    """Sequence 1 is missing; the evidence, sequence 30, was sent one window later or 1 ps less."""
    pair = silent_pair()
    pair.slot(30).sent_at = int(pair.slot(1).sent_at) + int(pair.q.reorder_window) - early_ps
    pair.sack(0, got={30}, trigger=30)
    assert (pair.slot(1).state == es.LOST or bool(pair.slot(1).past & es.RESENT)) == lost
    assert (pair.q.n_inferred > 0) == lost


def test_row_07_a_missing_packet_older_than_its_evidence_needs_a_snapshot_that_covers_it() -> None:
    """Evidence beyond the snapshot that shows it: probe half a round trip later, judge nothing."""
    pair = silent_pair(60)
    pair.q.evidence_at = pair.now
    pair.sack(-1, got=set(), trigger=-1, sack_offset=65, rcvd_units=0)
    assert pair.q.n_inferred == 0
    assert pair.q.ask_at == pair.now + pair.rtt // 2
    assert pair.sent["probe"] == 0
    pair.advance(us=pair.rtt / 2 / US)
    assert pair.sent["probe"] == 1


def test_row_07_an_ask_probe_resolves_the_doubt() -> None:
    pair = Pair()
    pair.drop(seq=3)
    pair.cut(kind="sack")
    pair.post(300 * 4096)
    pair.advance(us=10)
    pair.heal()
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 1
    assert pair.q.n_false == 0


def test_row_07_a_probe_is_data_class_and_never_trimmed() -> None:
    pair = Pair()
    pair.cut(kind="data")
    pair.post(4096)
    pair.advance(us=40)
    probe = pair.packets("probe")[0].p
    assert probe.klass == pk.CLASS_DATA
    assert probe.flag_bits == pk.NO_TRIM


def test_row_07_a_probe_counts_as_an_original_for_evidence() -> None:
    """The only packet is lost: the tail probe's answer is the evidence against it."""
    pair = Pair()
    pair.drop(seq=0)
    pair.post(4096)
    pair.drive()
    pair.assert_intact()
    probe = pair.packets("probe")[0]
    (again,) = pair.packets("rtx")
    assert 0 < again.at - probe.at <= pair.rtt
    assert pair.q.n_inferred == 1
    assert pair.q.n_epochs == 0


def test_row_07_a_retransmission_is_no_evidence_against_an_original() -> None:
    """An evidence PSN sent more than once counts with its first transmission."""
    pair = silent_pair()
    first_at = int(pair.slot(0).sent_at)
    again_at = pair.now + 10 * pair.rtt
    pair.slot(0).past = es.RESENT
    pair.slot(0).first_ago = ((again_at - first_at) >> es.AGO_SHIFT) + 1
    pair.slot(0).sent_at = again_at
    pair.sack(0, trigger=0)
    assert first_at - (1 << es.AGO_SHIFT) <= pair.q.evidence_at <= first_at
    assert pair.q.n_inferred == 0


def test_row_07_a_retransmission_gives_a_sample_if_the_echo_names_it() -> None:
    """Its own echo is a round trip; that of the first copy proves a false alarm."""
    pair = silent_pair()
    pair.q.evidence_at = pair.now
    pair.sack(0, got=set(range(2, 40)), trigger=39)
    assert pair.q.n_inferred == 1
    pair.until(lambda: bool(pair.slot(1).past & es.RESENT))
    first, again = (int(x.p.timestamp) for x in pair.packets("data", "rtx") if pair.seq(x.p) == 1)
    pair.advance(us=5)
    rtt = pair.now - int(pair.slot(1).sent_at)
    for timestamp, false, expected in ((again, 0, rtt), (first, 1, -1)):
        got = sample(pair.st, pair.q, 1, timestamp, 0, pair.now)
        assert (got, pair.q.n_false) == (expected, false)


def test_row_07_a_lost_retransmission_is_inferred_by_a_later_original() -> None:
    pair = Pair()
    pair.drop(seq=10)
    pair.drop(seq=10, kind="rtx")
    pair.post(600 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 2
    assert pair.q.n_inferred == 2
    assert pair.q.n_timeouts == 0


@pytest.mark.parametrize("late_us", [2, 7])
def test_row_07_reordering_within_the_window_costs_nothing(late_us: int) -> None:
    pair = Pair()
    for seq in range(10, 100, 7):
        pair.delay(us=late_us, seq=seq)
    pair.post(200 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 0


def test_row_07_a_false_alarm_is_undone() -> None:
    """A packet that comes four round trips late: its EV is GOOD again, its window cut returned, the
    reorder window a quarter round trip wider.
    """
    pair = Pair()
    pair.delay(us=32, seq=10)
    pair.post(600 * 4096)
    ev = None
    while pair.q.n_inferred == 0:
        pair.advance(us=0.2)
        ev = pair.slot(10).bad_ev if pair.slot(10).bad_ev >= 0 else ev
    assert ev is not None
    path = pair.st.ev[int(ev)]
    assert path.state == ASSUMED_BAD
    cwnd = float(pair.q.cwnd)
    path.probe_at = es.NEVER  # no revival by probes in this story
    while pair.q.n_false == 0:
        pair.advance(us=0.2)
        cwnd = float(pair.q.cwnd) if pair.q.n_false == 0 else cwnd
    assert path.state == GOOD
    assert pair.q.cwnd >= min(cwnd + NOMINAL, float(pair.q.max_wnd)) - 1
    assert pair.q.reorder_window == pair.q.base_rtt + pair.q.base_rtt // 4
    pair.drive()
    pair.assert_intact()
    assert pair.q.n_false == 1
    assert pair.sent["rtx"] == 1


def test_row_07_an_acknowledgement_before_its_sack_proves_no_false_alarm() -> None:
    """The retransmission completes its message, and the transport ACK overtakes the SACK. That SACK
    reports the retransmission itself, not a second copy: the lost packet's EV stays ASSUMED_BAD.
    """
    pair = Pair()
    pair.drop(seq=10)
    pair.post(40 * 4096)
    pair.until(lambda: pair.sent["rtx"] == 1)
    path = pair.st.ev[int(pair.slot(10).bad_ev)]
    path.probe_at = es.NEVER  # no revival by probes in this story
    pair.delay(us=3, next=100, kind="sack")
    pair.until(pair.done)
    assert pair.q.rcvd_high < 40 * NOMINAL // 256  # its SACK is still to come
    pair.advance(us=10)
    assert pair.q.rcvd_high >= 40 * NOMINAL // 256
    pair.assert_intact()
    assert pair.q.n_inferred == 1
    assert pair.q.n_false == 0
    assert path.state == ASSUMED_BAD


def test_row_07_what_a_false_alarm_added_decays_over_seconds() -> None:
    pair = Pair()
    pair.q.reorder_window = 2 * pair.rtt
    pair.q.window_grown_at = 0
    pair.now = 1_000_000 * US + 1
    pair.post(40 * 4096)
    pair.drive()
    assert pair.q.reorder_window == 1.5 * pair.rtt


def test_row_07_the_reorder_window_has_a_limit() -> None:
    pair = silent_pair()
    pair.q.sent_bytes = 1 << 20
    for _ in range(40):
        s = pair.slot(5)
        s.past, s.state, s.known_units = es.RESENT | es.INFERRED, es.SENT, 0
        pair.q.una, pair.q.nxt = 0, 40
        s.state = es.ACKED
        pair.checked = False
        pair.sack(-1, trigger=5, rcvd_units=int(pair.q.rcvd_high) + 17)
    assert pair.q.n_false == 40
    assert pair.q.reorder_window == 8 * pair.rtt


def test_row_07_window_is_cut_for_an_inferred_loss_by_one_packet() -> None:
    pair = silent_pair()
    pair.q.cwnd = 20 * NOMINAL
    pair.q.last_adjust = pair.now  # the window grows for nothing else in this story
    pair.slot(30).sent_at = int(pair.slot(1).sent_at) + int(pair.q.reorder_window)
    before = float(pair.q.cwnd)
    pair.sack(0, got=set(range(2, 31)), trigger=30, rcvd_units=0)
    assert pair.q.n_inferred == 1
    assert pair.q.cwnd == before - NOMINAL


def test_row_08_silence_makes_a_probe_after_two_round_trips_and_targets() -> None:
    pair = Pair()
    pair.cut()
    pair.post(4096)
    gap = 2 * (pair.rtt + int(pair.q.target))
    pair.advance(ps=gap - 1)
    assert pair.sent["probe"] == 0
    pair.advance(ps=1)
    assert pair.sent["probe"] == 1


def test_row_08_the_probe_is_repeated_on_another_plane_each_time() -> None:
    pair = Pair(planes=4, rto_exponent=12)
    pair.cut()
    pair.post(4096)
    pair.advance(us=29 * 8)
    probes = pair.packets("probe")
    gap = 2 * (pair.rtt + int(pair.q.target))
    assert [x.at for x in probes] == [gap * (i + 1) for i in range(len(probes))]
    assert len(probes) == 8
    planes = [int(x.p.plane) for x in probes]
    assert planes[:4] == planes[4:]
    assert sorted(planes[:4]) == [0, 1, 2, 3]


def test_row_08_a_probe_takes_a_usable_ev() -> None:
    pair = Pair(planes=2, evs=4)
    for k in range(3):
        pair.deny(0, k)
        pair.deny(1, k + 1)
    pair.cut()
    pair.post(4096)
    pair.advance(us=100)
    used = {int(x.p.ev) for x in pair.packets("probe")}
    assert used == {pair.ev(0, 3), pair.ev(1, 0)}


def test_row_08_anything_heard_starts_the_silence_anew() -> None:
    pair = silent_pair()
    heard = pair.now
    pair.sack(0)
    gap = 2 * (int(pair.q.base_rtt) + int(pair.q.target))
    assert pair.q.tail_at == heard + gap


def test_row_08_lost_probes_are_survived() -> None:
    pair = Pair()
    pair.drop(seq=19)
    pair.drop(next=3, kind="probe", src=0)
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.dropped["probe"] == 3
    assert len([x for x in pair.packets("probe") if x.at < pair.packets("rtx")[0].at]) == 4
    assert pair.sent["rtx"] == 1
    assert pair.q.n_epochs == 0


def test_row_08_a_lost_tail_costs_one_probe_per_hole_not_an_rto() -> None:
    pair = Pair()
    for seq in range(15, 20):
        pair.drop(seq=seq)
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 5
    assert pair.q.n_epochs == 0
    assert pair.now < 8 * pair.rtt


def test_a_healthy_run_retransmits_nothing() -> None:
    pair = Pair()
    pair.post(1000 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == pair.sent["probe"] == 0
    assert pair.q.n_false == 0


def test_a_lost_trim_notice_is_a_loss_like_another() -> None:
    pair = Pair()
    pair.trim(seq=5)
    pair.drop(kind="nack")
    pair.post(100 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 1
    assert pair.q.n_inferred == 1


def test_duplicates_are_placed_once() -> None:
    pair = Pair()
    pair.duplicate(next=50, us=3)
    pair.post(50 * 4096)
    pair.drive()
    pair.run_out()
    pair.assert_intact()
    assert pair.r.n_dup == 50
    assert pair.sent["rtx"] == 0


def test_a_second_copy_says_nothing_of_the_round_trip() -> None:
    """A copy of a packet comes a round trip late, sent by whomever: its SACK is no sample."""
    pair = silent_pair()
    pair.q.sent_bytes = 1 << 20
    pair.sack(0, trigger=0)
    before = float(pair.q.avg_delay)
    pair.advance(ps=pair.rtt)
    pair.checked = False
    pair.sack(0, trigger=0, rcvd_units=int(pair.q.rcvd_high) + 17)
    assert pair.q.avg_delay == before
    pair.sack(0, trigger=1, rcvd_units=int(pair.q.rcvd_high) + 17)
    assert pair.q.avg_delay > before
