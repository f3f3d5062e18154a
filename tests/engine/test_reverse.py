"""The way back: control packets over the planes in turn, on reverse EVs kept fresh (row 14)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import policy, probes, rotation
from tests.engine.arriving import data
from tests.engine.cases import long
from tests.engine.pair import Pair
from tests.exposed import exposed


def test_row_14_control_packets_take_the_planes_in_turn() -> None:
    pair = Pair(planes=4)
    pair.post(200 * 4096)
    pair.drive()
    planes = [int(x.p.plane) for x in pair.packets("sack")]
    used = [planes.count(p) for p in range(4)]
    assert max(used) - min(used) <= 2
    assert all(a != b for a, b in pairwise(planes))


@pytest.mark.parametrize("trimming", [0, 1])
def test_row_14_answers_leave_the_planes_on_which_nothing_arrives(trimming: int) -> None:
    pair = Pair(planes=4, trimming=trimming)
    for plane in range(3):
        pair.cut(plane=plane, src=0)
    pair.post(200 * 4096)
    pair.until(lambda: pair.r.came_before == 0b1000)
    already = len(pair.packets("sack"))
    pair.drive(limit_us=5_000)
    pair.assert_intact()
    assert {int(x.p.plane) for x in pair.packets("sack")[already:]} == {3}


def test_row_14_a_plane_takes_answers_again_with_the_first_packet_on_it() -> None:
    pair = Pair(planes=2, trimming=0)
    pair.r.came_now = pair.r.came_before = 0b01
    pair.r.came_left = 4
    data(pair, 0, plane=1)
    assert pair.r.came_now == 0b11


def test_row_14_a_plane_may_be_late_for_two_round_trips() -> None:
    """As long as the queues of an incast differ; then two packets a plane without one on it, and it
    is left out.
    """
    note_arrival = exposed(rotation.note_arrival)
    pair = Pair(planes=2)
    end = pair.r
    assert end.base_rtt > 0
    note_arrival(end, 0, 1000)
    due = 1000 + 2 * int(end.base_rtt)
    for _ in range(100):
        note_arrival(end, 0, due - 1)
    assert end.came_before == -1
    note_arrival(end, 0, due)
    assert (end.came_before, end.came_now) == (0b01, 0)
    for _ in range(3):
        note_arrival(end, 1, 2 * due)
    assert (end.came_before, end.came_now) == (0b01, 0b10)
    note_arrival(end, 1, 2 * due)
    assert (end.came_before, end.came_now) == (0b10, 0)


def test_row_14_each_goes_out_on_its_planes_reverse_ev() -> None:
    pair = Pair(planes=2, reverse=policy.REVERSE_PROBED)
    pair.cut(kind="request")
    pair.plane(0, qp=1).reverse_ev = pair.ev(0, 3)
    pair.plane(1, qp=1).reverse_ev = pair.ev(1, 2)
    for plane in range(2):
        pair.plane(plane, qp=1).reverse_known = 1
    pair.post(100 * 4096)
    pair.drive()
    control = pair.packets("sack", "ack")
    assert {(int(x.p.plane), int(x.p.ev)) for x in control} == {
        (0, pair.ev(0, 3)),
        (1, pair.ev(1, 2)),
    }


def test_row_14_an_end_that_only_receives_probes_once_a_round_trip() -> None:
    pair = Pair(planes=2)
    pair.post(500 * 4096)
    pair.drive()
    at = [x.at for x in pair.packets("request", src=1)]
    assert all(int(x.p.reason) == pk.OP_EV_PROBE for x in pair.packets("request"))
    assert len(at) > 5
    assert {b - a for a, b in pairwise(at)} == {pair.rtt}
    assert pair.packets("request", src=0) == []


def test_row_14_an_answered_probe_makes_its_ev_the_reverse_ev() -> None:
    pair = Pair(planes=2, evs=8)
    pair.post(100 * 4096)
    pair.until(lambda: pair.sent["request"] == 1)
    (request,) = pair.packets("request")
    plane = pair.plane(int(request.p.plane), qp=1)
    pair.advance(ps=pair.rtt // 2)
    assert (plane.reverse_ev == request.p.ev, plane.reverse_known) == (False, 0)
    pair.until(lambda: plane.trial_id == -1)
    assert (plane.reverse_ev == request.p.ev, plane.reverse_known) == (True, 1)
    (response,) = pair.packets("response")
    assert response.p.psn == request.p.psn
    assert response.p.klass == pk.CLASS_CONTROL


def test_row_14_an_unanswered_probe_makes_no_ev_known() -> None:
    pair = Pair(planes=2, evs=8)
    pair.cut(kind="request")
    pair.post(200 * 4096)
    pair.drive()
    assert pair.sent["request"] > 3
    assert [int(pair.plane(p, qp=1).reverse_known) for p in (0, 1)] == [0, 0]


def test_row_14_until_one_is_known_to_deliver_answers_take_the_way_of_what_came() -> None:
    """So of a receiver half of whose paths are dead all answers arrive."""
    pair = Pair(planes=1, evs=8, reverse=policy.REVERSE_PROBED)
    pair.cut(kind="request")
    for k in range(0, 8, 2):
        pair.cut(ev=pair.ev(0, k))
    pair.post(100 * 4096)
    pair.drive()
    sacks = pair.packets("sack", src=1)
    assert {int(x.p.ev) for x in sacks} == {pair.ev(0, k) for k in range(1, 8, 2)}
    assert all(x.p.ev == x.p.entropy for x in sacks)
    assert pair.dropped["sack"] == 0


def test_row_14_where_evs_are_of_one_end_alone_answers_take_random_ones_at_first() -> None:
    pair = Pair(planes=1, evs=8, reverse=policy.REVERSE_PROBED, local_evs=1)
    pair.cut(kind="request")
    pair.post(100 * 4096)
    pair.drive()
    assert len({int(x.p.ev) for x in pair.packets("sack")}) > 4


@pytest.mark.parametrize(("between", "several"), [(False, True), (True, False)])
def test_row_14_after_a_second_probe_answers_take_the_ways_of_the_probes(
    between: bool, several: bool
) -> None:
    """The first answer may be lost. Not if data has come since: then it is a question of its
    own.
    """
    pair = Pair(planes=2, evs=8, reverse=policy.REVERSE_PROBED)
    data(pair, 0)
    pair.plane(1, qp=1).reverse_known = 1
    before = int(pair.plane(1, qp=1).reverse_ev)
    answers = []
    for k in range(4):
        (answer,) = pair.inject(1, pk.PROBE, ack_offset=7 + k, plane=1, ev=pair.ev(1, 2 + k))
        answers.append(int(answer.ev))
        assert answer.plane == 1
        if between:
            data(pair, 1 + k)
    assert answers[0] == before
    assert (len(set(answers)) > 1) == several


@long
def test_row_14_a_dead_reverse_path_is_left() -> None:
    pair = Pair(planes=2, evs=8)
    pair.cut(ev=pair.ev(0, 0), src=1)
    pair.plane(0, qp=1).reverse_known = 1
    pair.post(900 * 4096)
    pair.drive()
    pair.assert_intact()
    assert pair.plane(0, qp=1).reverse_ev != pair.ev(0, 0)
    lost = pair.dropped["sack"]
    assert 0 < lost < 0.3 * pair.sent["sack"]
    assert pair.sent["rtx"] == 0


@long
def test_row_14_own_data_keeps_the_reverse_evs_fresh() -> None:
    """Both ends send, so nobody probes. The path on which end 1 answers dies on its way: its own
    data finds another.
    """
    pair = Pair(planes=2, evs=8)
    pair.cut(ev=pair.ev(0, 0), src=1)
    pair.post(600 * 4096, src=0)
    pair.post(600 * 4096, src=1)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["request"] == 0
    assert pair.plane(0, qp=1).reverse_ev != pair.ev(0, 0)
    late = [x for x in pair.packets("sack", "ack", src=1) if x.p.ev == pair.ev(0, 0)]
    assert all(x.at < 10 * pair.rtt for x in late)


def test_row_14_a_marked_path_does_not_become_the_reverse_path() -> None:
    pair = Pair(planes=1, evs=4)
    pair.post(4 * 4096)
    pair.drive()
    before = int(pair.plane(0).reverse_ev)
    pair.sack(3, m=pk.M_SKIP_ONCE, entropy=pair.ev(0, 1), rcvd_units=int(pair.q.rcvd_high))
    assert pair.plane(0).reverse_ev == before


def test_row_14_a_plane_whose_own_or_remote_port_is_down_is_left_out() -> None:
    pair = Pair(planes=4)
    pair.port(1, 2, up=False)
    pair.run_out()
    pair.port(0, 1, up=False)
    pair.run_out()
    start = pair.now
    pair.post(200 * 4096)
    pair.drive()
    pair.assert_intact()
    assert {int(x.p.plane) for x in pair.packets("sack", "ack", since=start)} == {0, 3}


@long
def test_row_14_the_budget_holds_reverse_probes_too() -> None:
    pair = Pair(planes=1, evs=4, rate_gbps=10)
    pair.post(900 * 4096)
    pair.drive()
    requests = [x.at for x in pair.packets("request")]
    rate = float(pair.st.nic[1].probe_rate[probes.OF_PATHS])
    assert len(requests) <= 17 + rate * (requests[-1] - requests[0])


def test_row_14_a_plane_dead_on_the_way_back_hides_no_ack() -> None:
    """Two planes, two answers to each probe: the ACK must not take the dead plane every time."""
    pair = Pair(planes=2, evs=1)
    pair.cut(plane=0, src=1)
    for _ in range(10):
        pair.post(4096)
        pair.drive(limit_us=10_000)
    pair.assert_intact()
    assert len(pair.done()) == 10


def test_sprayed_answers_take_every_path_of_their_plane_and_no_other() -> None:
    pair = Pair(planes=2, evs=4, reverse=policy.REVERSE_SPRAYED)
    pair.post(400 * 4096)
    pair.drive()
    pair.assert_intact()
    ways = {(int(x.p.plane), int(x.p.ev)) for x in pair.packets("sack")}
    assert ways == {(plane, pair.ev(plane, k)) for plane in range(2) for k in range(4)}


@long
def test_row_14_off_in_peer_runs() -> None:
    """Fixed or random EVs: no probes."""
    for reverse in (policy.REVERSE_FIXED, policy.REVERSE_RANDOM):
        pair = Pair(planes=1, reverse=reverse)
        pair.post(200 * 4096)
        pair.drive()
        pair.assert_intact()
        assert pair.sent["request"] == 0
        evs = {int(x.p.ev) for x in pair.packets("sack")}
        assert (len(evs) == 1) == (reverse == policy.REVERSE_FIXED)


def test_row_14_what_a_check_found_dead_is_no_way_back() -> None:
    """Not at first, and not where the peer's probes say that answers are lost."""
    pair = Pair(planes=2, evs=4, check_paths=True)
    dead = {(plane, pair.ev(plane, k)) for plane in (0, 1) for k in (0, 2)}
    for _, ev in dead:
        pair.cut(ev=ev, src=1)
    pair.until(lambda: [pair.plane(p, qp=1).n_good for p in (0, 1)] == [2, 2])
    since = pair.now + 1
    pair.post(40 * 4096)
    pair.drive()
    for k in range(20):
        for plane in (0, 1):
            pair.inject(1, pk.PROBE, ack_offset=8, plane=plane, ev=pair.ev(plane, k % 4))
    back = {(int(x.p.plane), int(x.p.ev)) for x in pair.packets("sack", "ack", src=1, since=since)}
    assert len(back) == 4
    assert not back & dead
    pair.assert_intact()


