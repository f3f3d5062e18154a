"""A story for each arrow between the states of an EV (MRC 3.3; rows 10, 11, 23)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import policy, probes, rotation
from openmrc.engine import state as es
from openmrc.engine.ev import GOOD, SKIP
from tests.engine.cases import long
from tests.engine.pair import FOREVER, FRAME, US, Pair
from tests.exposed import exposed

take_probe_token = exposed(probes.take_probe_token)


def stream(n: int = 900, **how: Any) -> Pair:
    """A long stream at 10 Gb/s a plane: about two packets of each plane in flight."""
    pair = Pair(**({"planes": 1, "evs": 4, "rate_gbps": 10} | how))
    pair.post(n * 4096)
    return pair


def at_rest(**how: Any) -> Pair:
    """One round of four EVs has been sent and answered; the next packet takes EV 0."""
    pair = Pair(**({"planes": 1, "evs": 4} | how))
    pair.post(4 * 4096)
    pair.drive()
    pair.log.clear()
    return pair


def recycle(pair: Pair) -> None:
    """Choose paths as htsim does."""
    c = pair.st.config[0]
    c.path_choose = c.path_learn = policy.RECYCLING


def signal(pair: Pair, k: int, m: int) -> None:
    """A SACK that reflects EV `k` of plane 0 with this `m`."""
    last = int(pair.q.nxt) - 1
    pair.sack(last, m=m, entropy=pair.ev(0, k), rcvd_units=int(pair.q.rcvd_high))


def order(pair: Pair, n: int) -> list[int]:
    """The EVs that the next `n` packets take."""
    before = len(pair.packets("data"))
    pair.post(n * 4096)
    pair.drive()
    return [int(x.p.ev) - 1 for x in pair.packets("data")[before:]]


def probes_on(pair: Pair, plane: int, k: int, since: int = 0) -> list[int]:
    """When an EV was probed."""
    return [x.at for x in pair.packets("probe", since=since) if int(x.p.ev) == pair.ev(plane, k)]


# --- GOOD and SKIP


def test_a_mark_makes_good_skip() -> None:
    pair = at_rest()
    pair.mark(next=1, kind="data", ev=pair.ev(0, 2))
    order(pair, 4)
    assert pair.path_states(0) == "GGSG"
    assert pair.q.n_skips == 1


def test_a_skip_ev_is_restored_when_the_rotation_reaches_it_and_loses_that_turn() -> None:
    pair = at_rest()
    signal(pair, 1, pk.M_SKIP_ONCE)
    assert pair.path_states(0) == "GSGG"
    assert order(pair, 7) == [0, 2, 3, 0, 1, 2, 3]
    assert pair.path_states(0) == "GGGG"


@pytest.mark.parametrize(
    ("evs", "rate_gbps", "turns"),
    [
        (32, 400, 2),  # two rounds in a round trip of 8 us
        (31, 400, 1),  # three, but EVs are few
        (32, 200, 1),  # one
    ],
)
def test_row_13_a_skip_ev_loses_the_turns_of_a_round_trip_where_evs_are_many(
    evs: int, rate_gbps: int, turns: int
) -> None:
    pair = Pair(planes=1, evs=evs, rate_gbps=rate_gbps)
    pair.post(evs * 4096)
    pair.drive()
    signal(pair, 1, pk.M_SKIP_ONCE)
    signal(pair, 1, pk.M_SKIP_ONCE)  # changes nothing
    for turn in range(3):
        assert (1 in order(pair, evs - 1)) == (turn >= turns)
    assert pair.path_state(0, 1) == "GOOD"


@pytest.mark.parametrize("turns", [1, 3])
def test_row_13_a_skip_ev_loses_as_many_turns_as_are_asked_for(turns: int) -> None:
    """One is the public text's: marks while in SKIP change nothing, however many there are."""
    pair = at_rest(evs=32, rate_gbps=400, skip_turns=turns)
    signal(pair, 1, pk.M_SKIP_ONCE)
    signal(pair, 1, pk.M_SKIP_ONCE)
    for turn in range(turns + 1):
        assert (1 in order(pair, 31)) == (turn == turns)


@pytest.mark.parametrize("chooses", [policy.ROTATION, policy.RECYCLING])
def test_in_peer_runs_the_ev_of_an_unmarked_sack_is_next_and_keeps_its_turn(chooses: int) -> None:
    pair = at_rest()
    pair.st.config[0].path_choose = pair.st.config[0].path_learn = chooses
    signal(pair, 2, pk.M_NONE)
    assert order(pair, 1) == ([2] if chooses else [0])
    pair.plane(0).clean = -1  # that packet's own SACK was unmarked too
    assert order(pair, 3) == ([0, 1, 2] if chooses else [1, 2, 3])


@pytest.mark.parametrize(("marks", "turns"), [(1, 1), (2, 4)])
def test_row_13_an_ev_may_lose_turns_by_the_square_of_its_marks_in_a_row(
    marks: int, turns: int
) -> None:
    pair = at_rest(skip_turns="squared")
    pair.st.ev[pair.q.ev0 + 1].marks = marks - 1
    signal(pair, 1, pk.M_SKIP_ONCE)
    assert order(pair, 3 * turns + 2) == [0, 2, 3] * turns + [0, 1]


