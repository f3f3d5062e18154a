"""The agent of a NIC over libmrc, in a fabric inside this process, while queue pairs run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from openmrc.capi import devices
from openmrc.capi.control import configuring, formats
from openmrc.capi.control.layouts import DENIED, GOOD
from openmrc.capi.control.profiles import State
from openmrc.capi.linked import Api
from openmrc.capi.places import Refused
from openmrc.fabric import places
from openmrc.fabric.clos import multiplane
from openmrc.nics import agent as agents
from openmrc.nics.agent import NicAgent
from openmrc.nics.library import Library
from openmrc.nics.nic import REPLACE, Entry
from openmrc.ops import evs
from openmrc.units import MS, NS
from openmrc.verbs.inside import Inside
from openmrc.wire import addresses
from tests.capi.control.ctl import Ctl
from tests.capi.control.fixtures import Transfer
from tests.capi.handles import Open

TO, DEAD = 3, "plane 1 t1 1"


def clock() -> int:
    return time.monotonic_ns() * NS


class Story:
    """A NIC with its agent, and a program with queue pairs in the same process."""

    def __init__(self, fabric: Inside, api: Api, library: Path) -> None:
        self.fabric, self.ctl = fabric, Ctl(Open(api), fabric)
        self.library = Library(library / "libmrc.so")
        gids = [addresses.ipv6(nic, 0).packed for nic in range(fabric.fabric.n_nics)]
        schedule = evs.make(fabric.fabric, 10, MS, 0.01)
        self.told: list[str] = []
        self.agent = NicAgent(self.library, schedule, 0, gids, self.told.append, clock)
        self.agent.start()
        for nic in range(1, fabric.fabric.n_nics):
            fabric.device(nic)
        self.period = 0

    def transfer(self) -> Transfer:
        return Transfer(self.ctl, *self.ctl.connect(TO, ev=agents.PROFILE))

    def lost(self) -> set[tuple[int, int]] | None:
        """Plane and uplink of the probes lost in a period; None if nothing can be said."""
        schedule, self.period = self.agent.schedule, self.period + 1
        self.agent.hear()
        report = self.agent.round(self.period)
        if not report.periods:
            return None
        found = set()
        for one in report.lost:
            routes = schedule.routes(one.turn, [one.number])
            [ev] = schedule.asked(routes).ev.tolist()
            hops = self.fabric.fabric.hops(ev)
            found.add((hops.plane, hops.up0))
        return found

    def until_lost(self, what: set[tuple[int, int]]) -> None:
        """On a busy machine hosts stand still, and nothing can be said for a while."""
        until = time.monotonic() + 30
        while self.lost() != what:
            assert time.monotonic() < until


@pytest.fixture
def story(api: Api, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Story]:
    """Six NICs on three T0s, two planes, two T1s each."""
    with Inside(multiplane(6, 2, 10**9, 2, 2, 0, 0)) as fabric:
        monkeypatch.setenv("OPENMRC_HOST", "within this process")
        monkeypatch.setattr(devices, "opened", lambda _: fabric.device(0))
        monkeypatch.setattr(configuring, "is_privileged", lambda: True)
        monkeypatch.setattr(agents, "AGAIN_PS", 200 * MS)
        found = Story(fabric, api, library)
        yield found
        found.library.close()
        api("ibv_close_device", found.ctl.there.context)


def test_what_a_switch_loses_is_lost_denied_and_used_again(story: Story) -> None:
    assert story.told == []
    agent, moving = story.agent, story.transfer()
    moving.write()
    assert set(moving.packets()) == set(agent.evs) == set(story.ctl.evs(TO))
    story.until_lost(set())
    story.fabric.lose(DEAD, 1.0)
    story.until_lost({(1, 1)})
    agent.keep_off(places.ports(story.fabric.fabric, DEAD))
    [dead] = agent.denied
    assert story.library.query_ev_profile(agents.PROFILE).evs[dead] == DENIED
    later = story.transfer()
    later.write(2)
    assert later.packets()[dead] == 0
    story.fabric.heal(DEAD)
    story.until_lost(set())
    agent.keep_off(np.zeros(0, np.int64))
    assert story.library.query_ev_profile(agents.PROFILE).evs[dead] == GOOD
    until = time.monotonic() + 30
    while not later.packets()[dead]:
        later.write()
        assert time.monotonic() < until
    every = places.ports(story.fabric.fabric, "everywhere")
    agent.keep_off(every)
    assert (agent.denied, len(story.told)) == (frozenset(), 1)  # else nothing could be sent


def test_evs_are_replaced_while_a_transfer_runs(story: Story) -> None:
    agent, f = story.agent, story.fabric.fabric
    four = list(agent.evs)
    half = [ev for ev in four if f.hops(int.from_bytes(ev.value[:4], "big")).up0 == 0]
    other = [ev for ev in four if ev not in half]
    api = story.library
    api.modify_ev_profile(2, State.OFFLINE, attributes={
        "mode": 2, "fmt_profile_id": agents.FORMAT, "count": 2, "min_active": 1, "event_mask": 3,
    })  # fmt: skip
    agent.profile, agent.evs = 2, [formats.UNPOPULATED] * 2
    agent._each(REPLACE, [Entry(formats.UNPOPULATED, ev) for ev in half])
    api.modify_ev_profile(2, State.ONLINE)
    agent.evs = half
    moving = Transfer(story.ctl, *story.ctl.connect(TO, ev=2))
    for evs_ in (other, half, other, half):
        moving.post()
        agent.replace(evs_)
        moving.finish()  # every byte is there
        assert set(moving.packets()) == set(evs_)
    with pytest.raises(Refused, match="each port"):
        agent.replace(four)


def test_all_14_calls_of_the_interface(story: Story) -> None:
    api = story.library
    device, supported = api.query_device_ex()
    assert (device, supported) == (api.query_device(), True)
    assert (device.ports, device.width, device.align) == ((1, 2), 32, 2)
    assert api.query_version() >= 1
    api.modify_port(2, False)
    assert (api.query_port(1), api.query_port(2), story.agent.down()) == (True, False, [1])
    api.modify_port(2, True)
    shown = api.query_ev_fmt_profile(agents.FORMAT)
    assert shown.attributes == {"mode": 1, "widths": "32"}
    config = {k: v for k, v in api.query_cc_profile(0).attributes.items() if k != "algorithm"}
    smaller = {k: float(v or 0) for k, v in config.items()} | {"max_cwnd": 20_000}
    api.modify_cc_profile(3, State.OFFLINE)
    api.modify_cc_profile(3, State.ONLINE, smaller)
    assert api.query_cc_profile(3).attributes["max_cwnd"] == 20_000
    assert api.poll_ev_event(4) == []
    with pytest.raises(Refused, match="EINVAL"):
        api.query_port(7)
