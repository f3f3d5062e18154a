"""What ports count, as one likelihood."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from openmrc.ops.diagnose.counters import counters
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
    assert found.at_most(cut) >= found.nats(found.usual, own)


def test_while_packets_are_under_way_counts_speak_for_nothing() -> None:
    cut = component("plane 1 t0 2 > t1 3")
    found = counters(replace(seen(Bad(cut.ports)), drained=False))
    more = np.zeros(len(found.counts))
    more[int(FABRIC.port_peer_switch[cut.ports[0]])] = 100
    assert found.nats(found.usual, more) <= 0
    assert found.at_most(cut) == 0


def test_what_arrives_damaged_is_counted_by_who_gets_it() -> None:
    observed = seen(Bad(component("nic 5 plane 0 < t0").ports, every=5))
    port = component("nic 5 plane 0 < t0").ports[0]
    damaged = np.zeros_like(observed.damaged)
    damaged[6, port] = len(observed.lost)
    found = counters(replace(observed, damaged=damaged))
    row = component("nic 5 plane 0 < t0")
    weight = np.ones(len(observed.lost))
    moved = found.expected(row, observed.lost.routes, weight, False, found.usual)
    assert moved[FABRIC.n_switches + port] == moved.sum() == len(observed.lost)
