"""The same agents over NICs of a simulated world, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.capi.control.layouts import DENIED
from openmrc.capi.control.profiles import State
from openmrc.capi.places import Refused
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.nics.plan import planned
from openmrc.nics.simulated import Controlled
from openmrc.ops import evs
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.world import World
from openmrc.traffic.traffic import make_traffic
from openmrc.units import MS

FABRIC = multiplane(12, 2, 10**8, 4, 2, 0, 0)
SILENT_PS, HEALED_PS = 4 * MS + MS // 2, 40 * MS + MS // 2
DEAD = "plane 1 t1 0"


def controlled(profile: int = 0) -> Controlled:
    """Every NIC sends to one of another T0, for longer than any story here."""
    n = FABRIC.n_nics
    nics = np.arange(n)
    traffic = make_traffic("ring", n, nics, (nics + 4) % n, nics, 10**8)
    faults = [
        Fault(SILENT_PS, "switch-silent", DEAD),
        Fault(HEALED_PS, "switch-up", DEAD),
    ]
    schedule = compile_faults(faults, FABRIC)
    world = World(FABRIC, traffic, Transport(), schedule, shards=1)
    probes = replace(evs.make(FABRIC, 10, MS, 0.5), period_ps=MS)
    return Controlled(world, probes, profile)


def packets(there: Controlled, nic: int) -> dict[int, int]:
    """How often the queue pair of a NIC has used each EV."""
    engine = there.world.engine
    [(_, mine)] = there.agents[nic].api._qps  # type: ignore[attr-defined]  # a simulated one
    own = engine.ev[mine]
    return dict(zip(own.value.tolist(), own.used.tolist(), strict=True))


def test_a_silent_switch_is_named_denied_and_used_again() -> None:
    there = controlled()
    there.run(4 * MS)
    assert there.found == []
    there.run(8 * MS)
    assert [place.where for place in there.found] == [DEAD]
    assert there.found[0].named_ps - SILENT_PS <= 2 * MS
    dead = FABRIC.ev(1, 0)
    for agent in there.agents:
        assert {int.from_bytes(ev.value[:4], "big") for ev in agent.denied} == {dead}
        [denied] = agent.denied
        assert agent.api.query_ev_profile(0).evs[denied] == DENIED
    before = [packets(there, nic).get(dead, 0) for nic in range(12)]
    there.run(40 * MS)
    assert [packets(there, nic).get(dead, 0) for nic in range(12)] == before
    there.run(100 * MS)
    assert not any(agent.denied for agent in there.agents)
    assert len(there.found) == 1
    assert there.told == []


def test_queue_pairs_take_the_evs_that_are_planned() -> None:
    there = controlled(profile=1)
    assert there.told == []
    for agent in there.agents:
        wanted = {int.from_bytes(ev.value[:4], "big") for ev in planned(FABRIC, agent.nic, 64)}
        assert set(packets(there, agent.nic)) == wanted
    [first, *_] = there.agents
    half = [ev for ev in first.evs if ev.value[1] % 2 == 0]
    with pytest.raises(Refused, match="each port"):
        first.replace(half)
    there.run(2 * MS)
    assert there.world.bytes_wrong == 0


def test_what_a_simulated_nic_refuses() -> None:
    there = controlled()
    api = there.agents[0].api
    assert api.query_device_ex() == (api.query_device(), True)
    assert api.query_port(2)
    with pytest.raises(Refused, match="a fault of the world"):
        api.modify_port(1, False)
    with pytest.raises(Refused, match="1 to 2"):
        api.query_port(3)
    api.modify_ev_fmt_profile(5, State.OFFLINE, 1, [32])
    assert api.query_ev_fmt_profile(5).attributes == {"mode": 1, "widths": "32"}
    api.modify_cc_profile(2, State.OFFLINE)
    assert api.query_cc_profile(2).state == State.OFFLINE
    assert np.array_equal(there._denied, [])
