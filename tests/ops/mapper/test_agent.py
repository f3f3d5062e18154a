"""Agents in virtual time: what they send, what they take for lost, and what they do not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from openmrc.fabric.places import links
from openmrc.ops import schedule as sc
from openmrc.ops.mapper import probe, run
from openmrc.ops.mapper.agent import BURSTS_MAX, Agent
from openmrc.ops.mapper.probe import BURST, CLOSING, SCHEDULED, ByteArray
from openmrc.units import MS
from tests.ops.mapper.world import Heard, World, packed, small

SCHEDULE = small()
PERIOD_MS = 20


def test_in_a_period_an_agent_sends_its_probes_once_in_parts_with_the_planes_in_turn() -> None:
    agent, now = Agent(SCHEDULE, 3, 0, tick_ps=10 * MS), 0
    sent, times = [], []
    while now < 2 * SCHEDULE.period_ps:
        for one in agent.due(now):
            times.append(now // MS)
            sent += [(one.period, place) for place in one.numbers]
            agent.arrive(now, back(agent, one.period, one.numbers, set()))
        now = agent.next_ps
    assert times == [0, 10, 20, 30]
    assert sent == [(period, place) for period in (0, 1) for place in range(40)]
    assert agent.orders[0].planes[:5] == [0, 1, 2, 3, 0]
    own = [(3 * 4 + plane) * 10 + slot for slot in range(10) for plane in range(4)]
    assert agent.orders[7].numbers == own


def back(agent: Agent, period: int, places: Sequence[int], without: set[int]) -> ByteArray:
    return packed(returned(agent, period, places, without))


def returned(agent: Agent, period: int, places: Sequence[int], without: set[int]) -> list[Heard]:
    order = agent.orders[period % sc.TURNS]
    return [
        Heard(SCHEDULED, order.planes[i], agent.nic, period, i)
        for i in places
        if order.loops[i] and i not in without
    ]


def test_a_probe_is_lost_when_a_later_one_has_come_back_and_not_by_time_alone() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    (first,) = agent.due(0)
    gone = {0, 5}
    assert all(agent.orders[0].loops[place] for place in gone)
    agent.due(90 * MS)  # nothing has come: the host, or a switch, was not scheduled
    assert agent.report(90 * MS) is None
    agent.arrive(100 * MS, back(agent, 0, first.numbers, gone))
    agent.due(100 * MS)
    report = agent.report(100 * MS)
    assert report is not None
    numbers = agent.orders[0].numbers
    assert [(one.number, one.turn, one.at_ps) for one in report.lost] == [
        (numbers[0], 0, 0),
        (numbers[5], 0, 0),
    ]
    # It comes after all: its loss is taken back, once.
    agent.arrive(110 * MS, packed([Heard(SCHEDULED, 1, 0, 0, 5)] * 2))
    agent.due(110 * MS)
    late = agent.report(110 * MS)
    assert late is not None
    assert late.late == [report.lost[1]]


def test_where_nothing_comes_any_more_all_is_lost_in_the_end() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    now = 0
    while now <= agent.silence_ps:
        agent.due(now)
        report = agent.report(now)
        assert report is None or not report.lost
        now += 20 * MS
    agent.due(now)
    report = agent.report(now)
    assert report is not None
    periods = agent.silence_ps // SCHEDULE.period_ps + 1  # the last has just been sent
    loops = [sum(agent.orders[period % sc.TURNS].loops) for period in range(periods)]
    assert len(report.lost) == sum(loops)


def test_all_is_well_is_said_once_a_second() -> None:
    world = World(SCHEDULE)
    world.run(2500)
    assert world.found == []
    assert world.collector.silent(world.now_ps) == []
    assert not world.collector._losses


def test_what_is_no_probe_of_the_schedule_is_passed_over() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    (first,) = agent.due(0)
    came = back(agent, 0, first.numbers, set())
    came[3, 0] ^= 1  # not the magic number
    came[5, 2] = 200  # no kind
    came[7, 3] ^= 1  # a plane that this number does not take
    came[9, 4:8] = 255  # no NIC of this T0
    came[11, 8:12] = 255  # a period of long ago
    came[13, 12:16] = 255  # no place
    agent.arrive(MS, came)
    agent.due(10 * MS)
    report = agent.report(10 * MS)
    assert report is not None
    looped = [i for i in first.numbers if agent.orders[0].loops[i]]
    missing = [agent.orders[0].numbers[looped[i]] for i in (3, 5, 7, 9, 11, 13)]
    assert [one.number for one in report.lost] == missing


def test_a_frame_is_as_long_as_the_schedule_says_and_names_its_path() -> None:
    payload = probe.payloads(SCHEDULED, 1, [2], 5, [9])
    carrier = 0x20010DB8_4008_2010_4009_2011_4008_1001
    gateways = [bytes([2, 255, 0, 0, 0, plane]) for plane in range(4)]
    spelt = np.frombuffer(carrier.to_bytes(16, "big"), np.uint8)
    (frame,) = probe.frames(probe.heads(1, gateways), [2], spelt[None], payload)
    assert len(frame) + 24 == sc.PROBE_BYTES  # preamble, gap and FCS
    data = frame.tobytes()
    assert data[:6] == gateways[2]
    assert data[6:12] == bytes.fromhex("020200000002")
    assert data[12:14] == b"\x86\xdd"
    assert data[14 + 24 : 14 + 40] == carrier.to_bytes(16, "big")
    assert data[54:58] == probe.PORT.to_bytes(2, "big") * 2
    assert int.from_bytes(data[14 + 4 : 14 + 6], "big") == len(data) - 54
    assert np.array_equal(frame[probe.PAYLOAD_AT :], payload[0])


def test_an_agent_that_stalls_skips_nothing_and_blames_nobody() -> None:
    world = World(SCHEDULE)
    world.run(200)
    world.stalled_until_ps = world.now_ps + 150 * MS  # a switch that is not scheduled
    world.run(400)
    asleep = 2
    world.alive.discard(asleep)
    world.run(180)
    world.alive.add(asleep)
    world.run(400)
    assert world.found == []
    assert not world.collector._losses


def drive(
    agent: Agent, under_way: list[tuple[int, Heard]], begin: int, ms: int, late_ms: int, gone: int
) -> list[tuple[int, int]]:
    """Let an agent probe for so long; what plane 0 carries comes back `late_ms` later, but for
    place `gone`, which is lost. When it told of losses, ms after `begin`, and of how many.
    """
    told = []
    for now in range(begin, begin + ms, 10):
        agent.arrive(now * MS, packed([one for at, one in under_way if at <= now]))
        under_way[:] = [(at, one) for at, one in under_way if at > now]
        for send in agent.due(now * MS):
            for one in returned(agent, send.period, send.numbers, {gone}):
                under_way.append((now + 1 + (late_ms if one.plane == 0 else 0), one))
        report = agent.report(now * MS)
        if report is not None and report.lost:
            told.append((now - begin, len(report.lost)))
    return told


def test_a_plane_that_is_late_is_waited_for_once_that_is_known_and_no_longer_than_it_is() -> None:
    agent, under_way = Agent(SCHEDULE, 0, 0), list[tuple[int, Heard]]()
    assert drive(agent, under_way, 0, 400, 0, -1) == []
    first = drive(agent, under_way, 400, 400, 40, -1)
    assert [at for at, _ in first] == [20, 40]  # nobody could know
    assert drive(agent, under_way, 800, 400, 40, -1) == []
    assert drive(agent, under_way, 1200, 8000, 0, -1) == []
    assert agent.margin_ps < agent.tick_ps + MS
    assert drive(agent, under_way, 9200, 50, 0, 0)[0] == (10, 1)


def burst_lost(agent: Agent, now: int) -> tuple[int, ...] | None:
    """The rows of the burst that an agent takes for lost; None: not judged yet."""
    agent.bursts(now * MS)
    report = agent.report(now * MS)
    return None if report is None or not report.bursts else report.bursts[0].lost


def test_a_burst_has_its_time_from_when_it_has_left() -> None:
    agent = Agent(SCHEDULE, 4, 0)
    agent.ask(1, int(links(SCHEDULE.fabric, "plane 0 t0 1 > t1 0")[0]), 8)
    (send,) = agent.bursts(0)
    agent.left(8 * MS, [send])
    agent.arrive(9 * MS, packed([Heard(CLOSING, 0, 4, 1, 0)]))
    assert burst_lost(agent, 17) is None
    assert burst_lost(agent, 18) == tuple(send.numbers)


def test_a_burst_is_not_judged_while_more_of_it_comes() -> None:
    agent = Agent(SCHEDULE, 4, 0)
    agent.ask(1, int(links(SCHEDULE.fabric, "plane 0 t0 1 > t1 0")[0]), 8)
    (send,) = agent.bursts(0)
    first, second = send.numbers
    agent.arrive(3 * MS, packed([Heard(CLOSING, 0, 4, 1, 0)]))
    agent.arrive(9 * MS, packed([Heard(BURST, 0, 4, 1, first)]))
    assert burst_lost(agent, 13) is None
    assert burst_lost(agent, 14) == (second,)


def test_probes_of_bursts_that_nobody_orders_fill_no_memory() -> None:
    agent = Agent(SCHEDULE, 4, 0)
    forged = [Heard(BURST, 0, 5, number, row) for number in range(200) for row in (3, 99, 100)]
    agent.arrive(0, packed(forged))
    agent.due(0)
    assert len(agent._received) <= BURSTS_MAX
    assert agent.count(199).heard == (3, 99)


def test_who_loses_a_probe_looks_at_its_ports_though_the_kernel_says_nothing() -> None:
    agent, told = Agent(SCHEDULE, 0, 0), list[dict[str, Any]]()

    class Ports:
        looks = 0

        def heed(self, link: None) -> None:
            pass

        def changed(self) -> bool:
            return False

        def down(self) -> list[int]:
            self.looks += 1
            return [] if self.looks == 1 else [2]

        def probe_until(self, until_ps: int) -> int:
            if self.looks == 1:
                (first,) = agent.due(0)
                agent.arrive(5 * MS, back(agent, 0, first.numbers, {2}))
                agent.due(5 * MS)
            return 0

    rounds = iter([False, False, True])
    run.run(agent, Ports(), None, told.append, lambda: next(rounds), time.monotonic_ns())  # type: ignore[arg-type]
    assert [(len(one["report"]["lost"]), one["report"]["down"]) for one in told] == [(1, [2])]
