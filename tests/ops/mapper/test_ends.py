"""Agents on an ordinary network: who probes whom, what is named, and real hosts that do it."""

from __future__ import annotations

import json
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.ops.mapper import ends
from openmrc.ops.mapper.agent import Agent
from openmrc.ops.mapper.agent import order as agent_order
from openmrc.ops.mapper.ends import EndSchedule
from openmrc.ops.mapper.probe import SCHEDULED
from openmrc.ops.schedule import ONE_WAY, TURNS
from openmrc.scenario.scenario import fabric_section
from openmrc.units import MS
from tests.live.lab.conftest import ROOT, TIMEOUT_S, needed
from tests.ops.mapper.world import Heard, World, packed

LIMIT_MS = 60


def network(hosts: int, planes: int) -> ends.Network:
    addresses = [[f"10.{plane}.0.{host + 1}" for plane in range(planes)] for host in range(hosts)]
    found = tuple(tuple(map(ip_address, one)) for one in addresses)
    return ends.Network(found, 10**9)


def schedule(hosts: int, planes: int = 3) -> EndSchedule:
    one = network(hosts, planes)
    return one.schedule(fabric_section(one.fabric_table).build(), 10, 20 * MS, 0.01)


@pytest.mark.parametrize("hosts", [2, 3, 8])
def test_each_direction_of_each_link_is_crossed_k_times_and_every_pair_probes(hosts: int) -> None:
    made = schedule(hosts)
    pairs = set()
    for turn in range(TURNS):
        routes = made.routes(turn)
        assert (made.kinds(turn, np.arange(made.n_probes)) == ONE_WAY).all()
        crossed = np.bincount(routes[:, :2].ravel(), minlength=made.fabric.n_ports)
        assert (routes[:, 2:] == -1).all()
        assert crossed.tolist() == made.crossed[0].tolist()
        pairs |= {
            (int(a), int(b))
            for a, b in zip(
                made.fabric.port_nic[routes[:, 0]],
                made.fabric.port_peer_nic[routes[:, 1]],
                strict=True,
            )
        }
    assert pairs == {(a, b) for a in range(hosts) for b in range(hosts) if a != b}


@pytest.mark.parametrize("rate", [1.0, 0.1])
@pytest.mark.parametrize("way", ["nic 3 plane 2 > t0", "nic 3 plane 2 < t0"])
def test_a_hosts_plane_is_named_with_its_direction(way: str, rate: float) -> None:
    world = World(schedule(6), seed=3)
    world.run(211)
    assert not world.found
    world.lose(way, rate)
    world.run(250)
    assert world.names() == {way}
    ((at_ps, place),) = world.found
    assert at_ps - (world.first_lost_ps or 0) <= LIMIT_MS * MS
    assert place.rate == pytest.approx(rate, rel=0.6)


def test_a_plane_that_loses_all_is_one_place() -> None:
    world = World(schedule(4))
    world.run(200)
    for nic in range(4):
        world.lose(f"nic {nic} plane 1 > t0")
    world.run(300)
    assert world.names() == {"plane 1 t0 0"}


GOOD = '[network]\nrate = "1Gbps"\nhosts = [["10.0.0.1", "10.1.0.1"], ["10.0.0.2", "10.1.0.2"]]\n'


def test_a_network_is_read_and_a_host_finds_itself(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(GOOD)
    assert ends.is_one(file)
    found = ends.read(file)
    assert (len(found.hosts), found.rate_bps) == (2, 10**9)
    assert found.own([*found.hosts[1], *map(ip_address, ["127.0.0.1"])]) == 1
    with pytest.raises(InputError, match="no host in it"):
        found.own(found.hosts[1][:1])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("[network", "no TOML"),
        ('[fabric]\nkind = "multiplane"\n', r"\[network\] is accepted"),
        (GOOD.replace("rate", "speed"), "the keys are"),
        (GOOD.replace("1Gbps", "1"), "a rate such as"),
        (GOOD.replace('"10.1.0.2"', '"e1"'), "a list of addresses"),
        (GOOD.replace('"10.0.0.2", ', ""), "as many planes"),
        (GOOD.replace('["10.0.0.1", "10.1.0.1"], ', ""), "2 to 1024"),
        (GOOD.replace("10.1.0.2", "10.0.0.1"), "all addresses differ"),
        (GOOD.replace("10.1.0.2", "fd00::1"), "of one version"),
    ],
)
def test_what_is_no_network_is_refused(tmp_path: Path, wrong: str, says: str) -> None:
    file = tmp_path / "network.toml"
    file.write_text(wrong)
    with pytest.raises(InputError, match=says):
        ends.read(file)


