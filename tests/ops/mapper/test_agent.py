"""Agents in virtual time: what they send, what they take for lost, and what they do not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.fabric.places import links
from openmrc.ops import schedule as sc
from openmrc.ops.mapper import probe, run
from openmrc.ops.mapper.agent import BURSTS_MAX, TELL_PS, Agent, Loss, Order, Report, Send
from openmrc.ops.mapper.probe import BURST, CHECK, SCHEDULED, ByteArray
from openmrc.ops.mapper.run import Seen
from openmrc.units import MS, S
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


def answered(send: Send, nic: int = 0, planes: Sequence[int] = range(4)) -> ByteArray:
    """What comes back of a check, on these planes."""
    assert send.kind == CHECK
    return packed([Heard(CHECK, plane, nic, send.period, 0) for plane in planes])


def numbers_lost(agent: Agent, now: int) -> list[int]:
    report = agent.report(now * MS)
    return [] if report is None else [one.number for one in report.lost]


def test_a_probe_is_lost_when_a_check_sent_later_has_come_back_and_not_by_time_alone() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    (first,) = agent.due(0)
    gone = {0, 5}
    assert all(agent.orders[0].loops[place] for place in gone)
    agent.arrive(MS, back(agent, 0, first.numbers, gone))
    sends = [agent.due(now * MS) for now in (5, 10, 15, 20)]  # now a switch is not scheduled
    assert agent.report(90 * MS) is None
    checks = [send for each in sends for send in each if send.kind == CHECK]
    assert [check.period for check in checks] == [1, 2, 3, 4]
    agent.arrive(100 * MS, answered(checks[0]))
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


def test_what_misses_its_planes_check_too_is_lost_some_time_after_another_planes() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    (first,) = agent.due(0)
    places = [i for i in first.numbers if agent.orders[0].loops[i]]
    ours = {next(i for i in places if agent.orders[0].planes[i] == plane) for plane in (1, 2)}
    agent.arrive(MS, back(agent, 0, first.numbers, ours))
    (check,) = agent.due(5 * MS)
    agent.arrive(6 * MS, answered(check, planes=[0, 2, 3]))
    found = []
    for now in (6, 10, 15, 16):
        agent.due(now * MS)
        found.append([number // SCHEDULE.per_port % 4 for number in numbers_lost(agent, now)])
    assert found == [[2], [], [], [1]]


def test_a_check_that_was_sent_before_a_probe_had_its_time_is_no_proof() -> None:
    agent = Agent(SCHEDULE, 0, 0, tick_ps=10 * MS)
    (first,) = agent.due(0)
    agent.arrive(MS, back(agent, 0, first.numbers, {0}))
    (check,) = agent.due(5 * MS)
    _, second = agent.due(10 * MS)
    one = next(i for i in second.numbers if agent.orders[0].loops[i])
    agent.arrive(11 * MS, back(agent, 0, second.numbers, {one}))
    agent.arrive(15 * MS, answered(check))
    (last,) = agent.due(15 * MS)
    assert numbers_lost(agent, 15) == [agent.orders[0].numbers[0]]
    agent.arrive(16 * MS, answered(last))
    agent.due(16 * MS)
    assert numbers_lost(agent, 16) == [agent.orders[0].numbers[one]]


def test_a_check_of_others_or_that_was_never_sent_proves_nothing() -> None:
    agent = Agent(SCHEDULE, 0, 0)
    (first,) = agent.due(0)
    agent.arrive(MS, back(agent, 0, first.numbers, {0, 5}))
    (check,) = agent.due(5 * MS)
    agent.arrive(6 * MS, answered(check, nic=1))
    agent.arrive(6 * MS, answered(check._replace(period=0)))
    agent.arrive(6 * MS, answered(check._replace(period=2)))
    agent.arrive(6 * MS, answered(check, planes=[4, 200]))
    agent.due(6 * MS)
    assert agent.report(6 * MS) is None


def test_an_agent_that_misses_nothing_sends_no_check() -> None:
    agent, kinds, now = Agent(SCHEDULE, 0, 0), list[int](), 0
    while now < 1000 * MS:
        for send in agent.due(now):
            kinds.append(send.kind)
            agent.arrive(now, back(agent, send.period, send.numbers, set()))
        now = agent.next_ps
    assert kinds == [SCHEDULED] * 50


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
    (check,) = agent.due(10 * MS)
    agent.arrive(11 * MS, answered(check))
    agent.due(11 * MS)
    report = agent.report(11 * MS)
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
    agent: Agent,
    under_way: list[tuple[int, Heard]],
    begin: int,
    ms: int,
    late_ms: int,
    gone: int,
    way_ms: Sequence[int] = (1, 1, 1, 1),
) -> list[tuple[int, int]]:
    """Let an agent probe for so long; each plane takes its time, plane 0 `late_ms` more, and place
    `gone` is lost. When it told of losses, ms after `begin`, and of how many.
    """
    told = []
    for now in range(begin, begin + ms):
        if now * MS < agent.next_ps:
            continue
        agent.arrive(now * MS, packed([one for at, one in under_way if at <= now]))
        under_way[:] = [(at, one) for at, one in under_way if at > now]
        for send in agent.due(now * MS):
            if send.kind == CHECK:
                ways = [Heard(CHECK, plane, agent.nic, send.period, 0) for plane in send.numbers]
            else:
                ways = returned(agent, send.period, send.numbers, {gone})
            for one in ways:
                late = late_ms if one.plane == 0 else 0
                under_way.append((now + way_ms[one.plane] + late, one))
        report = agent.report(now * MS)
        if report is not None and report.lost:
            told.append((now - begin, len(report.lost)))
    return told


def test_a_plane_that_is_late_is_waited_for_once_that_is_known_and_no_longer_than_it_is() -> None:
    agent, under_way = Agent(SCHEDULE, 0, 0), list[tuple[int, Heard]]()
    assert drive(agent, under_way, 0, 400, 0, -1) == []
    first = drive(agent, under_way, 400, 400, 40, -1)
    assert [at for at, _ in first] == [16, 36]  # nobody could know
    assert drive(agent, under_way, 800, 4000, 40, -1) == []
    assert agent.margin_ps > 40 * MS
    assert drive(agent, under_way, 4800, 8000, 0, -1) == []
    assert agent.margin_ps < 11 * MS
    assert drive(agent, under_way, 12800, 50, 0, 0)[0] == (6, 1)


def test_that_an_agent_itself_was_overdue_makes_it_wait_no_longer() -> None:
    agent, under_way = Agent(SCHEDULE, 0, 0), list[tuple[int, Heard]]()
    (first,) = agent.due(0)
    agent.arrive(70 * MS, back(agent, 0, first.numbers, set()))
    assert agent.margin_ps == 10 * MS
    assert drive(agent, under_way, 80, 50, 0, 0)[0] == (6, 1)


@st.composite
def standstills(draw: st.DrawFn) -> list[bool]:
    """[ms] whether something stands still: for up to 60 ms, at most once a period."""
    spans = draw(st.lists(st.tuples(st.integers(20, 90), st.integers(1, 60)), max_size=6))
    return [still for runs, stands in spans for still in [False] * runs + [True] * stands]


@settings(max_examples=60, deadline=None)
@given(
    standstills(),
    standstills(),
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.booleans(),
)
def test_who_stands_still_is_not_blamed_and_a_silent_plane_is_as_soon_as_ever(
    host: list[bool], switches: list[bool], way_ms: list[int], silent: bool
) -> None:
    """An agent and the process of its switches, each of which stands still at times; all probes of
    a plane take the same time while the switches run.
    """
    agent, under_way = Agent(SCHEDULE, 0, 0), list[tuple[int, Heard]]()
    quiet = max(len(host), len(switches))
    ran_ms, sent_ms, told_ms = 0, -1, list[int]()
    for now in range(quiet + 300):
        ran_ms += now >= len(switches) or not switches[now]
        if (now < len(host) and host[now]) or now * MS < agent.next_ps:
            continue
        agent.arrive(now * MS, packed([one for at, one in under_way if at <= ran_ms]))
        under_way = [(at, one) for at, one in under_way if at > ran_ms]
        breaks = silent and now >= quiet + 200
        for send in agent.due(now * MS):
            if send.kind == CHECK:
                ways = [Heard(CHECK, plane, 0, send.period, 0) for plane in range(4)]
            else:
                sent_ms = now if breaks and sent_ms < 0 else sent_ms
                ways = returned(agent, send.period, send.numbers, set())
            under_way += [
                (ran_ms + way_ms[one.plane], one) for one in ways if not breaks or one.plane != 2
            ]
        told_ms += [now] if numbers_lost(agent, now) else []
    looks_ms = (1, 2, 4, 5)  # after a check was sent
    seen_ms = next(ms for ms in looks_ms if ms >= min(way_ms[plane] for plane in (0, 1, 3)))
    assert told_ms[:1] == ([sent_ms + 15 + seen_ms] if silent else [])


def burst_lost(agent: Agent, now: int) -> tuple[int, ...] | None:
    """The rows of the burst that an agent takes for lost; None: not judged yet."""
    agent.bursts(now * MS)
    report = agent.report(now * MS)
    return None if report is None or not report.bursts else report.bursts[0].lost


def asked() -> tuple[Agent, Send]:
    """An agent that sends a burst at 0, and nothing else before 15 ms."""
    agent = Agent(SCHEDULE, 4, 0)
    agent.ask(1, int(links(SCHEDULE.fabric, "plane 0 t0 1 > t1 0")[0]), 8)
    burst, first = agent.due(0)
    agent.arrive(0, back(agent, 0, first.numbers, set()))
    return agent, burst


def test_a_burst_has_its_time_from_when_it_has_left() -> None:
    agent, burst = asked()
    agent.left(8 * MS, [burst])
    agent.due(10 * MS)
    assert agent.next_ps == 13 * MS
    (check,) = agent.due(13 * MS)
    agent.arrive(14 * MS, answered(check, 4))
    agent.due(14 * MS)
    assert burst_lost(agent, 15) is None
    assert agent.next_ps == 15 * MS
    assert burst_lost(agent, 16) == tuple(burst.numbers)  # its way may be three times as long


def test_where_a_check_takes_long_a_burst_has_its_time_and_no_more() -> None:
    agent, burst = asked()
    (check,) = agent.due(5 * MS)
    agent.arrive(8 * MS, answered(check, 4))
    agent.due(8 * MS)
    assert burst_lost(agent, 9) is None
    assert burst_lost(agent, 10) == tuple(burst.numbers)


def test_a_burst_is_not_judged_before_a_check_has_returned() -> None:
    agent, burst = asked()
    (check,) = agent.due(5 * MS)
    for now in (10, 15):
        assert [send.kind for send in agent.due(now * MS)] == [CHECK]
    assert burst_lost(agent, 19) is None
    agent.arrive(19 * MS, answered(check, 4, planes=[0]))
    assert burst_lost(agent, 19) == tuple(burst.numbers)


def test_another_planes_check_may_overtake_a_burst() -> None:
    agent, burst = asked()
    (check,) = agent.due(5 * MS)
    agent.arrive(6 * MS, answered(check, 4, planes=[3]))
    agent.due(6 * MS)
    agent.due(10 * MS)
    assert burst_lost(agent, 10) is None
    assert agent.next_ps <= 11 * MS
    assert burst_lost(agent, 11) == tuple(burst.numbers)


def test_a_burst_of_which_more_comes_after_a_check_needs_another() -> None:
    agent, burst = asked()
    first, second = burst.numbers
    (check,) = agent.due(5 * MS)
    agent.arrive(6 * MS, answered(check, 4))
    agent.due(6 * MS)
    agent.arrive(7 * MS, packed([Heard(BURST, 0, 4, 1, first)]))
    assert burst_lost(agent, 8) is None
    assert agent.next_ps <= 8 * MS
    (again,) = agent.due(8 * MS)
    assert burst_lost(agent, 10) is None
    agent.arrive(11 * MS, answered(again, 4))
    assert burst_lost(agent, 11) == (second,)


def test_what_comes_of_a_burst_together_with_a_check_came_before_it() -> None:
    agent, burst = asked()
    first, second = burst.numbers
    (check,) = agent.due(5 * MS)
    row = packed([Heard(BURST, 0, 4, 1, first)])
    agent.arrive(12 * MS, np.concatenate([row, answered(check, 4)]))
    assert burst_lost(agent, 12) == (second,)


def test_probes_of_bursts_that_nobody_orders_fill_no_memory() -> None:
    agent = Agent(SCHEDULE, 4, 0)
    forged = [Heard(BURST, 0, 5, number, row) for number in range(200) for row in (3, 99, 100)]
    agent.arrive(0, packed(forged))
    agent.due(0)
    assert len(agent._received) <= BURSTS_MAX
    assert agent.count(199).heard == (3, 99)


class Ports:
    """What `run` asks of ports: the kernel says nothing of them, and each wait ends at once. The
    n-th look, from 1, finds those down that `down_at` returns for n.
    """

    def __init__(self, down_at: Callable[[int], list[int]]) -> None:
        self.looks = 0
        self._down_at = down_at

    def heed(self, link: None) -> None:
        pass

    def changed(self) -> bool:
        return False

    def down(self) -> list[int]:
        self.looks += 1
        return self._down_at(self.looks)

    def probe_until(self, until_ps: int) -> int:
        return 0


def rounds(agent: Agent, ports: Ports, n: int, zero_ns: int | None = None) -> list[dict[str, Any]]:
    """Run an agent `n` times round; return what it told."""
    told, stops = list[dict[str, Any]](), iter([False] * n + [True])
    zero_ns = time.monotonic_ns() if zero_ns is None else zero_ns
    run.run(agent, ports, None, told.append, lambda: next(stops), zero_ns)  # type: ignore[arg-type]
    return told


def test_who_loses_a_probe_looks_at_its_ports_though_the_kernel_says_nothing() -> None:
    agent = Agent(SCHEDULE, 0, 0)

    class Lossy(Ports):
        def probe_until(self, until_ps: int) -> int:
            if self.looks == 1:
                (first,) = agent.due(0)
                agent.arrive(5 * MS, back(agent, 0, first.numbers, {2}))
                (check,) = agent.due(5 * MS)
                agent.arrive(6 * MS, answered(check))
                agent.due(6 * MS)
            return 0

    told = rounds(agent, Lossy(lambda look: [] if look == 1 else [2]), 2)
    assert [(len(one["report"]["lost"]), one["report"]["down"]) for one in told] == [(1, [2])]


def test_without_news_plain_python_runs_once_a_report() -> None:
    waits = list[int]()

    class Waiting(Ports):
        def probe_until(self, until_ps: int) -> int:
            waits.append(until_ps)
            return 0

    ports = Waiting(lambda look: [])
    # Three seconds have passed, so only the first wait has a report due.
    told = rounds(Agent(SCHEDULE, 0, 0), ports, 3, time.monotonic_ns() - 3 * 10**9)
    assert len(told) == 1
    assert waits[0] == TELL_PS
    assert all(until_ps >= 3 * S + TELL_PS for until_ps in waits[1:])
    assert ports.looks == 1  # at the start


def test_a_port_that_is_down_at_the_start_and_comes_back_is_told_though_the_kernel_is_silent() -> (
    None
):
    told = rounds(Agent(SCHEDULE, 0, 0), Ports(lambda look: [1] if look <= 3 else []), 5)
    assert [one["report"]["down"] for one in told] == [[1], []]


@pytest.mark.parametrize(
    ("periods", "lost", "late", "said"),
    [
        (
            1200,
            0,
            0,
            "sent 14,400 probes, 12 in each of 1,200 periods: all is well, none was lost.",
        ),
        (5, 3, 1, "12 in each of 5 periods: 3 were lost, of which 1 came after all."),
        (0, 0, 0, "sent 0 probes, 12 in each of 0 periods: the time was shorter than one"),
    ],
)
def test_an_agent_says_in_the_end_what_it_probed(
    periods: int, lost: int, late: int, said: str
) -> None:
    one = Order(list(range(12)), [], [], [])
    agent: Any = SimpleNamespace(nic=4, periods=periods, orders=[one])
    seen = Seen()
    miss = Loss(0, 0, 0)
    seen.add(Report(0, periods, [miss] * lost, [], []))
    seen.add(Report(0, 0, [], [miss] * late, []))
    assert seen.line(agent).startswith("nic 4 sent ")
    assert seen.line(agent).endswith(said)
