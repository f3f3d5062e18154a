"""What an agent makes of answers that do not come: a NIC in virtual time, whose answers a test
takes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from openmrc.capi.control.formats import Ev
from openmrc.fabric.clos import multiplane
from openmrc.nics import agent as agents
from openmrc.nics.agent import NicAgent
from openmrc.nics.nic import HAS_PROBES, Answer, Device, Request
from openmrc.nics.simulated import SimulatedNic
from openmrc.ops import evs
from openmrc.ops.mapper.agent import Round
from openmrc.ops.schedule import TURNS
from openmrc.units import MS, NS, S

FABRIC = multiplane(6, 2, 10**8, 2, 2, 0, 0)  # three T0s of two NICs, two T1s, on two planes
GIDS = [bytes([nic]) * 16 for nic in range(6)]


class Quiet(SimulatedNic):
    """A NIC that has probes alone; each is answered after 1 ms if `answers` says so."""

    def __init__(self) -> None:
        self.now_ps = 0
        self.answers: Callable[[int, Ev], bool] = lambda to, ev: True
        self.took_ps = MS

    def query_device(self) -> Device:
        return Device((1, 2), 8, 2, 32, 1, 3, 0, HAS_PROBES)

    def query_port(self, port: int) -> bool:
        return True

    def modify_ev_profile(self, *given: Any, **named: Any) -> None:
        pass

    def ep_batch_send_wait(self, requests: Sequence[Request], timeout_ns: int) -> list[Answer]:
        came = [one for one in requests if self.answers(one.to[0], one.ev)]
        self.now_ps += MS if len(came) == len(requests) else timeout_ns * NS
        return [Answer(one.number, one.ev.port, self.took_ps // NS) for one in came]


class Story:
    def __init__(self) -> None:
        self.nic = Quiet()
        schedule = evs.make(FABRIC, 10, MS, 0.5)
        self.agent = NicAgent(
            self.nic, schedule, 0, GIDS, lambda words: None, lambda: self.nic.now_ps, 0
        )
        self.agent.start()
        self.period = -1
        for _ in range(TURNS):
            self.round()  # all NICs have answered

    def round(self) -> tuple[set[tuple[int, int]], list[Round]]:
        """The NIC and the plane of each lost probe; and what was told of what was asked."""
        self.period += 1
        report = self.agent.round(self.period)
        return self.asked((one.turn, one.number) for one in report.lost), report.rounds

    def asked(self, which: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
        """The NIC and the plane that probes ask, given their turn and number."""
        found = set()
        for turn, number in which:
            asked = self.agent.schedule.asked(self.agent.schedule.routes(turn, [number]))
            found.add((int(asked.nic[0]), int(asked.plane[0])))
        return found

    def told(self, rounds: Sequence[Round]) -> set[tuple[int, int]]:
        every = self.agent._turns[0].numbers.tolist()
        return self.asked((one.turn, n) for one in rounds for n in one.numbers or every)


@pytest.fixture
def story() -> Story:
    return Story()


def is_dead(ev: Ev) -> bool:
    """Whether an EV is that of the T1 0 of plane 0."""
    hops = FABRIC.hops(int.from_bytes(ev.value[:4], "big"))
    return (hops.plane, hops.up0) == (0, 0)


def test_a_whole_round_is_told_with_its_time(story: Story) -> None:
    before_ps = story.nic.now_ps
    lost, rounds = story.round()
    assert (lost, rounds) == (set(), [Round(story.period % TURNS, before_ps)])


def test_what_others_say_that_both_hosts_ran_is_lost_and_told_when_it_was_asked_last(
    story: Story,
) -> None:
    story.nic.answers = lambda to, ev: not is_dead(ev)
    began_ps = story.nic.now_ps
    lost, rounds = story.round()
    assert lost
    assert {plane for _, plane in lost} == {0}
    answered, again = sorted(rounds, key=lambda one: one.at_ps)
    assert (answered.at_ps, again.at_ps) == (began_ps, began_ps + evs.TIMEOUT_PS)
    assert story.asked((again.turn, n) for n in again.numbers or ()) == lost


def test_a_host_that_stands_still_has_lost_nothing(story: Story) -> None:
    still = 3
    story.nic.answers = lambda to, ev: to != still
    for _ in range(5):
        lost, rounds = story.round()
        assert not lost
        assert still not in {nic for nic, _ in story.told(rounds)}


def test_a_nic_that_answers_nothing_for_a_second_is_lost(story: Story) -> None:
    dead = 3
    story.nic.answers = lambda to, ev: to != dead
    while not (lost := story.round()[0]):
        assert story.nic.now_ps < 3 * S
    assert {nic for nic, _ in lost} == {dead}
    story.nic.answers = lambda to, ev: True
    assert not story.round()[0]


def test_while_our_own_host_stands_still_nothing_is_lost(story: Story) -> None:
    story.nic.answers = lambda to, ev: False
    assert story.round() == (set(), [])
    calls: list[None] = []

    def at_first(to: int, ev: Ev) -> bool:
        """Only the first batch is answered, in part."""
        calls.append(None)
        return len(calls) <= 10 and not is_dead(ev)

    story.nic.answers = at_first
    lost, rounds = story.round()
    assert not lost
    assert story.told(rounds)  # what was answered was


def test_a_witness_that_answers_at_the_last_moment_is_none(story: Story) -> None:
    """Then what is missing may have been under way when the time was up."""
    story.nic.answers, story.nic.took_ps = lambda to, ev: not is_dead(ev), agents.AGAIN_PS - MS
    assert not story.round()[0]


def test_what_cannot_be_known_of_a_burst_is_said(story: Story) -> None:
    f = FABRIC
    port = int(f.sw_first_up[f.port_peer_switch[0]])  # plane 0 t0 0 - t1 0
    story.nic.answers = lambda to, ev: to != 3 and not is_dead(ev)
    story.agent.ask(7, port, 20)
    [burst] = story.agent.round(story.period + 1).bursts
    routes = story.agent.schedule.burst(port, 20, 7)
    to = story.agent.schedule.asked(routes).nic
    mine = np.flatnonzero(f.port_nic[routes[:, 0]] == 0)
    assert set(burst.unknown) == {int(i) for i in mine if to[i] == 3}
    assert set(burst.lost) == {int(i) for i in mine if to[i] != 3}