def test_the_turns_to_lose_fit_their_field() -> None:
    pair = at_rest(skip_turns="squared")
    pair.st.ev[pair.q.ev0 + 1].marks = 20
    signal(pair, 1, pk.M_SKIP_ONCE)
    assert pair.st.ev[pair.q.ev0 + 1].active == rotation.TURNS_MAX


def test_in_peer_runs_an_ev_marked_since_is_not_next() -> None:
    pair = at_rest()
    recycle(pair)
    signal(pair, 2, pk.M_NONE)
    signal(pair, 2, pk.M_SKIP_ONCE)
    assert order(pair, 1) == [0]


def test_in_peer_runs_the_ev_of_an_overtaken_packet_is_not_next() -> None:
    pair = at_rest()
    recycle(pair)
    pair.q.evidence_at = pair.now + US  # something sent later has arrived
    signal(pair, 2, pk.M_NONE)
    assert order(pair, 1) == [0]


def test_one_packet_restores_at_most_one_ev() -> None:
    """EVs 1 and 2 skip: EV 1 loses its turn, EV 2 stays at the head and loses the next."""
    pair = at_rest()
    signal(pair, 1, pk.M_SKIP_ONCE)
    signal(pair, 2, pk.M_SKIP_ONCE)
    taken = order(pair, 2)
    assert taken == [0, 3]
    assert pair.path_states(0) == "GGSG"
    assert 2 not in order(pair, 1)
    assert pair.path_states(0) == "GGGG"


def test_if_all_skip_the_one_just_restored_is_used() -> None:
    pair = at_rest()
    for k in range(4):
        signal(pair, k, pk.M_SKIP_ONCE)
    assert pair.path_states(0) == "SSSS"
    assert order(pair, 1) == [0]
    assert pair.path_states(0) == "GSSS"


def test_a_further_mark_in_skip_changes_nothing() -> None:
    pair = at_rest()
    signal(pair, 1, pk.M_SKIP_ONCE)
    signal(pair, 1, pk.M_SKIP_ONCE)
    assert pair.q.n_skips == 1
    assert order(pair, 4) == [0, 2, 3, 0]


def test_a_trim_makes_good_skip_and_a_last_hop_trim_does_not() -> None:
    pair = at_rest()
    pair.trim(ev=pair.ev(0, 1))
    pair.trim(ev=pair.ev(0, 2), last_hop=True)
    pair.post(4 * 4096)
    pair.until(lambda: pair.sent["rtx"] == 1)
    assert pair.path_states(0) == "GSGG"
    pair.until(lambda: pair.sent["rtx"] == 2)
    assert pair.path_state(0, 2) == "GOOD"
    assert pair.q.n_skips == 1


# --- to ASSUMED_BAD


def test_row_10_one_loss_makes_an_ev_assumed_bad() -> None:
    pair = stream()
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.q.n_inferred > 0)
    assert pair.path_states(0) == "GGAG"
    assert pair.q.n_bad_total == 1
    lost = pair.dropped["data"]
    pair.blame(0, 2).probe_at = es.NEVER
    pair.advance(us=200)
    assert pair.dropped["data"] == lost, "out of use"


def test_a_timeout_makes_an_ev_assumed_bad() -> None:
    pair = Pair(planes=1, evs=4)
    pair.cut(src=1)
    pair.post(4096)
    pair.advance(ps=pair.rto)
    assert pair.q.n_timeouts == 1
    assert pair.path_states(0) == "AGGG"


def test_loss_makes_skip_assumed_bad() -> None:
    pair = stream()
    pair.until(lambda: pair.q.una > 8)
    cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.dropped["data"] == 1)
    pair.path(0, 2).state = SKIP
    pair.until(lambda: pair.q.n_inferred > 0)
    assert pair.path_state(0, 2) == "ASSUMED_BAD"
    pair.heal(cut)


@pytest.mark.parametrize("before", [GOOD, SKIP])
def test_row_23_always_skip_makes_an_ev_assumed_bad(before: int) -> None:
    pair = at_rest(backup=2)
    pair.path(0, 1).state = before
    signal(pair, 1, pk.M_ALWAYS_SKIP)
    assert pair.path_states(0) == "GAGGGG"
    assert pair.path(0, 4).active == 1
    assert order(pair, 4) == [0, 4, 2, 3]
    assert pair.sent["rtx"] == 0


def test_row_23_always_skip_leaves_a_plane_its_last_path() -> None:
    pair = at_rest()
    for k in (3, 2, 1, 0):
        pair.blame(0, k).demoted_at = -es.NEVER // 2
        signal(pair, k, pk.M_ALWAYS_SKIP)
    assert pair.plane(0).n_good >= 1
    assert pair.q.planes_ok == 1


