"""The scout meets events before they happen: a hint that comes late or never costs silently."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.sim.mrc import loop
from openmrc.sim.net import scout
from openmrc.sim.net import state as ss
from openmrc.sim.world import World
from openmrc.workload.patterns import permutation
from tests.sim import plain
from tests.sim.lab import clos, world_of

NO_LIMIT = 1 << 60


def scouting(world: World, yes: bool = True) -> World:
    """Small worlds do without."""
    assert not world.net.ctl[0].scouts
    world.net.ctl[0].scouts = yes
    return world


def busy_world() -> World:
    """More packets under way than the scout is ahead."""
    fabric = clos(nics=64, planes=2, down=8, up=8)
    return scouting(world_of(fabric, permutation(64, 400_000, 1)))


@pytest.mark.parametrize("name", sorted(plain.eventful_worlds()))
def test_hints_change_nothing(name: str) -> None:
    without, with_hints = (scouting(plain.eventful_worlds()[name], yes) for yes in (False, True))
    without.run()
    with_hints.run()
    assert sum(int(net.ctl[0].scout_turn) for net in with_hints.nets) > 100
    found, expected = (plain.outcome(world) for world in (with_hints, without))
    for figures in (found, expected):
        del figures["net"]["ctl"]  # where the scout is
    assert found == expected


def scouted(world: World) -> set[int]:
    """The events that the scout met last; some more than it is ahead."""
    return set(world.net.ctl[0].scouted.tolist())


def test_the_next_event_was_met_before() -> None:
    world = busy_world()
    looks = met = 0
    while loop.advance(world.net, world.engine, NO_LIMIT, 64) == ss.BUDGET:
        c = world.net.ctl[0]
        if c.n_wheel > 2 * scout.LEAD and c.open_head >= 0:
            looks += 1
            met += int(c.open_head) in scouted(world)
    assert looks > 500
    assert met / looks > 0.95  # of the others, most were scheduled behind its back


def test_it_stays_ahead_and_not_too_far() -> None:
    world = busy_world()
    leads = []
    while loop.advance(world.net, world.engine, NO_LIMIT, 64) == ss.BUDGET:
        c = world.net.ctl[0]
        if c.n_wheel > 2 * scout.LEAD:
            leads.append(int(c.scout_lead))
    assert len(leads) > 500
    assert 0.8 * scout.LEAD < np.mean(leads) < 1.2 * scout.LEAD


def test_nothing_scheduled_is_nothing_to_meet() -> None:
    """A packet at a time: the scout does not go round the wheel to meet it again."""
    world = scouting(world_of(clos(nics=2, planes=1, down=1, up=1), permutation(2, 100, 1)))
    while loop.advance(world.net, world.engine, NO_LIMIT, 64) == ss.BUDGET:
        pass
    c = world.net.ctl[0]
    assert c.n_wheel >= 0
    assert c.scout_bucket <= c.bucket + c.bucket_mask
