"""How losses are found: inference, what is overdue, probes, false alarms (rows 7, 8)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from openmrc.engine import endpoint, fate, loss, requester
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, GOOD
from tests.engine.cases import long
from tests.engine.pair import OVERHEAD, US, Pair
from tests.exposed import exposed

NOMINAL = 4096 + OVERHEAD
note_rtt, note_passed = map(exposed, (loss.note_rtt, loss.note_passed))
patience, sample = map(exposed, (loss.patience, requester._sample))
PATIENCE_PS = 10 * US  # a round trip of 8 us, and a quarter more


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


@pytest.mark.parametrize(("early_ps", "lost"), [(0, 1), (1, 0)])
def test_row_07_overdue_by_a_quarter_of_a_round_trip_and_just_not(early_ps: int, lost: int) -> None:
    """Sequence 1 is missing, 2 has come; its answer took longer than any before."""
    pair = silent_pair()
    pair.sack(0, got={2}, trigger=2)
    longest = pair.now - int(pair.slot(2).sent_at)
    assert pair.rtt < longest
    due_at = int(pair.slot(1 + 3).sent_at) + longest + longest // 4  # a SACK stands for four
    pair.advance(ps=due_at - early_ps - pair.now)
    assert pair.q.n_inferred == lost
    assert pair.sent["probe"] == 0


def test_row_07_a_sample_is_recent_for_eight_to_sixteen_round_trips() -> None:
    pair = Pair()
    note_rtt(pair.q, 0, 2 * pair.rtt)
    limits = []
    for now in range(0, 16 * pair.rtt, pair.rtt):
        limits.append(patience(pair.q, 0, now))
    assert limits == [2 * PATIENCE_PS] * 8 + [PATIENCE_PS] * 8


@pytest.mark.parametrize("what", ["round trips", "answers of probes"])
def test_row_07_four_shorter_round_trips_halve_the_memory(what: str) -> None:
    pair = Pair()
    note_rtt(pair.q, 0, 2 * pair.rtt)
    limits = []
    for now in range(0, 12 * pair.rtt, pair.rtt):
        limits.append(patience(pair.q, 0, now))
        note_rtt(pair.q, 0, pair.rtt) if what == "round trips" else note_passed(pair.q)
    assert limits == [2 * PATIENCE_PS] * 4 + [PATIENCE_PS] * 8


def test_row_07_what_waits_is_judged_when_long_round_trips_are_forgotten() -> None:
    """Its own time, of an old round trip of 16, has not passed then."""
    pair = silent_pair()
    note_rtt(pair.q, 0, 16 * pair.rtt)
    pair.sack(0, got={2}, trigger=2)
    pair.advance(ps=7 * pair.rtt)
    assert pair.q.n_inferred == 0
    pair.advance(ps=10 * pair.rtt)
    assert pair.q.n_inferred == 1
    assert pair.q.n_timeouts == 0


def test_row_07_what_is_sent_again_is_not_waited_for_as_long_as_data_that_it_overtakes() -> None:
    pair = Pair()
    note_rtt(pair.q, 0, 4 * pair.rtt)
    assert (patience(pair.q, 0, 0), patience(pair.q, 1, 0)) == (4 * PATIENCE_PS, PATIENCE_PS)


@pytest.mark.parametrize("last_hop", [True, False])
def test_row_07_a_trim_at_the_last_hop_says_that_data_waits(last_hop: bool) -> None:
    pair = Pair(planes=1, evs=4)
    pair.trim(next=1, seq=0, last_hop=last_hop)
    pair.post(4 * 4096)
    pair.until(lambda: pair.sent["rtx"] == 1)
    longest = int(max(pair.q.rtt_largest[0], pair.q.rtt_before[0]))
    assert longest == (pair.rtt + 4 * int(pair.q.target) if last_hop else 0)


def test_row_07_a_retransmission_gives_a_sample_if_the_echo_names_it() -> None:
    """Its own echo is a round trip; that of the first copy proves a false alarm, and is the recent
    round trip instead.
    """
    pair = silent_pair()
    pair.sack(0, got={2}, trigger=2)
    pair.until(lambda: bool(pair.slot(1).before))
    first, again = (int(x.p.timestamp) for x in pair.packets("data", "rtx") if pair.seq(x.p) == 1)
    sent_at = int(pair.slot(1).sent_at)
    pair.advance(us=5)
    for timestamp, false, rtt in ((again, 0, pair.now - sent_at), (first, 1, -1)):
        got = sample(pair.st, pair.q, 1, timestamp, 0, pair.now)
        assert (got, pair.q.n_false) == (rtt, false)
    age = pair.now - int(pair.packets("data")[1].at)
    assert abs(pair.q.rtt_largest[0] - age) <= pk.TIMESTAMP_UNIT_PS < age - 3 * 5 * US


@pytest.mark.parametrize(("early_ps", "sent"), [(0, 0), (-1, 3)])
def test_row_15_what_is_lost_goes_again_past_originals_that_wait_for_its_class(
    early_ps: int, sent: int
) -> None:
    """The window of three packets is full of 34 originals. Once something is heard later than two
    round trips after the last of them, it counts what was sent again only.
    """
    pair = silent_pair()
    pair.q.cwnd = pair.q.pkt
    for seq in range(6):
        pair.nack(seq, pk.NACK_TRIMMED_LASTHOP)
    assert (pair.q.lost, pair.q.inflight) == (6, 34 * NOMINAL)
    pair.q.cwnd = 3 * pair.q.pkt
    pair.q.last_heard = int(pair.q.new_at) + 2 * int(pair.q.base_rtt) - early_ps
    n = 0
    while pair.pull(0, 0b11):
        n += 1
    assert (n, pair.q.inflight_again) == (sent, sent * NOMINAL)
    assert pair.q.inflight == (34 + sent) * NOMINAL


def test_row_07_a_lost_retransmission_is_found_by_another_that_came() -> None:
    """The rest of the message has come: nothing else is left to overtake what was sent again."""
    pair = Pair()
    for seq in (10, 12):
        pair.drop(seq=seq)
    pair.drop(seq=10, kind="rtx")
    pair.post(40 * 4096)
    pair.drive()
    pair.assert_intact()
    first, other, again = pair.packets("rtx")
    assert (pair.seq(first.p), pair.seq(other.p), pair.seq(again.p)) == (10, 12, 10)
    assert pair.q.query_id == -1  # no probe asked
    assert again.at - first.at < 1.5 * pair.rtt
    assert pair.q.n_epochs == 0


def test_row_07_a_retransmission_takes_the_path_that_delivered_last() -> None:
    """Every path but one of each plane is dead: what was lost once is not lost a second time. The
    first copy leaves before anything is heard, so on any path.
    """
    pair = Pair(planes=2, evs=4)
    for plane in (0, 1):
        for k in (0, 1, 2):
            pair.cut(ev=pair.ev(plane, k), kind="data")
    pair.post(16 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == pair.dropped["data"] == 12
    _, *others = pair.packets("rtx")
    assert {int(x.p.ev) for x in others} == {pair.ev(0, 3), pair.ev(1, 3)}


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
    """The only packet is lost, and so is its copy: a probe's answer is evidence against both."""
    pair = Pair()
    pair.drop(seq=0)
    pair.drop(kind="rtx")
    pair.post(4096)
    pair.drive()
    pair.assert_intact()
    (first, *others) = pair.packets("probe")
    copy, again = pair.packets("rtx")
    assert copy.at == first.at
    assert 0 < again.at - others[0].at <= pair.rtt
    assert pair.q.n_inferred == 2
    assert pair.q.n_epochs == 0