def test_row_23_always_skip_is_never_sent_by_default() -> None:
    pair = stream(100)
    pair.mark()
    pair.drive()
    pair.assert_intact()
    assert {int(x.p.m) for x in pair.packets("sack")} == {pk.M_SKIP_ONCE}


def verdicts(pair: Pair, ev: int, marked: bool = False) -> list[int]:
    """What the SACKs said of an EV, in order; with `marked` only what was not NONE."""
    said = [int(x.p.m) for x in pair.packets("sack") if int(x.p.entropy) == ev]
    return [m for m in said if m != pk.M_NONE] if marked else said


def test_row_23_the_sender_leaves_a_path_after_eight_marks_in_a_row() -> None:
    """The receiver says "skip once" each time: it keeps no count by default."""
    pair = stream(400, backup=1)
    bad = pair.ev(0, 2)
    pair.mark(ev=bad)
    pair.until(lambda: pair.q.n_bad_total == 1)
    assert verdicts(pair, bad, marked=True)[:8] == [pk.M_SKIP_ONCE] * 8
    assert pair.q.n_skips == 8
    assert pair.path_states(0) == "GGAGG"


def test_row_23_no_path_is_left_where_there_is_no_spare_one() -> None:
    pair = stream(400)
    pair.mark(ev=pair.ev(0, 2))
    pair.drive()
    assert pair.q.n_skips > 16
    assert pair.q.n_bad_total == 0


def test_row_23_seven_marks_and_a_clean_packet_are_no_reason() -> None:
    pair = stream(900, backup=1)
    bad = pair.ev(0, 2)

    def used() -> int:
        return sum(int(x.p.ev) == bad for x in pair.packets("data"))

    for times in range(1, 4):
        pair.mark(next=7, kind="payload", ev=bad)
        pair.until(lambda times=times: len(verdicts(pair, bad, marked=True)) == 7 * times)  # type: ignore[misc]
        clean = used() + 2
        pair.until(lambda clean=clean: used() == clean)  # type: ignore[misc]
        pair.advance(us=8)
    assert pair.q.n_bad_total == 0


@pytest.mark.parametrize(("marked", "left"), [(2, True), (3, False)])
def test_row_23_none_is_left_where_more_than_half_are_marked(marked: int, left: bool) -> None:
    """Of four in use."""
    pair = stream(2000, backup=2)
    for k in range(marked):
        pair.mark(ev=pair.ev(0, k))
    pair.advance(us=400)
    assert pair.q.n_skips >= 8 * marked
    assert (pair.q.n_bad_total > 0) == left


def test_row_23_always_skip_is_sent_after_k_marks_in_a_row_on_one_ev() -> None:
    pair = stream(200, always_skip_after=3)
    bad = pair.ev(0, 2)
    pair.mark(ev=bad)
    pair.until(lambda: pair.q.n_bad_total == 1)
    assert verdicts(pair, bad, marked=True) == [pk.M_SKIP_ONCE, pk.M_SKIP_ONCE, pk.M_ALWAYS_SKIP]
    assert pair.path_states(0) == "GGAG"
    assert {m for ev in (0, 1, 3) for m in verdicts(pair, pair.ev(0, ev))} <= {pk.M_NONE}


def test_row_23_a_clean_packet_starts_the_count_anew() -> None:
    """Two packets of the EV are marked, two are not, five times over: never three in a row."""
    pair = stream(900, always_skip_after=3)
    bad = pair.ev(0, 2)

    def used() -> int:
        return sum(int(x.p.ev) == bad for x in pair.packets("data"))

    for times in range(1, 6):
        pair.mark(next=2, kind="payload", ev=bad)
        pair.until(lambda times=times: len(verdicts(pair, bad, marked=True)) == 2 * times)  # type: ignore[misc]
        clean = used() + 2
        pair.until(lambda clean=clean: used() == clean)  # type: ignore[misc]
        pair.advance(us=8)
    assert set(verdicts(pair, bad, marked=True)) == {pk.M_SKIP_ONCE}
    assert pair.q.n_bad_total == 0


def test_row_13_what_was_judged_lost_takes_another_plane() -> None:
    """And there the path that delivered last: a second dead one would cost as much as the first."""
    pair = Pair(planes=4, evs=16)
    pair.cut(plane=2, kind="payload")
    pair.post(300 * 4096)
    pair.drive()
    pair.assert_intact()
    again = pair.packets("rtx")
    assert len(again) > 8
    assert all(int(x.p.plane) != 2 for x in again)


def test_row_13_where_there_is_no_other_plane_it_takes_the_same() -> None:
    pair = Pair(planes=1, evs=4)
    pair.drop(seq=20)
    pair.post(60 * 4096)
    pair.drive()
    pair.assert_intact()
    (lost,) = (x for x in pair.packets("data") if pair.seq(x.p) == 20)
    (again,) = pair.packets("rtx")
    assert again.p.plane == lost.p.plane
    assert again.p.ev != lost.p.ev


