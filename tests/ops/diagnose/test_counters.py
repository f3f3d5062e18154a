"""What ports count, as one likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmrc.ops.diagnose.counters import counters, last_ports, unanswered
from tests.ops.diagnose.made import FABRIC, Bad, component, seen

CUT = component("plane 1 t0 2 > t1 3")
LINK = FABRIC.n_switches + CUT.ports[0]  # the count of what is missing on it


def test_what_the_other_end_of_a_link_did_not_get_is_missing_there() -> None:
    observed = seen(Bad(CUT.ports))
    found = counters(observed)
    assert found.counts[LINK] == found.counts.sum() == len(observed.lost)


def test_what_went_into_a_switch_and_did_not_come_out_is_missing_there() -> None:
    cut = seen(Bad(CUT.ports))
    observed = replace(cut, out=cut.out - cut.gone, gone=0 * cut.gone)  # its port is down
    found = counters(observed)
    at = int(FABRIC.port_switch[CUT.ports[0]])
    assert FABRIC.switch_name(at) == "plane 1 t0 2"
    assert found.counts[at] == found.counts.sum() == len(observed.lost)


def test_what_waits_in_a_queue_is_not_missing() -> None:
    """It comes out later."""
    observed = seen()
    later = np.zeros_like(observed.out)
    later[1:] = observed.out[:-1]
    port = component("plane 1 t0 2 < t1 3").ports[0]
    observed.out[:, port] = later[:, port]
    assert counters(observed).counts.sum() == 0


def test_counts_speak_for_what_moves_them_and_against_what_moves_others() -> None:
    observed = seen(Bad(CUT.ports))
    found, n = counters(observed), len(observed.lost)
    own, other = np.zeros((2, len(found.counts)))
    own[LINK] = n
    other[0] = n
    assert found.nats(found.usual, own) >= 10
    assert found.nats(found.usual, other) < -20
    of, count = found.moved_by([CUT])
    assert found.at_most(found.usual, of, count, 1)[0] >= found.nats(found.usual, own)
    assert found.at_most(found.usual + own, of, count, 1)[0] < 1


def test_what_may_be_under_way_is_not_missing() -> None:
    """As many as went into a switch within a round trip of the end."""
    done, stopped = (counters(seen(Bad(CUT.ports), quiet=it)) for it in (1, 0))
    at = int(FABRIC.port_peer_switch[CUT.ports[0]])
    assert stopped.usual[at] > 20 > done.usual[at] == 1


def test_of_a_run_that_is_over_nothing_is_under_way() -> None:
    stopped = seen(Bad(component("plane 1 t0 2 > t1 3").ports), quiet=0)
    assert counters(replace(stopped, over=True)).usual.max() == 1 < counters(stopped).usual.max()


def test_an_answer_that_is_missing_nowhere_was_not_lost_there() -> None:
    port = component("nic 5 plane 0 < t0").ports[0]
    observed = seen(Bad((port,), 0.0, 1e9))
    back = unanswered(observed).back
    assert {*back[back >= 0].tolist()} == {port} < {*observed.lost.back.ravel().tolist()}


def test_what_a_port_did_not_send_nobody_answered() -> None:
    """So it is not the other direction of that link which lost the answers."""
    port = component("nic 5 plane 0 < t0").ports[0]
    observed = seen(Bad((port,), 0.0, 1e9))
    there = (observed.lost.routes == port).any(axis=1)
    out = observed.out.copy()
    out[:, [port, FABRIC.port_reverse[port]]] = 0
    found = unanswered(replace(observed, out=out)).back
    assert (found[there] == -1).all()
    assert (found[~there] == port).any()


def test_a_nic_that_damages_what_it_sends_damages_answers_too() -> None:
    row, n = component("nic 5 plane 0 > t0"), FABRIC.n_switches + FABRIC.n_ports
    observed = seen(Bad(row.ports, every=5))
    lost = observed.lost
    damaged = np.zeros_like(observed.damaged)
    last = lost.routes[np.arange(len(lost)), (lost.routes >= 0).sum(axis=1) - 1]
    np.add.at(damaged[6], last, 1)
    answered = component("nic 2 plane 0 < t0").ports[0]
    damaged[6, answered] = len(lost) // 3
    found = counters(replace(observed, damaged=damaged))
    weight = np.ones(len(lost))
    moved = found.expected(row, lost.routes, weight, False, False, found.usual)
    assert moved[n + answered] > 0
    far = component("nic 8 plane 0 < t0")
    assert found.expected(far, lost.routes, weight, False, False, found.usual)[n + answered] == 0


def test_what_arrives_damaged_is_counted_by_who_gets_it() -> None:
    observed = seen(Bad(component("nic 5 plane 0 < t0").ports, every=5))
    port = component("nic 5 plane 0 < t0").ports[0]
    damaged = np.zeros_like(observed.damaged)
    damaged[6, port] = len(observed.lost)
    found = counters(replace(observed, damaged=damaged))
    row = component("nic 5 plane 0 < t0")
    weight = np.ones(len(observed.lost))
    moved = found.expected(row, observed.lost.routes, weight, False, False, found.usual)
    assert moved[FABRIC.n_switches + FABRIC.n_ports + port] == moved.sum() == len(observed.lost)


def test_what_crosses_a_port_ends_below_it_or_where_it_goes_up_elsewhere() -> None:
    for where, nics in (
        ("plane 1 t0 2 > t1 0", [*range(8), *range(12, 16)]),
        ("plane 1 t0 2 < t1 0", [8, 9, 10, 11]),
        ("nic 9 plane 1 < t0", [9]),
        ("nic 9 plane 1 > t0", [*range(9), *range(10, 16)]),
    ):
        ends = last_ports(FABRIC, np.array(component(where).ports))
        assert FABRIC.port_peer_nic[ends].tolist() == nics
        assert (FABRIC.port_reverse[ends] % FABRIC.n_planes == 1).all()