# --- denylists


def on_the_way_back(pair: Pair, since: int) -> set[tuple[int, int]]:
    """(plane, EV) of all that the receiver sent from a time on."""
    return {(int(x.p.plane), int(x.p.ev)) for x in pair.log if x.at >= since and x.p.src == 1}


@long
def test_control_packets_leave_an_ev_that_is_denied_at_once() -> None:
    pair = Pair(planes=2, evs=4)
    pair.post(400 * 4096)
    pair.until(lambda: pair.sent["sack"] >= 20)
    used = int(pair.plane(0, qp=1).reverse_ev)
    keys = [pair.ev(0, k) for k in range(4)]
    pair.deny(0, keys.index(used), nic=1)
    since = pair.now + 1
    pair.drive()
    back = on_the_way_back(pair, since)
    assert (0, used) not in back
    assert {plane for plane, _ in back} == {0, 1}
    pair.assert_intact()


def test_a_probe_of_a_path_that_was_denied_since_makes_no_reverse_ev() -> None:
    pair = Pair(planes=2, evs=8)
    pair.post(100 * 4096)
    pair.until(lambda: pair.sent["request"] == 1)
    (request,) = pair.packets("request")
    tried, on = int(request.p.ev), int(request.p.plane)
    pair.deny(on, [pair.ev(on, k) for k in range(8)].index(tried), nic=1)
    pair.drive()
    assert pair.plane(on, qp=1).reverse_ev != tried
    assert (on, tried) not in on_the_way_back(pair, request.at + 1)


