"""What ports count, as one likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmrc.ops.diagnose.counters import counters, unanswered
from tests.ops.diagnose.made import FABRIC, Bad, component, seen


def test_what_went_into_a_switch_and_did_not_come_out_is_missing_there() -> None:
    cut = component("plane 1 t0 2 > t1 3")
    observed = seen(Bad(cut.ports))
    found = counters(observed)
    at = int(FABRIC.port_peer_switch[cut.ports[0]])
    assert FABRIC.switch_name(at) == "plane 1 t1 3"
    assert found.counts[at] == len(observed.lost)
    assert found.counts.sum() == len(observed.lost)


def test_what_a_nic_does_not_get_is_missing_nowhere() -> None:
    assert counters(seen(Bad(component("nic 5 plane 0 < t0").ports))).counts.sum() == 0


def test_counts_speak_for_what_moves_them_and_against_what_moves_others() -> None:
    cut = component("plane 1 t0 2 > t1 3")
    observed = seen(Bad(cut.ports))
    found, n = counters(observed), len(observed.lost)
    own, other = np.zeros((2, len(found.counts)))
    own[int(FABRIC.port_peer_switch[cut.ports[0]])] = n
    other[0] = n
    assert found.nats(found.usual, own) >= 10
    assert found.nats(found.usual, other) < -20
    assert found.at_most([cut])[0] >= found.nats(found.usual, own)


def test_what_may_be_under_way_is_not_missing() -> None:
    """As many as went into a switch within a round trip of the end."""
    cut = component("plane 1 t0 2 > t1 3")
    done, cut_short = (counters(seen(Bad(cut.ports), quiet=it)) for it in (1, 0))
    at = int(FABRIC.port_peer_switch[cut.ports[0]])
    assert cut_short.usual[at] > 20 > done.usual[at] == 1
    assert cut_short.at_most([cut])[0] < done.at_most([cut])[0]


def test_of_a_run_that_is_over_nothing_is_under_way() -> None:
    stopped = seen(Bad(component("plane 1 t0 2 > t1 3").ports), quiet=0)
    assert counters(replace(stopped, over=True)).usual.max() == 1 < counters(stopped).usual.max()


def test_what_a_port_did_not_send_nobody_answered() -> None:
    """So it is not the other direction of that link which lost the answers."""
    port = component("nic 5 plane 0 < t0").ports[0]
    observed = seen(Bad((port,), 0.0, 1e9))
    there = (observed.lost.routes == port).any(axis=1)
    assert (unanswered(observed).back == observed.lost.back).all()
    out = observed.out.copy()
    out[:, port] = 0
    found = unanswered(replace(observed, out=out)).back
    assert (found[there] == -1).all()
    assert (found[~there] == observed.lost.back[~there]).all()


def test_a_nic_that_damages_what_it_sends_damages_answers_too() -> None:
    row, n = component("nic 5 plane 0 > t0"), FABRIC.n_switches
    observed = seen(Bad(row.ports, every=5))
    lost = observed.lost
    damaged = np.zeros_like(observed.damaged)
    last = lost.routes[np.arange(len(lost)), (lost.routes >= 0).sum(axis=1) - 1]
    np.add.at(damaged[6], last, 1)
    answered = component("nic 2 plane 0 < t0").ports[0]
    damaged[6, answered] = len(lost) // 3
    found = counters(replace(observed, damaged=damaged))
    bins, weight = observed.bin_of(lost.sent_us), np.ones(len(lost))
    moved = found.expected(row, lost.routes, bins, weight, False, found.usual)
    assert moved[n + answered] > 0
    far = component("nic 8 plane 0 < t0")
    assert found.expected(far, lost.routes, bins, weight, False, found.usual)[n + answered] == 0


def test_what_arrives_damaged_is_counted_by_who_gets_it() -> None:
    observed = seen(Bad(component("nic 5 plane 0 < t0").ports, every=5))
    port = component("nic 5 plane 0 < t0").ports[0]
    damaged = np.zeros_like(observed.damaged)
    damaged[6, port] = len(observed.lost)
    found = counters(replace(observed, damaged=damaged))
    row = component("nic 5 plane 0 < t0")
    weight = np.ones(len(observed.lost))
    bins = observed.bin_of(observed.lost.sent_us)
    moved = found.expected(row, observed.lost.routes, bins, weight, False, found.usual)
    assert moved[FABRIC.n_switches + port] == moved.sum() == len(observed.lost)
