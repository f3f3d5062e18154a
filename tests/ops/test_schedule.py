"""The mapper's schedule: what is crossed, how often, and carriers walked through real tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.tables import OWN, Table, table
from openmrc.fabric.usid import ADDRESS_BITS, BLOCK, USID_BITS, UsidPlan
from openmrc.ops import schedule as sc
from openmrc.units import MS

GBPS = 10**9
RATE = 100 * GBPS


def of(nics: int, planes: int, down: int, up: int) -> Fabric:
    return multiplane(nics, planes, RATE, down, up, 0, 0)


def walked(tables: list[Table], fabric: Fabric, port: int, address: int) -> list[int]:
    """The directed ports of a packet with this carrier that a NIC sends by `port`."""
    ports = [port]
    while (switch := int(fabric.port_peer_switch[port])) >= 0:
        front = address >> ADDRESS_BITS - 3 * USID_BITS
        port = tables[switch][front]
        if port == OWN:
            rest = address & (1 << ADDRESS_BITS - 3 * USID_BITS) - 1
            address = BLOCK << ADDRESS_BITS - 2 * USID_BITS | rest << USID_BITS
            port = tables[switch][address >> ADDRESS_BITS - 3 * USID_BITS]
        ports.append(port)
    return ports


def carrier_of(carriers: sc.Carriers, route: list[int]) -> int:
    return int.from_bytes(carriers.of([route]).tobytes(), "big")


@pytest.mark.parametrize("fabric", [of(16, 2, 4, 4), of(10, 1, 4, 3)], ids=["even", "partial"])
def test_every_carrier_leads_through_the_static_tables_along_the_links_of_its_probe(
    fabric: Fabric,
) -> None:
    plan = UsidPlan(fabric)
    tables = [table(plan, switch) for switch in range(fabric.n_switches)]
    schedule, carriers = sc.make(fabric, k=5), sc.Carriers(plan)
    seen = set()
    for turn in range(3):
        kinds = schedule.kinds(turn, np.arange(schedule.n_probes))
        for kind, route in zip(kinds.tolist(), schedule.routes(turn).tolist(), strict=True):
            ports = [port for port in route if port >= 0]
            assert walked(tables, fabric, ports[0], carrier_of(carriers, route)) == ports
            home = fabric.port_nic[ports[0]] == fabric.port_peer_nic[ports[-1]]
            assert home == (kind != sc.ONE_WAY)
            seen.add((kind, len(ports)))
    expected = {(sc.LOCAL_LOOP, 2), (sc.ONE_WAY, 2), (sc.ONE_T1, 4), (sc.TWO_T1S, 6)}
    assert seen == expected


def crossings(schedule: sc.Schedule, turn: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By port, switch and NIC: how many probes cross each, counted one by one."""
    fabric = schedule.fabric
    ports = np.zeros(fabric.n_ports, np.int64)
    switches = np.zeros(fabric.n_switches, np.int64)
    nics = np.zeros(fabric.n_nics, np.int64)
    for route in schedule.routes(turn):
        route = route[route >= 0]
        assert len(set(route.tolist())) == len(route)
        ports[route] += 1
        passed = fabric.port_peer_switch[route]
        switches[np.unique(passed[passed >= 0])] += 1
        nics[np.unique([fabric.port_nic[route[0]], fabric.port_peer_nic[route[-1]]])] += 1
    return ports, switches, nics


@settings(max_examples=25, deadline=None)
@given(
    nics=st.integers(2, 14),
    planes=st.integers(1, 2),
    down=st.integers(1, 5),
    up=st.integers(1, 4),
    k=st.integers(1, 12),
    turn=st.integers(0, sc.TURNS - 1),
)
def test_every_directed_link_is_crossed_k_times_and_equally_within_its_tier(
    nics: int, planes: int, down: int, up: int, k: int, turn: int
) -> None:
    schedule = sc.make(of(nics, planes, down, up), k)
    ports, switches, nics_crossed = crossings(schedule, turn)
    fabric = schedule.fabric
    of_nic = (fabric.port_nic >= 0) | (fabric.port_peer_nic >= 0)
    assert set(ports[~of_nic].tolist()) == {k}
    assert set(ports[of_nic].tolist()) == {schedule.per_port}
    assert schedule.per_port >= k
    for counted, said in zip((ports, switches, nics_crossed), schedule.crossed, strict=True):
        assert counted.tolist() == said.tolist()