def test_row_11_a_plane_that_is_heard_again_after_an_rto_is_asked_for_all_its_paths() -> None:
    """Not each at the spacing that silence had doubled."""
    pair = Pair(planes=1, evs=8, exp_cnt=25, rto_exponent=8)
    pair.post(100 * 4096)
    pair.until(lambda: pair.q.una > 20)
    cut = pair.cut()
    pair.advance(us=40 * pair.rto / US)
    pair.heal(cut)
    pair.until(lambda: pair.q.n_revived > 0)
    first = pair.now
    pair.until(lambda: pair.path_states(0) == "G" * 8, limit_us=5_000)
    assert pair.now - first < 40 * pair.rtt


def test_row_10_the_last_path_of_a_plane_is_demoted_after_three_losses_in_a_row() -> None:
    pair = Pair(planes=2, evs=1)
    pair.cut(plane=1, kind="payload")
    states = []
    pair.post(200 * 4096)
    while pair.q.n_inferred < 4:
        before = int(pair.q.n_inferred)
        pair.until(lambda before=before: pair.q.n_inferred > before)  # type: ignore[misc]
        states.append((int(pair.plane(1).losses), pair.path_states(1)))
    assert all(state == ("A" if losses >= 3 else "G") for losses, state in states)
    assert pair.plane(1).silent == 1
    assert pair.q.planes_ok == 0b01


def test_row_10_a_delivery_between_losses_keeps_the_last_path() -> None:
    """Two lost, one delivered, for ever: a bad path, but the only one of its plane."""
    pair = stream(60, planes=2, evs=1)
    pair.log.clear()
    for k in range(2, 20, 3):
        for seq in (2 * k + 1, 2 * k + 3):
            pair.drop(seq=seq, plane=1)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] >= 6
    assert pair.path_states(1) == "G"
    assert pair.q.n_bad_total == 0


# --- and back: row 11


def test_row_11_the_first_probe_leaves_one_round_trip_after_the_demotion() -> None:
    pair = stream()
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    demoted = pair.now
    pair.until(lambda: pair.sent["probe"] == 1)
    (at,) = probes_on(pair, 0, 2)
    assert at == demoted + pair.rtt
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")
    assert at + pair.rtt // 2 < pair.now <= at + pair.rtt
    assert pair.q.n_revived == 1


def test_row_11_a_marked_answer_counts_and_leaves_the_ev_in_skip() -> None:
    pair = stream()
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.mark(kind="probe")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    pair.until(lambda: pair.path_state(0, 2) != "ASSUMED_BAD")
    assert pair.path_state(0, 2) == "SKIP"
    assert len(probes_on(pair, 0, 2)) == 1


@long
def test_row_11_the_nth_demotion_needs_twice_as_many_answers_at_most_eight() -> None:
    pair = stream(mpr=1024)
    needed = []
    for _ in range(6):
        cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
        pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
        demoted = pair.now
        pair.heal(cut)
        pair.until(lambda: pair.path_state(0, 2) == "GOOD")
        needed.append(len(probes_on(pair, 0, 2, since=demoted)))
    assert needed == [1, 2, 4, 8, 8, 8]
    pair.drive()
    pair.assert_intact()


def test_row_11_answers_must_come_in_a_row() -> None:
    """Third demotion: four in a row. Two answers, one lost probe, then four more."""
    pair = stream()
    pair.blame(0, 2).demotions = 2
    pair.blame(0, 2).demoted_at = 0
    cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    pair.heal(cut)
    pair.until(lambda: pair.blame(0, 2).answers == 2)
    pair.drop(kind="probe")
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")
    assert len(probes_on(pair, 0, 2)) == 2 + 1 + 4


def test_row_11_demotions_more_than_100_ms_apart_do_not_add_up() -> None:
    pair = stream(100)
    pair.drive()
    path = pair.blame(0, 2)
    path.demotions, path.demoted_at = 3, pair.now
    pair.advance(us=100_001)
    path.demoted_at = pair.now - 100_000 * US - 1
    pair.drop(ev=pair.ev(0, 2))
    pair.post(100 * 4096)
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    assert path.demotions == 1


def test_row_11_probe_spacing_doubles_from_two_round_trips_to_100_ms() -> None:
    pair = stream(100, checked=False)
    pair.cut(ev=pair.ev(0, 2))
    pair.drive()
    pair.advance(us=600_000)
    at = probes_on(pair, 0, 2)
    gaps = [b - a for a, b in pairwise(at)]
    assert gaps[:14] == [min(pair.rtt << n, 100_000 * US) for n in range(1, 15)]
    assert gaps[13:] == [100_000 * US] * len(gaps[13:])


def test_row_11_spacing_starts_anew_after_an_answer() -> None:
    """Four answers needed, the first three probes are lost."""
    pair = stream()
    path = pair.blame(0, 2)
    path.demotions, path.demoted_at = 2, 0
    pair.drop(ev=pair.ev(0, 2))
    pair.drop(next=3, kind="probe")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    pair.until(lambda: path.answers == 1)
    assert path.spacing == 2 * pair.rtt
    assert path.probe_at == pair.now + 2 * pair.rtt


