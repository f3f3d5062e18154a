"""Probes of EVs: what they cross, what they ask, and what they can tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric import places
from openmrc.fabric.clos import fat_tree, multiplane
from openmrc.ops import causes, evidence, evs
from openmrc.ops.localise import Rules, localise
from openmrc.ops.mapper.agent import Loss, Report, Round
from openmrc.ops.mapper.collector import Collector
from openmrc.ops.schedule import TURNS
from openmrc.units import MS

FABRIC = multiplane(12, 2, 10**9, 4, 2, 0, 0)  # three T0s of four NICs a plane, two T1s


def schedule(k: int = 10) -> evs.EvSchedule:
    return evs.make(FABRIC, k, MS, 0.01)


def test_a_probe_asks_for_the_ev_of_its_route_and_no_nic_asks_itself() -> None:
    s = schedule()
    for turn in range(TURNS):
        routes = s.routes(turn)
        asked = s.asked(routes)
        src = FABRIC.port_nic[routes[:, 0]]
        assert (asked.nic != src).all()
        for row, nic, to, ev in zip(routes, src, asked.nic, asked.ev, strict=True):
            there = FABRIC.route(int(nic), int(to), int(ev))
            cables = {min(p, int(FABRIC.port_reverse[p])) for p in there}
            assert {min(p, int(FABRIC.port_reverse[p])) for p in row.tolist() if p >= 0} == cables
        assert s.judges(turn, np.arange(s.n_probes)).tolist() == src.tolist()


@pytest.mark.parametrize("n_nics", [2, 8, 12, 16, 64])
def test_partners_are_drawn_from_all_nics(n_nics: int) -> None:
    """Whatever the number of NICs: 8 have 7 others, 16 have 15, 64 have 63."""
    fabric = multiplane(n_nics, 2, 10**9, 2 if n_nics > 2 else 1, 2, 0, 0)
    s = evs.make(fabric, 10, MS, 0.01)
    found = set[tuple[int, int]]()
    for turn in range(TURNS):
        routes = s.routes(turn)
        mine = fabric.port_nic[routes[:, 0]] == 0
        asked = s.asked(routes[mine])
        found |= set(zip(asked.plane.tolist(), asked.nic.tolist(), strict=True))
    assert len(found) == 2 * min(n_nics - 1, TURNS * s.per_port)


def test_a_burst_asks_all_nics_of_other_t0s() -> None:
    fabric = multiplane(16, 1, 10**9, 2, 2, 0, 0)  # 14 NICs are elsewhere
    s = evs.make(fabric, 10, MS, 0.01)
    [port] = places.ports(fabric, "plane 0 t0 0 > t1 1")
    assert set(s.asked(s.burst(int(port), 14)).nic.tolist()) == set(range(2, 16))


def test_every_cable_is_crossed_as_often_as_asked() -> None:
    s = schedule()
    by_port, by_switch, by_nic = s.crossed
    up = np.flatnonzero(np.arange(FABRIC.n_ports) < FABRIC.port_reverse)
    assert by_port[up].min() >= s.k
    assert by_switch.min() > 0
    assert np.ptp(by_nic) < 0.1 * by_nic.mean()


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("plane 1 t1 0", "plane 1 t1 0"),
        ("plane 0 t0 2 > t1 1", "plane 0 t0 2 - t1 1"),
        ("plane 0 t0 2 < t1 1", "plane 0 t0 2 - t1 1"),
        ("nic 5 plane 1 < t0", "nic 5 plane 1"),
        ("plane 0 t0 1", "plane 0 t0 1"),
        ("nic 7", "nic 7"),
    ],
)
def test_what_loses_all_is_named_and_a_cable_without_a_direction(place: str, named: str) -> None:
    assert judged(place, range(FABRIC.n_nics)) == [named]


def test_where_nobody_answers_nothing_is_blamed() -> None:
    """Without the NICs of the third T0 a T1 and its cables cannot be told apart."""
    assert judged("plane 1 t1 0", range(8)) == []


def judged(place: str, there: range) -> list[str]:
    """What is named if a place loses all, by the agents of NICs that are there: of the others they
    can say nothing.
    """
    s, bad = schedule(), np.zeros(FABRIC.n_ports, np.bool_)
    bad[places.ports(FABRIC, place)] = True
    collector = Collector(s, 0)
    for nic in there:
        collector.join(0, nic)
    per_nic = s.n_probes // FABRIC.n_nics
    changed = []
    for turn in range(5):
        now = (turn + 1) * s.period_ps
        routes = s.routes(turn)
        asked = s.asked(routes)
        ends = zip(FABRIC.port_nic[routes[:, 0]].tolist(), asked.nic.tolist(), strict=True)
        lost = [
            b in there and bad[[*FABRIC.route(a, b, int(ev)), *FABRIC.route(b, a, int(ev))]].any()
            for (a, b), ev in zip(ends, asked.ev, strict=True)
        ]
        for nic in there:
            mine = range(nic * per_nic, (nic + 1) * per_nic)
            losses = [Loss(i, turn, now) for i in mine if lost[i]]
            known = tuple(i for i in mine if int(asked.nic[i]) in there)
            rounds = [Round(turn, now, known)]
            collector.hear(now, nic, Report(now, 1, losses, [], [], rounds))
        changed += collector.tick(now).changed
    return [one.where for one in changed if not one.withdrawn]


def test_with_two_t0s_a_t1_and_its_cables_are_one() -> None:
    two = multiplane(8, 2, 10**9, 4, 2, 0, 0)
    s = evs.make(two, 10, MS, 0.01)
    routes = s.routes(0)
    dead = two.port_peer_switch[routes[:, 1]] == np.flatnonzero(two.sw_tier == 1)[0]
    found = localise(two, evidence.of_burst(two, routes, dead, 0, MS), Rules(learns_chance=False))
    [one] = found
    assert not one.is_sure
    assert len({one.cause, *one.one_of}) == 3


def test_bursts_cross_their_suspect() -> None:
    s = schedule()
    for port in range(FABRIC.n_ports):
        cable = min(port, int(FABRIC.port_reverse[port]))
        routes = s.burst(port, 25, 3)
        assert (routes == cable).any(axis=1).all()
        sender, judge = s.ends(routes)
        assert (sender == judge).all()
        assert (s.asked(routes).nic != sender).all()
    assert causes.of_routes(FABRIC, s.burst(0, 4)).max() < causes.count(FABRIC)


def test_other_fabrics_are_refused() -> None:
    with pytest.raises(InputError, match="two tiers"):
        evs.make(fat_tree(16, 10**9, 2, 2, 0, 0, tiers=3), 10, MS, 0.01)