class OnePair(World):
    """What NIC 1 sends to NIC 4 on plane 2 is lost, and nothing else."""

    def _send(self, route: list[int], probe: Heard) -> None:
        fabric = self.fabric
        src, dst = int(fabric.port_nic[route[0]]), int(fabric.port_peer_nic[route[1]])
        if (src, dst) == (1, 4) and route[0] % fabric.n_planes == 2 and self.now_ps > 200 * MS:
            return
        super()._send(route, probe)


def test_what_one_pair_of_hosts_loses_blames_neither() -> None:
    world = OnePair(schedule(5, 3))
    world.run(900)
    assert world.names() == set()


def heard_of_host_1(made: EndSchedule) -> list[Heard]:
    """What host 1 sends to host 0 in two periods, in its order."""
    return [
        Heard(SCHEDULED, plane, 1, period, place)
        for period in (0, 1)
        for place, (plane, route) in enumerate(zip(*agent_order(made, 1, period)[1:3], strict=True))
        if made.fabric.port_peer_nic[route[1]] == 0
    ]


def test_a_host_that_stands_still_between_any_two_probes_has_lost_none() -> None:
    made = schedule(3, 2)
    mine = heard_of_host_1(made)
    for sent in range(2, len(mine)):
        agent = Agent(made, 0, 0)
        agent.arrive(MS, packed(mine[:sent]))
        for now in range(2, 100):
            agent.due(now * MS)
            assert agent.report(now * MS) is None
        agent.arrive(100 * MS, packed([mine[sent]]))
        agent.due(120 * MS)
        assert agent.report(120 * MS) is None
        if sent + 2 < len(mine):
            agent.arrive(121 * MS, packed(mine[sent + 2 :]))
            agent.due(140 * MS)
            report = agent.report(140 * MS)
            assert report is not None
            missing = mine[sent + 1]
            number = agent_order(made, 1, missing.period).numbers[missing.number]
            assert [(one.number, one.turn) for one in report.lost] == [(number, missing.period)]


def test_what_was_overtaken_once_is_waited_for_longer() -> None:
    """A busy host hands on what came to one core long after what came to another."""
    made = schedule(3, 2)
    mine = heard_of_host_1(made)
    agent = Agent(made, 0, 0)

    def lost(later: Heard, at_ms: int, after_ms: int) -> bool:
        agent.arrive(at_ms * MS, packed([later]))
        agent.due((at_ms + after_ms) * MS)
        return agent.report((at_ms + after_ms) * MS) is not None

    agent.arrive(MS, packed(mine[:1]))
    assert lost(mine[2], 2, 12)  # mine[1] is missing
    agent.arrive(20 * MS, packed(mine[1:2]))  # 18 ms after: it was late
    late = agent.report(20 * MS)
    assert late is not None
    assert len(late.late) == 1
    assert not lost(mine[4], 21, 15)
    assert lost(mine[6], 40, 30)


def test_hosts_of_an_ordinary_network_name_what_breaks() -> None:
    needed("linux")
    done = subprocess.run(
        [sys.executable, "benchmarks/mapper_ip.py", "--hosts", "3", "--trials", "1", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["kind"] for row in rows] == ["quiet", "cut", "sends nothing", "hears nothing"]
    assert [row["found"] for row in rows] == [row["truth"] for row in rows]