def test_row_11_a_revived_ev_returns_to_the_rotation_if_its_share_is_short() -> None:
    pair = stream(backup=0)
    cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    assert pair.plane(0).n_active == 3
    pair.heal(cut)
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")
    assert pair.plane(0).n_active == 4
    assert pair.path(0, 2).active == 1


def test_row_11_else_to_the_backup() -> None:
    pair = stream(backup=1)
    cut = pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
    pair.heal(cut)
    assert (pair.plane(0).n_active, pair.path(0, 4).active) == (4, 1)
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")
    assert (pair.plane(0).n_active, pair.path(0, 2).active) == (4, 0)


def test_a_replacement_comes_from_the_same_plane() -> None:
    pair = stream(planes=4, backup=2)
    pair.cut(ev=pair.ev(1, 0), kind="payload")
    pair.until(lambda: pair.path_state(1, 0) == "ASSUMED_BAD")
    assert [int(pair.plane(p).n_active) for p in range(4)] == [4, 4, 4, 4]
    assert pair.path(1, 4).active == 1
    assert all(pair.path(p, 4).active == 0 for p in (0, 2, 3))


def test_row_11_all_probes_of_a_nic_stay_under_one_percent_of_its_packet_rate() -> None:
    """64 EVs of a dead plane are due at once: 16 go, the others at 1 % of two ports' packets."""
    pair = Pair(planes=2, evs=64)
    pair.cut(plane=1)
    pair.post(400 * 4096)
    pair.until(lambda: pair.plane(1).silent)
    pair.advance(us=2000)
    rate = float(pair.st.nic[0].probe_rate[probes.OF_PATHS])
    sent = [x.at for x in pair.packets("probe") if x.p.plane == 1]
    assert len(sent) > 64
    for start in (0, 16, 40, 64):
        for end in range(start + 1, len(sent)):
            assert end - start <= 16 + rate * (sent[end] - sent[start]) + 1e-6


def test_row_11_a_missing_ack_waits_for_no_ev() -> None:
    """The budget for EVs is spent for a second; a QP's own probe goes all the same."""
    pair = Pair()
    pair.st.nic[0].probe_tokens_at[probes.OF_PATHS] = 1_000_000 * US
    pair.st.nic[0].probe_tokens[probes.OF_PATHS] = 0.0
    pair.drop(2, kind="ack")
    pair.post(4096)
    pair.drive(limit_us=3 * pair.rtt / US)
    assert pair.sent["probe"] == 1


def test_row_11_probes_of_queue_pairs_stay_under_one_percent_of_a_nics_bytes() -> None:
    """Four ports of 100 Gb/s: 0.5 GB/s, of probes that are as long as the headers of a packet."""
    pair = Pair(planes=4)
    nic = pair.st.nic[0]
    nic.probe_tokens[probes.OF_QUEUE_PAIRS] = 0.0
    nic.probe_tokens_at[probes.OF_QUEUE_PAIRS] = pair.now
    wait_ps = take_probe_token(pair.st, 0, probes.OF_QUEUE_PAIRS, pair.now) - pair.now
    port_bytes_per_s = int(pair.st.config[0].port_rate_bps) / 8
    assert wait_ps == pytest.approx(100 * FRAME / (4 * port_bytes_per_s) * 1e12, abs=2)


@pytest.mark.parametrize(("n_qps", "burst"), [(1, 16), (16, 16), (17, 17)])
def test_row_11_each_queue_pair_may_ask_once_at_the_same_time(n_qps: int, burst: int) -> None:
    pair = Pair()
    pair.st.nic[0].n_qps = n_qps
    waits = [take_probe_token(pair.st, 0, probes.OF_QUEUE_PAIRS, US) for _ in range(18)]
    assert waits.index(next(wait for wait in waits if wait > 0)) == burst
    assert take_probe_token(pair.st, 0, probes.OF_PATHS, US) == 0


@long
def test_row_11_a_probe_held_back_by_the_budget_is_not_one_unanswered() -> None:
    """Spacing doubles once for each probe that was sent and not answered, however long the next one
    waits for its turn.
    """
    pair = Pair(planes=2, evs=64)
    pair.cut(plane=1)
    pair.post(400 * 4096)
    pair.until(lambda: pair.plane(1).silent)
    pair.advance(us=4000)
    for k in range(64):
        sent = len(probes_on(pair, 1, k))
        assert pair.blame(1, k).spacing <= 2 * pair.rtt << sent


def test_probes_lost_do_no_harm() -> None:
    pair = stream(300)
    cut = pair.cut(ev=pair.ev(0, 2))
    pair.advance(us=400)
    pair.heal(cut)
    pair.drive()
    pair.assert_intact()
    pair.advance(us=1000)
    assert pair.path_states(0) == "GGGG"