def test_row_07_a_retransmission_is_no_evidence_against_an_original() -> None:
    """It overtakes data in every queue: the port that holds one original holds all of them."""
    pair = silent_pair()
    before = int(pair.q.evidence_at)
    pair.slot(5).before = fate.TRIMMED
    pair.q.inflight_again = NOMINAL
    pair.slot(5).sent_at = pair.now + 10 * pair.rtt
    pair.sack(-1, got={5}, trigger=5)
    assert pair.q.evidence_at == before
    assert pair.q.n_inferred == 0


@long
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


@pytest.mark.parametrize("late_us", [0.5, 1])
def test_row_07_reordering_within_a_quarter_of_a_round_trip_costs_nothing(late_us: float) -> None:
    pair = Pair()
    for seq in range(10, 100, 7):
        pair.delay(us=late_us, seq=seq)
    pair.post(200 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == pair.q.n_false == 0


def test_row_07_reordering_beyond_that_costs_a_copy_of_each_at_most() -> None:
    pair = Pair()
    for seq in range(10, 100, 7):
        pair.delay(us=7, seq=seq)
    pair.post(200 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == pair.q.n_false == pair.q.n_inferred <= 13
    assert pair.q.n_bad_total == pair.q.n_revived


def test_row_07_a_false_alarm_is_undone() -> None:
    """A packet that comes four round trips late: its EV is GOOD again, its window cut returned."""
    pair = Pair()
    pair.delay(us=32, seq=10)
    pair.post(600 * 4096)
    ev = None
    while pair.q.n_inferred == 0:
        pair.advance(us=0.2)
        ev = pair.slot(10).ev if pair.slot(10).before == fate.NONE else ev
    assert ev is not None
    path = pair.st.ev[int(ev)]
    assert path.state == ASSUMED_BAD
    cwnd = float(pair.q.cwnd)
    pair.blame_at(int(ev)).probe_at = es.NEVER  # no revival by probes in this story
    while pair.q.n_false == 0:
        pair.advance(us=0.2)
        cwnd = float(pair.q.cwnd) if pair.q.n_false == 0 else cwnd
    assert path.state == GOOD
    assert pair.q.cwnd >= min(cwnd + NOMINAL, float(pair.q.max_wnd)) - 1
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
    bad_ev = int(pair.slot(10).before_ev)
    path = pair.st.ev[bad_ev]
    pair.blame_at(bad_ev).probe_at = es.NEVER  # no revival by probes in this story
    pair.delay(us=3, next=100, kind="sack")
    pair.until(pair.done)
    assert pair.q.rcvd_high < 40 * NOMINAL // 256  # its SACK is still to come
    pair.advance(us=10)
    assert pair.q.rcvd_high >= 40 * NOMINAL // 256
    pair.assert_intact()
    assert pair.q.n_inferred == 1
    assert pair.q.n_false == 0
    assert path.state == ASSUMED_BAD


def test_row_07_a_quick_answer_to_a_retransmission_is_no_false_alarm() -> None:
    """Round trips of an eighth of T, as over token buckets that hold a burst: what is lost on a
    dead path is sent again and answered within that, and the path stays ASSUMED_BAD.
    """
    pair = Pair(planes=2, evs=2, rtt_us=40)
    pair.one_way_ps = 2 * US
    pair.post(40 * 4096)
    pair.drive()
    assert int(pair.q.base_rtt) == pair.rtt // 2
    assert int(pair.q.rtt_least) < pair.rtt // 8
    pair.cut(plane=1, src=0)
    pair.post(60 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.q.n_inferred == pair.sent["rtx"] == 30
    assert (pair.q.n_false, pair.path_states(1)) == (0, "AA")


@pytest.mark.parametrize(("early_ps", "false"), [(1, 1), (0, 0)])
def test_row_07_an_answer_that_is_too_early_for_a_retransmission_is_a_false_alarm(
    early_ps: int, false: int
) -> None:
    """Less than half of the shortest round trip after it left, and just not."""
    pair = silent_pair()
    pair.sack(0, got={2}, trigger=2)
    pair.until(lambda: bool(pair.slot(1).before))
    least = min(int(pair.q.rtt_least), pair.rtt)
    pair.advance(ps=int(pair.slot(1).sent_at) + least // 2 - early_ps - pair.now)
    pair.sack(2)
    assert pair.q.n_false == false


@long
@pytest.mark.parametrize("rtts", [2, 10])
def test_a_standstill_is_no_queueing(rtts: int) -> None:
    """Both ends and all between them are not scheduled for some time, with the window full: round
    trips are longer by that, and the window stays.
    """
    pair = Pair(planes=2)
    pair.post(900 * 4096)
    pair.advance(us=100)
    before, delay = float(pair.q.cwnd), float(pair.q.avg_delay)
    assert pair.q.quiet_until < 0
    pair.now += rtts * pair.rtt
    pair.advance(us=3 * pair.rtt / US)
    assert pair.q.quiet_until - pair.q.quiet_from >= rtts * pair.rtt - pair.rtt // 2
    recent = max(pair.q.rtt_largest[0], pair.q.rtt_before[0])
    assert recent > rtts * pair.rtt  # what answers may take
    assert pair.q.cwnd >= before
    assert pair.q.avg_delay <= delay + pair.rtt // 4
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 0


@long
def test_row_07_a_standstill_between_two_packets_is_no_evidence() -> None:
    """One of the packets that were on their way comes three quarters of a round trip after the
    others, as from a port that is read last; those that were sent afterwards are acknowledged
    before. They are newer by the standstill, but answers then took as long as the standstill too.
    """
    pair = Pair(planes=2)
    pair.post(900 * 4096)
    pair.advance(us=100)
    pair.delay(us=10.75 * pair.rtt / US, seq=int(pair.q.nxt))
    pair.advance(us=0.4)
    pair.now += 10 * pair.rtt
    pair.drive()
    pair.assert_intact()
    assert pair.q.n_false == pair.q.n_inferred == pair.sent["rtx"] == 0


@long
def test_a_queue_is_no_standstill() -> None:
    """Packets that come five round trips late, one after the other, shrink the window."""
    pair = Pair(planes=2)
    pair.post(900 * 4096)
    pair.advance(us=100)
    before = float(pair.q.cwnd)
    for late in range(1, 400):
        pair.delay(us=min(late * 0.3, 40), kind="data", seq=int(pair.q.nxt) + late)
    pair.advance(us=100)
    assert pair.q.quiet_until < 0
    assert pair.q.cwnd < 0.7 * before


def test_row_07_window_is_cut_for_a_loss_by_one_packet() -> None:
    pair = silent_pair()
    pair.q.cwnd = 20 * NOMINAL
    pair.q.last_adjust = pair.now  # the window grows for nothing else in this story
    before = float(pair.q.cwnd)
    pair.sack(0, got=set(range(2, 31)), trigger=30, rcvd_units=0)
    pair.until(lambda: pair.q.n_inferred > 0)
    assert pair.q.n_inferred == 1
    assert pair.q.cwnd == before - NOMINAL


def test_row_08_silence_makes_a_probe_after_a_round_trip_and_a_quarter() -> None:
    pair = Pair()
    pair.cut()
    pair.post(4096)
    pair.advance(ps=PATIENCE_PS - 1)
    assert pair.sent["probe"] == 0
    pair.advance(ps=1)
    assert pair.sent["probe"] == 1


def test_row_08_each_unanswered_probe_is_followed_by_twice_as_many_on_the_next_planes() -> None:
    """Up to eight, a round trip and a quarter apart, as long as the NIC's budget has as many."""
    pair = Pair(planes=4, rto_exponent=8)
    pair.cut()
    pair.post(4096)
    pair.advance(us=2.4 * pair.rto / US)
    probes = pair.packets("probe")
    rounds = [[x for x in probes if x.at == at] for at in sorted({x.at for x in probes})]
    assert [len(each) for each in rounds[:4]] == [1, 2, 4, 8]
    assert {(b[0].at - a[0].at) / US for a, b in pairwise(rounds[:4])} == {10}
    assert len(probes) > 15 + 8
    planes = [int(x.p.plane) for x in probes[:15]]
    assert planes == [(planes[0] + k) % 4 for k in range(15)]


def test_row_08_where_paths_were_asked_in_vain_those_that_failed_are_asked_too() -> None:
    """And what answers is back in service, long before its own probe is due."""
    pair = Pair(planes=1, evs=8, rto_exponent=8)
    for k in range(6):
        endpoint.declare(pair.st, pair.q, pair.ev_index(0, k), ASSUMED_BAD, pair.now)
    pair.st.blame.probe_at[:] = pair.q.ev_probe_at = es.NEVER
    for k in (6, 7):
        pair.cut(ev=pair.ev(0, k), src=0)
    pair.post(4096)
    pair.drive()
    pair.assert_intact()
    assert "G" in pair.path_states(0)[:6]
    assert pair.q.n_epochs == 0
    assert pair.now < pair.rto


@long
def test_row_08_whose_window_is_full_takes_the_answer_of_any_plane() -> None:
    """Three of four planes fall silent, both ways: the fourth tells what came."""
    pair = Pair(planes=4, trimming=0)
    pair.post(900 * 4096)
    pair.advance(us=20)
    for plane in range(3):
        pair.cut(plane=plane)
    before = pair.now
    pair.until(lambda: pair.sent["rtx"] > 0)
    assert pair.now - before < 3 * pair.rtt
    pair.drive(limit_us=5_000)
    pair.assert_intact()
    assert pair.q.n_epochs == 0


def test_row_08_who_sends_slowly_is_not_asked_about_what_no_sack_is_due_for() -> None:
    """Four packets, as many as a SACK stands for, take longer than a round trip and a quarter."""
    pair = Pair(planes=1, evs=4, rate_gbps=10)
    pair.post(200 * 4096)
    pair.drive()
    assert pair.sent["probe"] == pair.sent["rtx"] == 0
    first, fourth = pair.packets("data")[0], pair.packets("data")[3]
    assert fourth.at - first.at > PATIENCE_PS


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


def test_row_08_lost_probes_are_survived() -> None:
    """And so is a lost copy: the answer to the third question is evidence against it."""
    pair = Pair()
    pair.drop(seq=0)
    pair.drop(kind="rtx")
    pair.drop(next=3, kind="probe", src=0)
    pair.post(4096)
    pair.drive()
    pair.assert_intact()
    assert pair.dropped["probe"] == 3
    assert len([x for x in pair.packets("probe") if x.at < pair.packets("rtx")[1].at]) == 1 + 2 + 4
    assert pair.sent["rtx"] == 2
    assert pair.q.n_epochs == 0


def test_row_08_a_lost_tail_goes_again_with_the_question() -> None:
    """With one that had come: no SACK was due yet that would have said so."""
    pair = Pair()
    for seq in range(15, 20):
        pair.drop(seq=seq)
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 6
    assert pair.q.n_inferred == pair.q.n_bad_total == 5, "nobody pays for the sixth"
    assert pair.q.n_epochs == 0
    assert pair.now < 4 * pair.rtt


def test_row_08_what_took_a_dead_path_goes_again_when_it_is_found() -> None:
    """Three of 24 packets take one path, a round of eight apart: one is judged, two go with it."""
    pair = Pair(planes=2, evs=4)
    pair.cut(kind="payload", ev=pair.ev(1, 2))
    pair.post(24 * 4096)
    pair.drive()
    pair.assert_intact()
    first, *_ = lost = [x for x in pair.packets("data") if x.p.ev == pair.ev(1, 2)]
    again = pair.packets("rtx")
    assert [pair.seq(x.p) for x in again] == [pair.seq(x.p) for x in lost]
    assert len(lost) == 3
    frame_ps = pair.port_free_at[0][0] - again[-1].at
    assert first.at + PATIENCE_PS <= again[0].at
    assert again[-1].at - again[0].at == 2 * frame_ps, "one after the other on the other plane"
    assert pair.q.n_bad_total == 1
    assert pair.q.n_false == 0


def test_row_08_not_what_took_a_path_that_has_delivered_since() -> None:
    """It loses one packet, not all."""
    pair = Pair(planes=2, evs=4)
    pair.drop(ev=pair.ev(1, 2))
    pair.post(24 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 1


def test_row_08_not_while_more_is_to_be_sent() -> None:
    """Later packets are evidence against each, and those sent again would wait for nothing."""
    pair = Pair(planes=2, evs=4, mpr=128)
    pair.cut(kind="payload", ev=pair.ev(1, 2))
    pair.post(400 * 4096)
    pair.until(lambda: pair.sent["rtx"] > 0)
    assert pair.q.nxt < pair.q.seq_end
    assert pair.q.n_bad_total == pair.sent["rtx"] == 1
    pair.drive()
    pair.assert_intact()


def test_row_08_what_took_a_silent_plane_goes_again_when_it_falls_silent() -> None:
    """The packets of all its paths, not only those that are old enough to be judged."""
    pair = Pair(planes=4, evs=8)
    pair.cut(plane=2)
    pair.post(80 * 4096)
    pair.drive()
    pair.assert_intact()
    last = [x for x in pair.packets("data") if x.p.plane == 2][-1]
    assert pair.packets("rtx")[-1].at < last.at + PATIENCE_PS - pair.rtt // 4
    assert pair.sent["rtx"] == 20


@long
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
    pair.advance(ps=pair.rtt // 10)
    pair.checked = False
    pair.sack(0, trigger=0, rcvd_units=int(pair.q.rcvd_high) + 17)
    assert pair.q.avg_delay == before
    pair.sack(0, got={1}, trigger=1, rcvd_units=int(pair.q.rcvd_high) + 17)
    assert pair.q.avg_delay > before


def test_row_08_a_copy_of_what_had_come_blames_nobody() -> None:
    """All packets arrive, all SACKs and ACKs are lost for a while: the copy was needless."""
    pair = Pair(evs=4)
    gag = pair.cut(src=1)
    pair.post(4096)
    pair.advance(ps=2 * pair.rtt)
    pair.heal(gag)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 1
    assert pair.q.n_inferred == pair.q.n_bad_total == pair.q.n_timeouts == 0


def test_row_08_copies_leave_at_the_end_of_what_is_posted_only() -> None:
    """Where more may be sent, what is sent later will be evidence."""
    pair = Pair(mpr=32)
    pair.cut(src=1)
    pair.post(64 * 4096)
    pair.advance(ps=2 * pair.rtt)
    assert pair.q.nxt == 32
    assert pair.sent["probe"] > 0
    assert pair.sent["rtx"] == 0


@pytest.mark.parametrize("room", [1, 2, 3])
def test_row_08_copies_take_no_more_than_the_window_has_room_for(room: int) -> None:
    """The last four of 20 are lost, after all others were heard of."""
    pair = Pair(evs=4)
    for seq in range(16, 20):
        pair.drop(seq=seq)
    pair.post(20 * 4096)
    pair.until(lambda: pair.q.una == 16)
    pair.q.cwnd = (4 + room) * pair.q.pkt
    pair.q.max_wnd = pair.q.cwnd
    pair.until(lambda: pair.sent["probe"] == 1)
    at = pair.now
    pair.advance(ps=pair.rtt // 2)
    assert [int(x.p.psn) - 1000 for x in pair.packets("rtx")] == list(range(16, 16 + room))
    assert all(x.at - at < pair.rtt // 2 for x in pair.packets("rtx"))


def test_row_08_a_timeout_counts_from_the_transmission_in_doubt() -> None:
    """Its copy makes a dead peer no fresher."""
    pair = Pair(evs=4)
    pair.cut()
    pair.post(4096)
    pair.advance(ps=pair.rto - 1)
    assert pair.sent["rtx"] == 1
    assert pair.q.n_timeouts == 0
    pair.advance(ps=1)
    assert pair.q.n_timeouts == 1
