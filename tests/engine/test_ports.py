"""Ports that go down and come back, at either end (row 19, MRC 3.10)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openmrc.engine import packet as pk
from openmrc.engine import state as es
from tests.engine.cases import long
from tests.engine.pair import US, Logged, Pair, S


def statuses(pair: Pair, src: int = 0, since: int = 0) -> list[Logged]:
    """The Port Status Updates that an endpoint sent."""
    requests = pair.packets("request", src=src, since=since)
    return [x for x in requests if x.p.reason == pk.OP_PORT_STATUS]


def test_row_19_a_local_port_down_leaves_the_turn_at_once() -> None:
    pair = Pair(planes=4)
    pair.post(400 * 4096)
    pair.advance(us=20)
    pair.port(0, 2, up=False)
    down = pair.now
    pair.drive()
    pair.assert_intact()
    assert {int(x.p.plane) for x in pair.packets("data", "rtx", since=down)} == {0, 1, 3}


def portless(post_at_rtos: float) -> Pair:
    """Both ports of NIC 0 are down; a message is posted so many RTOs later."""
    pair = Pair(planes=2, rto_exponent=6, linear_cnt=2, exp_cnt=1)
    for plane in range(2):
        pair.port(0, plane, up=False)
    pair.advance(us=post_at_rtos * pair.rto / US)
    pair.post(4096)
    return pair


@pytest.mark.parametrize(("post_at_rtos", "looked_at_ps"), [(0.5, 0), (1.5, S)])
def test_row_09_what_no_port_can_send_fails_as_what_was_sent_does(
    post_at_rtos: float, looked_at_ps: int
) -> None:
    """The clock starts with the ports, and looks each second whether there is anything to send."""
    pair = portless(post_at_rtos)
    pair.drive(limit_us=2 * S / US, errors=True)
    assert pair.error() == "retry counter exceeded"
    assert pair.sent["data"] == 0
    assert (pair.q.n_epochs, pair.q.n_timeouts) == (3, 0)
    assert pair.q.error_at == looked_at_ps + (1 + 1 + 2) * pair.rto


def test_row_19_a_port_that_comes_back_before_that_sends_what_was_queued() -> None:
    pair = portless(0.5)
    pair.advance(us=3 * pair.rto / US)
    pair.port(0, 1, up=True)
    pair.drive()
    pair.assert_intact()
    assert (pair.q.n_epochs, pair.q.epoch) == (2, 0)


def test_row_19_the_peer_is_told_and_leaves_the_plane_too() -> None:
    pair = Pair(planes=4)
    pair.port(0, 2, up=False)
    pair.run_out()
    (status,) = statuses(pair)
    assert (status.at, status.p.imm) == (0, 0b1011)
    assert status.p.plane != 2
    (response,) = pair.packets("response", src=1)
    assert (response.p.psn, response.p.reason) == (status.p.psn, pk.OP_PORT_STATUS)
    assert pair.r.planes_ok == 0b1011
    pair.post(100 * 4096, src=1)
    pair.drive()
    assert {int(x.p.plane) for x in pair.packets("data")} == {0, 1, 3}


def test_row_19_a_status_is_repeated_each_rto_doubling_to_a_second_until_answered() -> None:
    pair = Pair(planes=4)
    pair.cut(kind="request")
    pair.port(0, 2, up=False)
    pair.advance(us=6 * S / US)
    at = [x.at for x in statuses(pair)]
    gaps = [b - a for a, b in pairwise(at)]
    doubling = [min(pair.rto << n, S) for n in range(len(gaps))]
    assert gaps == doubling
    assert gaps[-1] == S
    assert len({int(x.p.psn) for x in statuses(pair)}) == 1, "the same request"
    assert len({int(x.p.plane) for x in statuses(pair)}) == 3, "over all planes left"


@pytest.mark.parametrize("lost", ["request", "response"])
def test_row_19_lost_port_updates_are_survived(lost: str) -> None:
    pair = Pair(planes=4)
    pair.drop(next=3, kind=lost)
    pair.port(0, 2, up=False)
    pair.advance(us=20_000)
    assert pair.dropped[lost] == 3
    assert len(statuses(pair)) == 4
    assert pair.r.planes_ok == 0b1011
    assert pair.st.peer[0].pending == 0


def test_row_19_once_a_second_while_any_port_is_down() -> None:
    pair = Pair(planes=4)
    pair.port(0, 2, up=False)
    pair.advance(us=3.5 * S / US)
    at = [x.at for x in statuses(pair)]
    assert len(at) == 4
    assert all(S <= b - a <= S + 2 * pair.rtt for a, b in pairwise(at))
    pair.port(0, 2, up=True)
    pair.run_out()
    assert statuses(pair)[-1].p.imm == 0b1111
    n = len(statuses(pair))
    pair.advance(us=3 * S / US)
    assert len(statuses(pair)) == n


def test_row_19_up_again_both_ends_use_the_plane_again() -> None:
    pair = Pair(planes=2)
    pair.port(0, 1, up=False)
    pair.run_out()
    pair.port(0, 1, up=True)
    pair.run_out()
    assert (pair.q.planes_ok, pair.r.planes_ok) == (0b11, 0b11)
    pair.post(100 * 4096)
    pair.post(100 * 4096, src=1)
    pair.drive()
    for src in (0, 1):
        planes = [int(x.p.plane) for x in pair.packets("data", src=src)]
        assert abs(planes.count(0) - planes.count(1)) <= 2


def test_row_19_a_plane_that_comes_back_owes_nothing() -> None:
    """It starts level with the others: no burst to make up for its absence."""
    pair = Pair(planes=2)
    pair.port(0, 1, up=False)
    pair.post(100 * 4096)
    pair.drive()
    pair.port(0, 1, up=True)
    pair.run_out()
    back = pair.now
    pair.post(20 * 4096)
    pair.drive()
    planes = [int(x.p.plane) for x in pair.packets("data", since=back)]
    assert abs(planes.count(0) - planes.count(1)) <= 2


def test_row_19_a_plane_marked_remote_down_is_probed_once_a_second_and_an_answer_lifts_it() -> None:
    """The news that the port is up again is lost for good."""
    pair = Pair(planes=2)
    pair.port(1, 1, up=False)
    pair.run_out()
    assert pair.q.planes_ok == 0b01
    told = pair.now
    lost = pair.cut(kind="request", src=1)
    pair.advance(us=2.5 * S / US)
    probes = [x for x in pair.packets("request", src=0) if x.p.reason == pk.OP_EV_PROBE]
    assert len(probes) == 2
    assert all(int(x.p.plane) == 1 for x in probes)
    assert probes[1].at - probes[0].at == S
    assert pair.q.planes_ok == 0b01
    pair.port(1, 1, up=True)
    pair.until(lambda: pair.q.planes_ok == 0b11, limit_us=1.1 * S / US)
    assert pair.now - told <= 3 * S + 10 * pair.rtt
    pair.heal(lost)


def test_row_19_losses_on_a_port_known_down_blame_no_path() -> None:
    pair = Pair(planes=2, evs=4)
    pair.post(100 * 4096)
    pair.advance(us=5)
    pair.port(0, 1, up=False)
    pair.drive()
    pair.assert_intact()
    assert pair.path_states(1) == "GGGG"
    assert pair.q.n_bad_total == 0


def test_row_19_the_windows_constants_follow_the_ports() -> None:
    pair = Pair(planes=8, evs=2)
    full = float(pair.q.max_wnd)
    for port in range(4):
        pair.port(0, port, up=False)
    assert pair.q.max_wnd == full / 2
    assert pair.q.cwnd == full / 2, "clamped"
    pair.run_out()
    assert pair.r.max_wnd == full / 2
    for port in range(4):
        pair.port(0, port, up=True)
    assert pair.q.max_wnd == full
    assert pair.q.cwnd == full / 2, "and it grows back by itself"


@long
def test_row_19_the_peers_port_goes_down_under_a_stream() -> None:
    pair = Pair(planes=4, evs=4)
    pair.post(600 * 4096)
    pair.advance(us=20)
    pair.port(1, 2, up=False)
    down = pair.now
    pair.drive()
    pair.assert_intact()
    late = [x.at for x in pair.packets("data", "rtx", since=down) if x.p.plane == 2]
    assert late[-1] - down <= pair.rtt
    assert pair.q.n_epochs == 0


def test_row_19_no_port_left_waits_for_one() -> None:
    pair = Pair(planes=2, rto_exponent=6)
    pair.port(0, 0, up=False)
    pair.port(0, 1, up=False)
    pair.post(50 * 4096)
    pair.advance(us=500)
    assert pair.sent["data"] == 0
    pair.port(0, 1, up=True)
    pair.drive()
    pair.assert_intact()
    assert pair.q.state == es.RTS


def test_row_19_a_request_from_a_stranger_is_ignored() -> None:
    pair = Pair()
    assert pair.inject(1, pk.ENDPOINT_REQUEST, src=5, imm=0) == []
    assert pair.inject(1, pk.ENDPOINT_RESPONSE, src=5) == []
    assert pair.r.planes_ok == 0b11


def test_row_19_a_response_to_an_older_request_does_not_end_the_repeats() -> None:
    pair = Pair(planes=2)
    pair.cut(kind="response")
    pair.port(0, 1, up=False)
    first = int(statuses(pair)[0].p.psn) if statuses(pair) else 1
    pair.port(0, 1, up=True)
    pair.advance(us=1)
    pair.inject(0, pk.ENDPOINT_RESPONSE, psn=first, reason=pk.OP_PORT_STATUS)
    assert pair.st.peer[0].pending == 1
    pair.heal()
    pair.advance(us=1000)
    assert pair.st.peer[0].pending == 0
    assert pair.r.planes_ok == 0b11