@long
def test_control_packets_leave_a_plane_that_is_denied_altogether_and_come_back() -> None:
    pair = Pair(planes=2, evs=4)
    pair.post(300 * 4096)
    pair.until(lambda: pair.sent["sack"] >= 20)
    for k in range(4):
        pair.deny(0, k, nic=1)
    assert pair.st.qp[1].planes_denied == 0b01
    since = pair.now + 1
    pair.drive()
    assert {plane for plane, _ in on_the_way_back(pair, since)} == {1}
    pair.deny(0, 2, denied=False, nic=1)
    assert pair.st.qp[1].planes_denied == 0
    assert pair.plane(0, qp=1).reverse_ev == pair.ev(0, 2)
    since = pair.now + 1
    pair.post(300 * 4096)
    pair.drive()
    back = on_the_way_back(pair, since)
    assert {plane for plane, _ in back} == {0, 1}
    assert {ev for plane, ev in back if plane == 0} == {pair.ev(0, 2)}
    pair.assert_intact()


def test_where_every_plane_is_denied_control_packets_take_them_all_the_same() -> None:
    """The peer must hear that its data came, or it would send it again for ever."""
    pair = Pair(planes=2, evs=2)
    for plane in (0, 1):
        for k in (0, 1):
            pair.deny(plane, k, nic=1)
    pair.post(50 * 4096)
    pair.drive()
    pair.assert_intact()
    assert {plane for plane, _ in on_the_way_back(pair, 0)} == {0, 1}


