"""How probable a loss is where nothing broke."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.ops.diagnose import chance
from openmrc.ops.diagnose.observed import Observed
from tests.ops.diagnose.made import RTT_US, Bad, component, seen

NIC = component("nic 5 plane 0 < t0")


def gray() -> Observed:
    return seen(Bad(NIC.ports, 10.0, 190.0, 10))


def test_a_loss_among_packets_that_pass_is_hardly_chance() -> None:
    observed = gray()
    assert np.median(chance.of_losses(observed, observed.lost)) < -8


def test_where_queues_dropped_as_many_it_is_chance() -> None:
    observed = gray()
    dropped = np.zeros_like(observed.dropped)
    of_bin = np.bincount(observed.bin_of(observed.lost.sent_us), minlength=len(dropped))
    dropped[:, NIC.ports[0]] = of_bin
    full = replace(observed, dropped=dropped)
    assert chance.of_losses(full, full.lost).min() > -1


def test_where_as_many_proved_to_be_late_it_is_likelier() -> None:
    observed = gray()
    late = 10 * observed.sent / observed.sent.sum()
    some = replace(observed, late=late * len(observed.lost))
    less, more = (chance.of_losses(it, it.lost).mean() for it in (observed, some))
    assert more > less + 1


def test_what_a_queue_pair_misses_at_once_is_one_draw() -> None:
    one = gray().lost.take(np.array([0]))
    many = gray().lost.take(np.zeros(10, np.int64))
    alone, together = (chance.draws(it, 2, RTT_US).sum() for it in (one, many))
    assert together == pytest.approx(alone)


def test_only_as_many_losses_are_late_as_proved_so_and_as_ports_do_not_miss() -> None:
    """Of a link between switches ports miss each; of one to a NIC none."""
    inner = seen(Bad(component("plane 1 t0 2 > t1 3").ports))
    for observed, part in ((gray(), 1.0), (inner, chance.FORGOTTEN)):
        proved = replace(observed, late=observed.sent / 10)
        weight = np.ones(len(observed.lost))
        assert chance.part_late(proved, weight) == pytest.approx(part)
        assert chance.part_late(observed, weight) == pytest.approx(chance.FORGOTTEN)