def test_a_full_fabric_takes_ten_small_probes_a_port_and_a_hundredth_of_the_allowed_load() -> None:
    schedule = sc.make(of(1024, 8, 32, 32))
    assert sc.PROBE_BYTES == 102
    assert schedule.per_port == schedule.k == 10
    assert schedule.n_probes == 81_920
    assert schedule.period_ps == 1 * MS
    assert schedule.load == pytest.approx(10 * 102 * 8 / 1e-3 / 100e9)
    # a burst of 100 beside the usual ten stays within 0.1 %
    assert (sc.BURST_MAX + 10) * sc.PROBE_BYTES * 8 / 1e-3 / 100e9 < sc.LOAD_MAX


def test_the_limit_on_load_rules_the_period() -> None:
    fabric = multiplane(16, 2, GBPS, 4, 4, 0, 0)
    schedule = sc.make(fabric, period_ps=1 * MS, load_max=0.001)
    assert schedule.period_ps == 10 * 102 * 8 * MS // 1000  # 8.16 ms at 1 Gb/s
    assert schedule.load <= 0.001
    assert sc.make(fabric, period_ps=20 * MS, load_max=0.01).period_ps == 20 * MS


def test_partners_change_from_turn_to_turn() -> None:
    schedule = sc.make(of(64, 1, 8, 8))
    assert (schedule.routes(0) != schedule.routes(1)).any()
    route_sets = {tuple(r) for turn in range(sc.TURNS) for r in schedule.routes(turn).tolist()}
    assert len(route_sets) > 3 * schedule.n_probes


def test_some_of_the_probes_can_be_asked_for() -> None:
    schedule = sc.make(of(16, 2, 4, 4))
    numbers = [3, 200, 77]
    assert (schedule.routes(5, numbers) == schedule.routes(5)[numbers]).all()


def test_a_burst_crosses_its_link_and_as_many_others_as_there_are() -> None:
    fabric = of(64, 2, 8, 8)
    schedule, plan = sc.make(fabric), UsidPlan(fabric)
    carriers = sc.Carriers(plan)
    tables = [table(plan, switch) for switch in range(fabric.n_switches)]
    for port in range(0, fabric.n_ports, 7):
        burst = schedule.burst(port, 40)
        assert ((burst == port).sum(axis=1) == 1).all()
        others = np.bincount(burst[burst >= 0], minlength=fabric.n_ports)
        others[port] = 0
        assert others.max() <= 8  # no other link is crossed by more than a fifth of them
        for route in burst[::13].tolist():
            ports = [each for each in route if each >= 0]
            assert walked(tables, fabric, ports[0], carrier_of(carriers, route)) == ports


def test_what_cannot_be_mapped_is_refused() -> None:
    with pytest.raises(InputError, match="3 tiers; probes turn round in two"):
        sc.make(fat_tree(32, GBPS, 4, 4, 0, 0, tiers=3))
    with pytest.raises(InputError, match="0 crossings"):
        sc.make(of(16, 2, 4, 4), k=0)


def test_opposite_directions_tell_suspects_from_their_switch_where_loops_are_few() -> None:
    few, many = sc.make(multiplane(8, 4, GBPS, 4, 2, 0, 0)), sc.make(of(64, 2, 8, 8))
    fabric = few.fabric
    up = int(np.flatnonzero((fabric.port_nic < 0) & (fabric.port_peer_nic < 0))[0])
    own = 3
    assert few.beside([own, up]) == [int(fabric.port_reverse[up])]
    assert few.beside([up, int(fabric.port_reverse[up])]) == []
    assert few.beside([own]) == [int(fabric.port_reverse[own])]
    assert few.beside([]) == []
    fabric = many.fabric
    up = int(np.flatnonzero((fabric.port_nic < 0) & (fabric.port_peer_nic < 0))[0])
    assert many.beside([up]) == []


def test_with_the_opposite_directions_a_third_of_what_crosses_a_t1_avoids_the_suspect() -> None:
    schedule = sc.make(multiplane(8, 4, GBPS, 4, 2, 0, 0))
    fabric = schedule.fabric
    is_t1 = np.append(fabric.sw_tier == 1, False)
    ups = np.flatnonzero(is_t1[fabric.port_peer_switch])
    t1 = fabric.port_peer_switch[ups[0]]
    up, far = np.flatnonzero(fabric.port_peer_switch == t1).tolist()
    suspects = [up, int(fabric.port_reverse[far])]  # a loop over two T1s crosses both
    ports = [*suspects, *schedule.beside(suspects)]
    assert sorted(ports) == sorted([up, far, *fabric.port_reverse[[up, far]].tolist()])
    probes = np.concatenate([schedule.burst(port, 40) for port in ports])
    over = ((fabric.port_peer_switch[probes] == t1) & (probes >= 0)).any(axis=1)
    past = over & ~(probes == up).any(axis=1)
    assert past.sum() >= over.sum() / 3