def test_an_answer_to_an_older_probe_does_not_count() -> None:
    pair = stream()
    pair.cut(ev=pair.ev(0, 2))
    pair.until(lambda: len(probes_on(pair, 0, 2)) == 2)
    old = int(pair.packets("probe")[0].p.ack_offset)
    last = int(pair.q.una) - 1
    answer: dict[str, Any] = {"entropy": pair.ev(0, 2), "flag_bits": pk.PROBE_ANSWER}
    pair.sack(last, rcvd_units=0, **answer, trigger=last + old)
    assert pair.path_state(0, 2) == "ASSUMED_BAD"
    new = int(pair.packets("probe")[1].p.ack_offset)
    last = int(pair.q.una) - 1
    pair.sack(last, rcvd_units=0, **answer, trigger=last + new)
    assert pair.path_state(0, 2) == "GOOD"


# --- a path that passes small packets only


def narrow(payload: int, **how: Any) -> Pair:
    """A stream of messages of one packet; EV 2 loses all packets above this payload, and has shown
    it: it returned by probes twice, and lost a packet each time.
    """
    pair = Pair(**({"planes": 1, "evs": 4, "rate_gbps": 10} | how))
    pair.cut(ev=pair.ev(0, 2), above=payload)
    pair.post(900 * 4096)
    pair.until(lambda: pair.blame(0, 2).narrow == 2)
    assert (pair.path_state(0, 2), pair.q.n_revived) == ("ASSUMED_BAD", 2)
    pair.log.clear()
    return pair


@long
def test_row_11_a_path_that_lost_what_is_larger_than_a_probe_returns_by_a_packet_as_large() -> None:
    pair = narrow(0)
    pair.until(lambda: pair.blame(0, 2).narrow == 5)
    probed, tried = probes_on(pair, 0, 2), pair.packets("data")
    tried = [x for x in tried if int(x.p.ev) == pair.ev(0, 2)]
    assert (len(probed), len(tried)) == (4, 3)  # the next probe leaves when a trial has failed
    for probe, trial in zip(probed[:3], tried, strict=True):
        # the next packet after the answer
        assert abs(trial.at - probe - pair.rtt) < 5 * US
        again = next(x for x in pair.packets("rtx", since=trial.at) if x.p.psn == trial.p.psn)
        assert again.at - trial.at < 5 * US  # it waits for nothing
        assert int(again.p.ev) != pair.ev(0, 2)
    gaps = [b - a for a, b in pairwise(x.at for x in tried)]
    assert gaps[1] > 1.5 * gaps[0]
    assert pair.q.n_trial == 3  # nothing else was sent on it
    pair.drive()
    pair.assert_intact()


@long
def test_row_11_a_path_that_is_wide_again_is_back_with_the_answer_to_its_trial() -> None:
    pair = narrow(0)
    pair.until(lambda: pair.blame(0, 2).narrow == 4)
    pair.heal()
    pair.until(lambda: pair.q.tried == 1)
    tried_at = pair.now
    pair.until(lambda: pair.blame(0, 2).answers == 1)
    assert pair.now - tried_at <= pair.rtt
    b = pair.blame(0, 2)
    assert (int(b.lost), int(b.passed), int(b.narrow)) == (-1, -1, 0)
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")
    pair.drive()
    pair.assert_intact()


@long
def test_row_11_a_trial_waits_for_a_packet_large_enough_and_probes_no_more() -> None:
    """Messages of 1,000 B neither return the path nor are risked on it."""
    pair = narrow(2000)
    pair.drive()
    pair.advance(us=100_000)
    probed = pair.sent["probe"]
    assert pair.q.waiting == 1
    for _ in range(8):
        pair.post(1000)
    pair.drive()
    pair.advance(us=100_000)
    assert (int(pair.q.waiting), pair.sent["probe"]) == (1, probed)
    assert pair.path_state(0, 2) == "ASSUMED_BAD"
    pair.heal()
    pair.post(4096)
    pair.drive()
    pair.run_out()
    assert int(pair.blame(0, 2).narrow) == 0


def test_row_11_a_path_that_lost_small_packets_needs_only_small_ones() -> None:
    pair = Pair(planes=1, evs=4, rate_gbps=10, messages=1024)
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    for _ in range(900):
        pair.post(500)
    pair.until(lambda: pair.blame(0, 2).narrow == 2)
    assert int(pair.blame(0, 2).lost) == 500
    pair.heal()
    pair.cut(ev=pair.ev(0, 2), above=500)
    pair.until(lambda: pair.path_state(0, 2) == "GOOD")


@long
def test_row_11_a_loss_after_a_delivery_as_large_says_nothing_of_sizes() -> None:
    pair = stream()
    for _ in range(3):
        pair.drop(ev=pair.ev(0, 2))
        pair.until(lambda: pair.path_state(0, 2) == "ASSUMED_BAD")
        assert (int(pair.blame(0, 2).lost), int(pair.blame(0, 2).narrow)) == (4096, 0)
        pair.until(lambda: pair.blame(0, 2).lost == -1)
    pair.drive()
    assert pair.sent["rtx"] == 3


