"""What a controller states of paths and windows, and asks: the engine's part of `mrc_ctl.h`."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.engine import endpoint, setup
from openmrc.engine import packet as pk
from openmrc.engine import state as es
from openmrc.engine.ev import ASSUMED_BAD, DENIED, GOOD
from tests.engine.pair import Pair, on_packet


def declare(pair: Pair, plane: int, k: int, state: int) -> None:
    endpoint.declare(pair.st, pair.q, pair.ev_index(plane, k), state, pair.now)


def sent_on(pair: Pair, since: int) -> set[int]:
    return {int(x.p.ev) for x in pair.packets("data", "rtx", since=since)}


def test_what_is_declared_bad_is_probed_and_returns() -> None:
    pair = Pair(planes=2, evs=4)
    pair.post(40 * 4096)
    pair.advance(us=4)
    declare(pair, 0, 1, ASSUMED_BAD)
    assert pair.path_states(0) == "GAGG"
    pair.drive()
    pair.assert_intact()
    pair.advance(us=40)  # the answer
    assert (pair.path_states(0), pair.sent["probe"]) == ("GGGG", 1)


def test_what_is_declared_denied_is_used_again_when_it_is_good() -> None:
    pair = Pair(planes=2, evs=4)
    declare(pair, 0, 1, DENIED)
    pair.post(80 * 4096)
    pair.drive()
    assert pair.ev(0, 1) not in sent_on(pair, 0)
    declare(pair, 0, 1, GOOD)
    again = pair.now
    pair.post(80 * 4096)
    pair.drive()
    assert pair.ev(0, 1) in sent_on(pair, again)
    pair.assert_intact()


def test_the_last_usable_path_of_a_plane_is_not_declared_bad() -> None:
    pair = Pair(planes=2, evs=2)
    for k in range(2):
        declare(pair, 0, k, ASSUMED_BAD)
    assert pair.path_states(0) == "AG"
    declare(pair, 0, 0, GOOD)
    assert pair.path_states(0) == "GG"


def test_a_replaced_path_takes_over_at_once_and_packets_in_flight_are_no_losses() -> None:
    pair = Pair(planes=2, evs=2)
    pair.post(200 * 4096)
    pair.advance(us=6)
    before, new = pair.now, (0 << 16) | 0x77
    endpoint.replace(pair.st, pair.q, pair.ev_index(0, 0), new, pair.now)
    pair.drive()
    pair.assert_intact()
    assert pair.ev(0, 0) not in sent_on(pair, before)
    assert new in sent_on(pair, before)
    assert (pair.sent["rtx"], int(pair.q.n_bad_total)) == (0, 0)


def test_losses_from_before_are_not_the_new_path_s() -> None:
    pair = Pair(planes=2, evs=4)
    pair.cut(plane=0, ev=pair.ev(0, 0))
    pair.post(60 * 4096)
    pair.advance(us=6)
    endpoint.replace(pair.st, pair.q, pair.ev_index(0, 0), 0x77, pair.now)
    pair.drive()
    pair.assert_intact()
    assert pair.sent["rtx"] > 0
    assert pair.path_states(0) == "GGGG"


@pytest.mark.parametrize(("keep", "usable"), [(25, 1), (75, 3)])
def test_row_12_a_plane_keeps_the_part_of_its_paths_that_is_asked(keep: int, usable: int) -> None:
    pair = Pair(planes=1, evs=4)
    setup.keep_in_service(pair.st, 0, keep)
    pair.post(4096)
    pair.drive()  # it delivers
    for k in range(3):
        declare(pair, 0, k, ASSUMED_BAD)
    assert pair.path_states(0).count("G") == usable


def test_control_packets_take_no_plane_without_paths() -> None:
    pair = Pair(planes=2, evs=2)
    pair.plane(1).n_evs = 0
    setup.use_no_plane_without_paths(pair.st, 0)
    assert int(pair.q.planes_denied) == 0b10


def test_a_stranger_s_probe_is_answered_on_its_path_and_nothing_else_of_it() -> None:
    pair = Pair(planes=2)
    p = pair.st.out[es.OUT_MAX - 1]
    for name in p.dtype.names:
        p[name] = 0
    p.opcode, p.dst_qpn, p.reason = pk.ENDPOINT_REQUEST, pk.ENDPOINT_QPN, pk.OP_EV_PROBE
    p.src, p.dst, p.plane, p.ev, p.psn = 7, 0, 1, 0x1234, 99
    on_packet(pair.st, 0, endpoint.NOBODY, p, 1000)
    assert pair.st.count[es.OUT] == 1
    answer = pair.st.out[0]
    found = (answer.opcode, answer.dst, answer.plane, answer.ev, answer.psn)
    assert found == (pk.ENDPOINT_RESPONSE, 7, 1, 0x1234, 99)
    pair.st.count[es.OUT] = 0
    p.reason, p.imm = pk.OP_PORT_STATUS, 2
    on_packet(pair.st, 0, endpoint.NOBODY, p, 1000)
    assert pair.st.count[es.OUT] == 0


def test_a_window_obeys_a_record_and_returns_to_what_is_derived() -> None:
    pair = Pair(planes=2)
    rate = 2 * pair.rate_bps
    derived = setup.derived_nscc(pair.st, rate)
    before = float(pair.q.max_wnd)
    assert derived["max_wnd"] == before
    setup.set_nscc(pair.st, 1, **{**derived, "max_wnd": 20_000.0, "target": 5_000_000})
    setup.obey_nscc(pair.st, 0, 1, 0)
    assert (pair.q.max_wnd, pair.q.cwnd, pair.q.target) == (20_000.0, 20_000.0, 5_000_000)
    pair.post(60 * 4096)
    pair.drive()
    pair.assert_intact()
    pair.port(0, 1, up=False)  # the constants are computed again
    assert pair.q.max_wnd == 20_000.0
    pair.port(0, 1, up=True)
    setup.obey_nscc(pair.st, 0, 0, pair.now)
    assert pair.q.max_wnd == before
    assert float(np.asarray(pair.q.cwnd)) <= before
