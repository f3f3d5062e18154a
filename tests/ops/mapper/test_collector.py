"""Links of 8 NICs on 4 planes break: who is named, when, and for how long."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from openmrc.ops.mapper.bursts import ROUND, Order
from openmrc.ops.mapper.collector import OVER_PERIODS
from openmrc.ops.schedule import BURST_MAX
from openmrc.units import MS
from tests.ops.mapper.world import World, small

SCHEDULE = small()
LIMIT_MS = 50

LINKS = ["plane 1 t0 0 - t1 1", "nic 3 plane 2"]
WAYS = [way for link in LINKS for way in (link.replace(" - ", " > "), link.replace(" - ", " < "))]
ONE_WAY = [way if "t1" in way else f"{way} > t0" for way in WAYS[:3]] + ["nic 3 plane 2 < t0"]


def named(world: World) -> list[tuple[str, bool]]:
    """Who was named, and whether within the limit."""
    first = world.first_lost_ps or 0
    return sorted(
        (place.where, place.named_ps - first <= LIMIT_MS * MS) for _, place in world.found
    )


@pytest.mark.parametrize("link", LINKS)
def test_a_cut_link_is_named_in_both_directions_within_50_ms(link: str) -> None:
    world = World(SCHEDULE)
    world.run(203)
    world.lose(link)
    world.run(150)
    both = link.replace(" - ", " {} ") if "t1" in link else f"{link} {{}} t0"
    assert named(world) == [(both.format("<"), True), (both.format(">"), True)]


@pytest.mark.parametrize("rate", [1.0, 0.1])
@pytest.mark.parametrize("way", ONE_WAY)
def test_one_direction_that_is_silent_or_loses_a_tenth_is_named_and_the_other_is_not(
    way: str, rate: float
) -> None:
    world = World(SCHEDULE, seed=3)
    world.run(211)
    world.lose(way, rate)
    world.run(150)
    assert named(world) == [(way, True)]
    world.run(1000)  # the long window has seen more of it
    ((_, place),) = world.found
    assert place.rate == pytest.approx(rate, rel=0.4)


@pytest.mark.parametrize("stands_ms", [10, 20, 30, 40])
@pytest.mark.parametrize("way", [None, LINKS[0], ONE_WAY[1], ONE_WAY[3]])
def test_switches_that_stand_still_for_a_moment_change_no_name_and_delay_it_by_no_more(
    way: str | None, stands_ms: int
) -> None:
    """All switches are one process, which is not scheduled; the agents are. A part of what is under
    way comes before, for instance the local loops.
    """
    for begins_ms in range(0, 45, 9):
        world = World(SCHEDULE, seed=begins_ms, trip_ms=4.0)
        world.run(203)
        begins_ps = world.now_ps + begins_ms * MS
        world.still = (begins_ps, begins_ps + stands_ms * MS)
        if way is not None:
            world.lose(way)
        world.run(150)
        exact = {None: set(), LINKS[0]: {LINKS[0].replace("-", "<"), LINKS[0].replace("-", ">")}}
        assert {place.where for _, place in world.found} == exact.get(way, {way})
        for _, place in world.found:
            assert place.named_ps - (world.first_lost_ps or 0) <= (30 + stands_ms) * MS


def test_bursts_are_few_and_no_more_are_ordered_while_some_are_out() -> None:
    world = World(SCHEDULE)
    together, out = [], []
    order = world.collector.bursts.order

    def watched(now_ps: int, *given: Any) -> list[Order]:
        out.append(len(world.collector.bursts.out))
        found = order(now_ps, *given)
        together.append(sum(one.n for one in found))
        return found

    world.collector.bursts.order = watched  # type: ignore[assignment,method-assign]
    world.run(203)
    world.lose(ONE_WAY[0])
    world.run(150)
    assert 0 < max(together) <= ROUND
    assert set(out) == {0}


def orders_of(world: World, run_ms: int) -> list[tuple[int, int, int]]:
    """When which link got how many probes in a burst."""
    found: list[tuple[int, int, int]] = []
    order = world.collector.bursts.order

    def watched(now_ps: int, *given: Any) -> list[Order]:
        ordered = order(now_ps, *given)
        found.extend((now_ps, one.port, one.n) for one in ordered)
        return ordered

    world.collector.bursts.order = watched  # type: ignore[assignment,method-assign]
    world.run(run_ms)
    return found


@pytest.mark.parametrize("turn_ms", [0.0, 1.5])
def test_a_cut_between_switches_takes_one_round_of_bursts(turn_ms: float) -> None:
    world = World(SCHEDULE, turn_ms=turn_ms)
    world.run(203)
    world.lose(LINKS[0])
    assert len({at_ps for at_ps, _, _ in orders_of(world, 150)}) == 1
    assert len(world.names()) == 2


def test_what_remains_of_a_links_hundred_probes_is_sent_before_the_period_is_over() -> None:
    world = World(SCHEDULE, seed=25)
    world.run(211)
    world.lose("nic 3 plane 2 < t0", 0.06)
    found = orders_of(world, 60)
    (first, *_), period_ps = found, SCHEDULE.period_ps
    within = [one for one in found if one[0] < first[0] + period_ps]
    assert len({at_ps for at_ps, _, _ in within}) == 2
    probes = Counter[int]()
    for _, port, n in within:
        probes[port] += n
    assert max(probes.values()) == BURST_MAX
    assert world.names() == {"nic 3 plane 2 < t0"}


def test_a_dead_switch_is_one_place_and_not_its_links() -> None:
    world = World(SCHEDULE)
    world.run(200)
    for t0 in (0, 1):
        world.lose(f"plane 1 t0 {t0} - t1 1")
    world.run(300)
    assert world.names() == {"plane 1 t1 1"}


def test_a_port_without_carrier_is_named_at_once_in_both_directions_and_nothing_else() -> None:
    world = World(SCHEDULE)
    world.run(203)
    world.dark = {3: (2,)}
    world.lose("nic 3 plane 2")
    broke_ps = world.now_ps
    world.run(300)
    assert world.names() == {"nic 3 plane 2 > t0", "nic 3 plane 2 < t0"}
    assert max(place.named_ps for _, place in world.found) - broke_ps <= 10 * MS
    world.dark = {}
    world.lose("nic 3 plane 2", 0.0)
    world.run(OVER_PERIODS * 20 + 1500)
    assert world.names() == set()
    assert len(world.found) == 4  # each named, and over


def test_a_port_stays_named_as_long_as_it_is_down_though_nothing_is_lost() -> None:
    world = World(SCHEDULE)
    world.run(203)
    world.dark = {3: (2,)}
    world.run(2 * OVER_PERIODS * 20)
    assert world.names() == {"nic 3 plane 2 > t0", "nic 3 plane 2 < t0"}


def test_ports_without_carrier_of_a_whole_t0_are_the_t0() -> None:
    world = World(SCHEDULE)
    world.run(203)
    world.dark = dict.fromkeys(range(4), (1,))
    world.lose("plane 1 t0 0 - t1 *")
    for nic in range(4):
        world.lose(f"nic {nic} plane 1")
    world.run(300)
    assert world.names() == {"plane 1 t0 0"}


def test_what_was_blamed_before_a_nic_spoke_is_withdrawn() -> None:
    world = World(SCHEDULE)
    world.run(203)
    world.lose("nic 3 plane 2 < t0")
    world.run(120)
    assert world.names() == {"nic 3 plane 2 < t0"}
    place = world.collector.places.popitem()[1]
    switch = place.cause = world.fabric.n_ports + int(world.fabric.port_peer_switch[3 * 4 + 2])
    world.collector.places[switch] = place  # as if its T0 had been blamed
    world.dark = {3: (2,)}
    world.run(100)
    assert world.names() == {"nic 3 plane 2 > t0", "nic 3 plane 2 < t0"}
    assert place.withdrawn


def test_a_healed_link_is_over_and_its_old_losses_name_nobody_again() -> None:
    world = World(SCHEDULE)
    world.run(200)
    idle = [world.collector.idle]
    world.lose(ONE_WAY[0])
    world.run(100)
    idle.append(world.collector.idle)
    assert idle == [True, False]
    world.lose(ONE_WAY[0], 0.0)
    healed_ps = world.now_ps
    world.run(OVER_PERIODS * 20 + 40)
    assert world.names() == set()
    world.run(1500)  # the long windows still reach back
    place = world.found[0][1]
    assert [one.where for _, one in world.found] == [ONE_WAY[0]] * 2  # named, and over
    assert place.until_ps is not None
    assert abs(place.until_ps - healed_ps) <= 20 * MS
    assert world.collector.idle


def test_one_packet_in_two_hundred_shows_in_the_long_windows() -> None:
    world = World(SCHEDULE, seed=2)
    world.run(200)
    world.lose(ONE_WAY[0], 0.005)
    world.run(7000)
    assert world.names() == {ONE_WAY[0]}


def test_an_agent_that_is_killed_and_comes_back_is_no_damage_to_any_link() -> None:
    world = World(SCHEDULE)
    world.run(300)
    world.kill(2)
    world.run(4000)
    assert world.collector.silent(world.now_ps) == [2]
    world.start(2)
    world.run(1500)
    assert world.found == []
    assert world.collector.silent(world.now_ps) == []


def test_without_one_agent_a_fault_is_still_named() -> None:
    world = World(SCHEDULE)
    world.kill(2)
    world.run(300)
    world.lose(ONE_WAY[0])
    world.run(150)
    assert named(world) == [(ONE_WAY[0], True)]