@long
def test_row_11_narrow_paths_everywhere_stop_nobody_and_return() -> None:
    """All paths pass 2,000 B only: messages of 1,000 B go on, and those of 4,096 B once the paths
    are wide again.
    """
    pair = Pair(planes=2, evs=4, messages=1024)
    pair.cut(above=2000)
    pair.post(40 * 4096)
    pair.advance(us=2_000)
    pair.heal()
    pair.drive(limit_us=20_000)
    pair.post(400 * 4096)
    pair.drive()
    pair.advance(us=200_000)
    pair.post(400 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.path_states(0) + pair.path_states(1) == "G" * 8


@long
def test_row_11_a_narrow_plane_falls_silent_thrice_and_is_then_tried_packet_by_packet() -> None:
    pair = Pair(planes=4, evs=8, rate_gbps=10, messages=1024, region_bytes=16 << 20)
    pair.cut(plane=1, above=0)
    pair.post(3600 * 4096)
    pair.until(lambda: pair.q.n_revived == 16)
    pair.until(lambda: pair.plane(1).silent)
    pair.log.clear()
    pair.drive()
    on = [x for x in pair.packets("data", "rtx") if x.p.plane == 1]
    assert pair.q.n_revived == 16
    assert {x.kind for x in on} == {"data"}
    for k in range(8):
        tried = sum(int(x.p.ev) == pair.ev(1, k) for x in on)
        assert 0 <= len(probes_on(pair, 1, k)) - tried + 1 <= 2  # one of each in turn
    assert pair.path_states(1) == "A" * 8
    pair.assert_intact()


def narrow_plane() -> Pair:
    """A stream over two planes; all paths of plane 0 lose every packet with a payload, as they did
    before.
    """
    pair = Pair(planes=2, evs=4, rate_gbps=10, messages=256)
    pair.cut(plane=0, above=0)
    for k in range(4):
        pair.blame(0, k).lost, pair.blame(0, k).narrow = 4096, 3
    pair.post(400 * 4096)
    pair.until(lambda: pair.q.n_trial > 0)
    assert pair.path_states(0) + pair.path_states(1) == "AAAAGGGG"
    pair.log.clear()
    return pair


@long
def test_row_07_an_answer_from_a_narrow_path_is_no_evidence_against_data_elsewhere() -> None:
    """The peer's host stands still: its answers on the empty plane overtake those to the data."""
    pair = narrow_plane()
    pair.advance(us=100)  # what was on plane 0 is judged
    judged = int(pair.q.n_inferred)
    for kind in ("data", "rtx", "sack"):
        pair.delay(us=60, next=FOREVER, kind=kind, plane=1)
    pair.advance(us=400)
    assert len([x for x in pair.packets("sack", src=1) if x.p.plane == 0]) >= 3
    assert (int(pair.q.n_inferred) - judged, int(pair.q.n_false)) == (0, 0)
    assert pair.path_states(1) == "GGGG"
    pair.drive()
    pair.assert_intact()


def test_row_12_where_all_is_silent_paths_that_are_too_narrow_stay_out_at_first() -> None:
    pair = narrow_plane()
    cut = pair.cut(plane=1)
    pair.until(lambda: "A" in pair.path_states(1) and pair.q.epoch == 1)
    assert not [x for x in pair.packets("rtx") if x.p.plane == 0]
    assert pair.path_states(0) == "AAAA"
    pair.heal(cut)
    pair.drive()
    pair.assert_intact()


def test_row_12_where_nothing_else_is_left_narrow_paths_carry_what_fits() -> None:
    pair = narrow_plane()
    pair.drive()
    pair.heal()
    pair.cut(plane=0, above=2000)
    pair.cut(plane=1)
    for _ in range(20):
        pair.post(1000)
    pair.drive(limit_us=20_000)
    pair.assert_intact()


# --- DENIED


@pytest.mark.parametrize("before", ["GOOD", "SKIP", "ASSUMED_BAD"])
def test_a_denylist_takes_an_ev_from_any_state_and_gives_it_back(before: str) -> None:
    pair = at_rest(backup=1)
    if before != "GOOD":
        signal(pair, 1, pk.M_SKIP_ONCE if before == "SKIP" else pk.M_ALWAYS_SKIP)
    assert pair.path_state(0, 1) == before
    pair.deny(0, 1)
    assert pair.path_state(0, 1) == "DENIED"
    pair.advance(us=1000)
    assert probes_on(pair, 0, 1, since=1) == []
    assert 1 not in order(pair, 12)
    pair.deny(0, 1, denied=False)
    assert pair.path_state(0, 1) == "GOOD"
    assert pair.path(0, 1).active == 0, "its backup has taken its place"


def test_denying_twice_is_denying_once() -> None:
    pair = at_rest()
    for denied in (True, True, False, False):
        pair.deny(0, 1, denied)
    assert pair.path_states(0) == "GGGG"
    assert set(order(pair, 8)) == {0, 1, 2, 3}


def test_a_denied_backup_does_not_replace() -> None:
    pair = at_rest(backup=1)
    pair.deny(0, 4)
    pair.deny(0, 1)
    assert pair.plane(0).n_active == 3
    assert set(order(pair, 6)) == {0, 2, 3}


@long
def test_losses_and_answers_of_a_denied_ev_change_nothing() -> None:
    pair = stream()
    pair.cut(ev=pair.ev(0, 2), kind="payload")
    pair.until(lambda: len(probes_on(pair, 0, 2)) == 1)
    pair.deny(0, 2)
    pair.advance(us=20)
    assert pair.path_state(0, 2) == "DENIED"
    pair.drive()
    pair.assert_intact()


def test_a_plane_with_every_path_denied_gets_no_turn() -> None:
    pair = Pair(planes=2, evs=2)
    for k in (0, 1):
        pair.deny(1, k)
    assert pair.q.planes_ok == 0b01
    pair.post(50 * 4096)
    pair.drive()
    assert {int(x.p.plane) for x in pair.packets("data")} == {0}
    pair.deny(1, 0, denied=False)
    assert pair.q.planes_ok == 0b11
    pair.post(50 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.packets("data")[-1].p.plane == 1


# --- paths checked at connection


def test_row_36_a_path_carries_data_once_it_has_answered() -> None:
    pair = Pair(planes=2, evs=4, check_paths=True)
    pair.cut(ev=pair.ev(0, 2))
    assert pair.path_states(0) == pair.path_states(1) == "AAAA"
    pair.post(4096)
    pair.advance(us=0.4 * pair.rtt / US)
    assert pair.sent["data"] == 0
    pair.advance(us=6 * pair.rtt / US)
    assert (pair.path_states(0), pair.path_states(1)) == ("GGAG", "GGGG")
    pair.post(300 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 0
    assert (int(pair.q.n_bad_total), int(pair.q.n_revived)) == (0, 0)


def test_row_36_a_path_that_answered_at_first_is_revived_like_any_other() -> None:
    """Counted as such, too."""
    pair = Pair(planes=2, evs=4, check_paths=True)
    pair.advance(us=4 * pair.rtt / US)
    cut = pair.cut(ev=pair.ev(0, 2))
    pair.post(300 * 4096)
    pair.drive()
    assert pair.path_states(0) == "GGAG"
    pair.heal(cut)
    pair.advance(us=20 * pair.rtt / US)
    assert pair.path_states(0) == "GGGG"
    assert (int(pair.q.n_bad_total), int(pair.q.n_revived)) == (1, 1)


@long
def test_row_36_the_first_two_probes_of_a_path_need_no_budget() -> None:
    """A dead plane of 64 paths is asked 128 times; after that the budget, here spent, rules."""
    pair = Pair(planes=2, evs=64, check_paths=True)
    pair.cut(plane=1)
    pair.st.nic[0].probe_tokens_at[probes.OF_PATHS] = 1_000_000 * US
    pair.st.nic[0].probe_tokens[probes.OF_PATHS] = 0.0
    pair.advance(us=20 * pair.rtt / US)
    sent = [x.at for x in pair.packets("probe", src=0) if x.p.plane == 1]
    assert len(sent) == 2 * 64
    assert pair.path_states(0) == 64 * "G"
    gap = int(probes.PROBE_SHARE / float(pair.st.nic[0].probe_rate[probes.OF_PATHS]))
    assert max(sent) <= 128 * (gap + 1) + 2 * pair.rtt


def test_row_36_where_no_path_answers_the_oldest_serve_and_the_error_comes() -> None:
    pair = Pair(planes=2, evs=4, check_paths=True, linear_cnt=0, exp_cnt=2)
    pair.cut(plane=0)
    pair.cut(plane=1)
    pair.post(4096)
    pair.drive(errors=True)
    assert pair.error(0) == "retry counter exceeded"
    assert pair.sent["data"] + pair.sent["rtx"] > 1


def test_row_36_no_path_serves_unanswered_while_nothing_is_to_be_sent() -> None:
    """The path that each of many queue pairs asks first is dead, and is asked again before the
    next: it carries no data later.
    """
    pair = Pair(planes=1, evs=2, qps=64, check_paths=True)
    pair.cut(ev=pair.ev(0, 0))
    pair.advance(us=20 * pair.rtt / US)
    assert pair.path_states(0) == "AG"
    pair.post(20 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] == 0


def test_row_36_paths_that_wait_for_the_budget_hold_up_no_path_under_check() -> None:
    """Half of 64 paths are dead, and the budget is spent: all others are known by the time that
    their first probes take.
    """
    pair = Pair(planes=1, evs=64, qps=8, check_paths=True)
    for k in range(0, 64, 2):
        pair.cut(ev=pair.ev(0, k))
    pair.st.nic[0].probe_tokens_at[probes.OF_PATHS] = 1_000_000 * US
    pair.st.nic[0].probe_tokens[probes.OF_PATHS] = 0.0
    gap = int(8 * probes.PROBE_SHARE / float(pair.st.nic[0].probe_rate[probes.OF_PATHS]))
    pair.advance(us=(64 * gap + 2 * pair.rtt) / US)
    assert pair.path_states(0) == 32 * "AG"
