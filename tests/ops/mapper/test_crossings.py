"""Agents that tell what they have asked: what nobody told speaks for no place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from openmrc.fabric import places
from openmrc.fabric.clos import multiplane
from openmrc.ops import causes, evs
from openmrc.ops.mapper import crossings
from openmrc.ops.mapper.agent import Loss, Report, Round
from openmrc.ops.mapper.bursts import HOLD_PS
from openmrc.ops.mapper.collector import Collector
from openmrc.units import MS

FABRIC = multiplane(12, 2, 10**9, 4, 2, 0, 0)  # three T0s of four NICs a plane, two T1s
SCHEDULE = evs.make(FABRIC, 10, MS, 0.01)
PERIOD_PS = SCHEDULE.period_ps
DEAD = "plane 1 t1 0"
BROKE_PS = 10 * PERIOD_PS


class Story:
    """Agents on all NICs, a switch that dies, and when each report arrives."""

    def __init__(self) -> None:
        self.collector = Collector(SCHEDULE, 0)
        self.bad = np.zeros(FABRIC.n_ports + 1, np.bool_)
        self.bad[places.ports(FABRIC, DEAD)] = True
        for nic in range(FABRIC.n_nics):
            self.collector.join(0, nic)

    def hear(self, nics: Iterable[int], asked_ps: int, now_ps: int) -> list[str]:
        """These agents report on a round asked at a time; which places are named then."""
        turn = asked_ps // PERIOD_PS % 16
        per_nic = SCHEDULE.n_probes // FABRIC.n_nics
        for nic in nics:
            mine = np.arange(nic * per_nic, (nic + 1) * per_nic)
            is_lost = self.bad[SCHEDULE.routes(turn, mine)].any(axis=1) & (asked_ps >= BROKE_PS)
            lost = [Loss(int(i), turn, asked_ps) for i in mine[is_lost]]
            report = Report(asked_ps, 1, lost, [], [], [Round(turn, asked_ps)])
            self.collector.hear(now_ps, nic, report)
        return [one.where for one in self.collector.tick(now_ps).changed if not one.withdrawn]


def test_agents_that_have_not_told_yet_speak_for_nothing() -> None:
    """One T0 tells first. What it lost may be its cable's loss as well, as long as the others,
    whom nobody has scheduled, may have lost it too.
    """
    story = Story()
    every, first = range(12), range(4)
    for period in range(10):
        assert story.hear(every, period * PERIOD_PS, period * PERIOD_PS) == []
    for period in range(10, 13):
        now_ps = period * PERIOD_PS
        assert story.hear(first, now_ps, now_ps) == []
    now_ps = 13 * PERIOD_PS
    assert story.hear(range(4, 12), now_ps, now_ps) == [DEAD]


def test_what_was_asked_before_the_fault_speaks_for_nothing_however_late_it_is_told() -> None:
    story = Story()
    for period in range(10):
        story.hear(range(12), period * PERIOD_PS, period * PERIOD_PS)
    late_ps = BROKE_PS + PERIOD_PS // 2
    assert story.hear(range(4), BROKE_PS, late_ps) == []
    assert story.hear(range(4, 12), BROKE_PS - 2 * MS, late_ps) == []
    assert story.hear(range(4, 12), BROKE_PS + MS, late_ps + HOLD_PS) == [DEAD]


def test_what_is_told_after_the_name_was_lost_as_well_as_it_crossed() -> None:
    """Else a switch that lets nothing through would seem to lose a part, and its cables all."""
    story = Story()
    for period in range(10):
        story.hear(range(12), period * PERIOD_PS, period * PERIOD_PS)
    assert story.hear(range(8), BROKE_PS, BROKE_PS + 5 * MS) == [DEAD]
    assert story.hear(range(8, 12), BROKE_PS, BROKE_PS + 6 * MS) == []
    assert story.hear(range(12), BROKE_PS + PERIOD_PS, BROKE_PS + PERIOD_PS) == []
    [place] = story.collector.places.values()
    assert place.rate == 1.0


def test_crossings_are_counted_by_the_time_at_which_they_were_asked() -> None:
    told = crossings.Told(SCHEDULE)
    own = int(SCHEDULE.routes(0, [0])[0, 0])  # the cable of NIC 0 on plane 0
    per_port = SCHEDULE.per_port
    told.hear(0, [Round(0, 100), Round(1, 200, (0, 1)), Round(2, PERIOD_PS)])
    nobody = frozenset[int]()
    assert told.between(100, 2 * PERIOD_PS, nobody)[own] == 2 * per_port + 2
    assert told.between(101, 2 * PERIOD_PS, nobody)[own] == per_port + 2
    assert told.between(201, 2 * PERIOD_PS, nobody)[own] == per_port
    assert (told.total(own, PERIOD_PS), told.total(own, 0)) == (2 * per_port + 2, per_port + 2)
    told.forget(PERIOD_PS)
    assert told.between(0, 2 * PERIOD_PS, nobody)[own] == per_port
    assert told.between(0, 1, nobody).shape == (causes.count(FABRIC),)
