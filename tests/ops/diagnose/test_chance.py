"""How probable a loss is where nothing broke."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.ops.diagnose import chance
from openmrc.ops.diagnose.observed import Observed
from openmrc.ops.diagnose.reading import joined
from tests.ops.diagnose.made import RTT_US, Bad, component, seen, told

NIC = component("nic 5 plane 0 < t0")


def gray() -> Observed:
    return seen(Bad(NIC.ports, 10.0, 190.0, 10))


def test_a_loss_among_packets_that_pass_is_hardly_chance() -> None:
    observed = gray()
    assert np.median(chance.of_losses(observed, observed.lost)) < -8


def test_where_queues_dropped_as_many_it_is_chance() -> None:
    observed = gray()
    full = replace(
        observed, dropped=observed.gone, gone=0 * observed.gone, out=observed.out - observed.gone
    )
    assert chance.of_losses(full, full.lost).min() > -1


def test_where_no_port_misses_any_it_is_late() -> None:
    observed = gray()
    late = replace(observed, gone=np.zeros_like(observed.gone))
    assert chance.of_losses(late, late.lost).min() > -0.1


def test_of_what_is_lost_at_two_places_each_misses_its_part() -> None:
    """A packet is missing at one of them."""
    link = component("plane 1 t0 2 > t1 3")
    observed = gray()
    gone = observed.gone / 2
    gone[:, link.ports[0]] = gone[:, NIC.ports[0]]
    routes = observed.lost.routes.copy()
    routes[:, 0] = link.ports[0]
    both = replace(observed, gone=gone, lost=replace(observed.lost, routes=routes))
    assert np.median(chance.of_losses(both, both.lost)) < -8


def test_what_waited_in_a_switch_is_missing_there_sooner_and_once() -> None:
    link = component("plane 1 t0 2 > t1 3")
    cut = seen(Bad(link.ports, 100.0, 120.0))
    (port,) = link.ports
    out = cut.out.copy()
    out[:, port] = np.append(out[5:, port], np.zeros(5))  # it came into the T1 five ticks before
    out[0, port] += cut.out[:5, port].sum()
    observed = replace(cut, gone=0 * cut.gone, out=out)
    lost, later = cut.lost, replace(cut.lost, sent_us=cut.lost.sent_us + 50.0)
    both = joined(lost, replace(later, known_us=later.known_us + 50.0))
    nats = chance.of_losses(observed, both)
    first = both.sent_us < 120.0
    assert nats[first].max() < -8 < -0.1 < nats[~first].min()


def test_what_a_queue_pair_misses_at_once_is_one_draw() -> None:
    one = gray().lost.take(np.array([0]))
    many = gray().lost.take(np.zeros(10, np.int64))
    alone, together = (chance.draws(it, 2, RTT_US).sum() for it in (one, many))
    assert together == pytest.approx(alone)


def uncounted(observed: Observed) -> Observed:
    """The same where ports tell neither what they sent nor what is missing."""
    none = np.zeros_like(observed.out)
    return replace(observed, out=none, gone=none, counted=False)


def test_where_ports_tell_nothing_a_loss_is_one_unless_others_at_that_time_were_late() -> None:
    observed = uncounted(gray())
    assert chance.of_losses(observed, observed.lost).max() < -8
    begin_us = observed.lost.known_us < 60
    late = replace(observed, late_us=np.repeat(observed.lost.known_us[begin_us], 20))
    nats = chance.of_losses(late, late.lost)
    assert nats[begin_us].min() > -0.2
    assert nats[observed.lost.known_us > 80].max() < -8


def test_where_ports_tell_nothing_a_probe_is_lost_if_answers_came_sooner() -> None:
    observed = uncounted(gray())
    lost = replace(observed.lost, probe=np.ones(len(observed.lost), np.bool_))
    waited_us = float(np.median(lost.known_us - lost.sent_us))
    for took_us, low, high in ((waited_us / 2, -12, -8), (2 * waited_us, -0.1, 0)):
        answered = replace(lost, known_us=lost.sent_us + took_us)
        nats = chance.of_losses(replace(observed, answered=answered), lost)
        assert low < nats.min() <= nats.max() <= high


def test_where_ports_tell_nothing_but_drops_as_many_losses_across_them_are_chance() -> None:
    observed = uncounted(gray())
    dropped = np.zeros_like(observed.dropped)
    dropped[-1, NIC.ports[0]] = len(observed.lost)
    full = replace(observed, dropped=dropped)
    assert chance.of_losses(full, full.lost).min() > -0.1


def test_the_place_is_found_where_ports_tell_nothing() -> None:
    link = component("plane 1 t0 2 > t1 3")
    for every, dead in ((1, True), (10, False)):
        (place,) = told(uncounted(seen(Bad(link.ports, every=every))))
        assert (place.where, place.dead) == (link.where, dead)
    assert told(uncounted(seen())) == []