@long
def test_row_14_a_probe_asks_of_another_path_than_the_one_in_use() -> None:
    pair = Pair(planes=1, evs=3)
    pair.cut(kind="response")
    pair.plane(0, qp=1).reverse_ev = pair.ev(0, 1)
    pair.plane(0, qp=1).reverse_known = 1
    pair.post(600 * 4096)
    pair.drive()
    tried = [int(x.p.ev) for x in pair.packets("request")]
    assert len(tried) > 10
    assert set(tried) == {pair.ev(0, 0), pair.ev(0, 2)}


def answers(pair: Pair, n: int = 60, **more: int) -> set[int]:
    """The EVs that end 0 takes to answer so many EV probes."""
    fields = {"reason": pk.OP_EV_PROBE, "src": 1, "plane": 0, **more}
    sent = [pair.inject(0, pk.ENDPOINT_REQUEST, psn=i, **fields) for i in range(n)]
    return {int(p.ev) for emitted in sent for p in emitted}


def test_row_14_a_probe_is_answered_by_a_path_that_is_in_service() -> None:
    """An answer by a path that is known to be dead would make a good one look dead."""
    pair = Pair(planes=1, evs=4)
    pair.cut(ev=pair.ev(0, 0), src=0)
    pair.cut(ev=pair.ev(0, 2), src=0)
    pair.post(600 * 4096)
    pair.until(lambda: pair.q.una > 300)
    assert [pair.path_state(0, k) for k in range(4)].count("ASSUMED_BAD") == 2
    assert answers(pair) == {pair.ev(0, 1), pair.ev(0, 3)}


def test_a_controller_s_probe_is_answered_on_its_path_whatever_is_known_of_it() -> None:
    """What is asked is one path, both ways: an answer by another would tell of two at once."""
    pair = Pair(planes=1, evs=4)
    pair.cut(ev=pair.ev(0, 0), src=0)
    pair.post(600 * 4096)
    pair.until(lambda: pair.q.una > 300)
    assert pair.path_state(0, 0) == "ASSUMED_BAD"
    for k in range(4):
        assert answers(pair, 20, ev=pair.ev(0, k), m=pk.SAME_EV) == {pair.ev(0, k)}


def test_row_14_what_is_known_of_paths_is_not_relied_on_when_nothing_is_heard() -> None:
    """An RTO after the last delivery the paths in service may be the dead ones: any is tried."""
    pair = Pair(planes=1, evs=4)
    pair.cut(ev=pair.ev(0, 0), src=0)
    pair.post(600 * 4096)
    pair.until(lambda: pair.q.una > 300)
    assert pair.path_state(0, 0) == "ASSUMED_BAD"
    pair.plane(0).heard_at -= pair.rto
    assert answers(pair) == {pair.ev(0, k) for k in range(4)}
