"""How many packets arrived, and by when they left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.ops.diagnose.crossed import Crossed, arrived, split
from tests.ops.diagnose.made import TICK_US, Bad, component, seen

CUT = component("plane 1 t0 2 > t1 3").ports[0]
DOWN = component("nic 5 plane 0").ports


def test_what_was_sent_and_not_lost_arrived_when_it_left() -> None:
    """However late the answers come: those of what left before a cut may come during it."""
    observed = seen(Bad((CUT,)))
    answers = np.roll(observed.answers, 3, axis=0)
    came = arrived(replace(observed, answers=answers))[:, CUT]
    at_us = observed.edges_us[:-1]
    during = (at_us >= 50) & (at_us < 120)
    assert came[during].sum() == 0
    assert (came[~during] == observed.sent[~during, CUT]).all()


def test_of_what_nobody_answered_nobody_knows() -> None:
    """A sender that gives up judges nothing."""
    observed = seen()
    none = arrived(replace(observed, answers=0 * observed.answers))
    assert none.sum() == 0


def test_nothing_crossed_a_port_while_its_nic_said_that_it_was_down() -> None:
    observed = seen()
    told = observed.lost.take(np.zeros(0, np.int64))
    routes = np.full((4, observed.lost.routes.shape[1]), -1, np.int32)
    routes[:, 0] = (*DOWN, *DOWN)
    at_us = np.array([13.0, 13.0, 17.0, 17.0])
    told = replace(
        told, routes=routes, back=np.full((4, 2), -1, np.int32), sent_us=at_us, known_us=at_us,
        qp=np.full(4, -1, np.int32), ev=np.full(4, -1), probe=np.ones(4, np.bool_),
    )  # fmt: skip
    observed = replace(observed, lost=told)
    edges_us, counts = split(observed, observed.sent)
    assert {13.0, 17.0} <= {*edges_us.tolist()}
    within = (edges_us[:-1] >= 13) & (edges_us[:-1] < 17)
    assert counts[within][:, list(DOWN)].sum() == 0 < counts[within].sum()
    assert counts.sum(axis=0) == pytest.approx(observed.sent.sum(axis=0))


def test_in_a_bin_as_much_may_have_crossed_as_links_carry() -> None:
    """Six packets in a bin in which ten fit."""
    met = Crossed(np.array([0.0, TICK_US]), np.array([6.0]), np.array([10.0]))
    half = np.array([TICK_US / 2])
    assert (met.at_least(half)[0], met.evenly(half)[0], met.at_most(half)[0]) == (1, 3, 5)
