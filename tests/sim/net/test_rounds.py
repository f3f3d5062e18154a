"""The rounds of a NIC's ports (rounds.py): all QPs get the same of every port, and planes keep
level, over times as short as a round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.world import World
from openmrc.workload.collectives import all_to_all
from tests.sim.lab import US, all_complete, clos, conserved, plane_turns, sender, world_of

SIZE = 16_000_000


def pairs(nics: int = 16, planes: int = 4, size: int = SIZE, **more: object) -> World:
    """Each of these NICs sends to all others at once, more than the test lasts."""
    fabric = clos(nics, planes, nics // 4, 2 * nics)
    return world_of(fabric, all_to_all(nics, size), **more)  # type: ignore[arg-type]


def sent(world: World) -> npt.NDArray[np.int64]:
    """Packets of each QP (rows) on each plane (columns)."""
    return np.array([plane_turns(world, qp) for qp in range(world.traffic.n_qps)])


@pytest.mark.parametrize(("nics", "planes"), [(16, 4), (14, 4), (17, 8), (16, 3)])
def test_the_planes_of_a_qp_keep_level_however_many_there_are(nics: int, planes: int) -> None:
    """Whatever the number of QPs has in common with that of planes. MRC 3.4: planes are loaded
    evenly. The packet that is one ahead is that of a round that has not ended, and answers take
    their turn on some port first.
    """
    fabric = clos(nics, planes, nics, 2 * nics)
    world = world_of(fabric, all_to_all(nics, nics * 1_000_000))
    for until in (50, 100, 200):
        world.run(until * US)
        packets = sent(world)
        assert packets.sum(axis=1).min() > until / 2
        assert (packets.max(axis=1) - packets.min(axis=1)).max() <= 2
    assert world.counters()["trimmed"] == 0


def test_what_a_nic_receives_is_spread_evenly_over_its_ports() -> None:
    """No false incast at a port of a destination: its queue stays far below where it trims."""
    world = pairs()
    dst, deepest = world.traffic.qp_dst, 0
    for until in range(110, 310, 10):
        world.run(until * US)
        at_ports = np.array([sent(world)[dst == nic].sum(axis=0) for nic in range(16)])
        assert (at_ports.max(axis=1) - at_ports.min(axis=1)).max() <= 8
        deepest = max(deepest, int(world.net.port.data_queued_bytes.max()))
    assert deepest < world.values.queues.queue_last_hop_bytes / 2


def test_qps_of_a_nic_get_the_same() -> None:
    world = pairs()
    world.run(50 * US)
    before = sent(world)
    world.run(250 * US)
    packets = (sent(world) - before).sum(axis=1)
    for nic in range(16):
        mine = packets[world.traffic.qp_src == nic]
        assert mine.max() - mine.min() <= 4  # one on each port


def stands_in(world: World, qp: int) -> int:
    """The mask of the ports in whose rounds a QP stands."""
    return int(world.net.qp[int(world.ends.sender[qp])].ready)


def queue_of(world: World, port: int) -> list[int]:
    """The QPs in a port's round, from its first to its last."""
    plane = port % world.fabric.n_planes
    found, qi = [], int(world.net.round[port, 0])
    while qi >= 0:
        found.append(qi)
        qi = int(world.net.behind[qi, plane])
    return found


def rounds_are_whole(world: World) -> None:
    """Each QP stands where its mask says, once; and who may send stands at all ports of use."""
    planes = world.fabric.n_planes
    masks = np.zeros(len(world.net.qp), np.int64)
    for port in range(world.fabric.n_nics * planes):
        line = queue_of(world, port)
        assert len(set(line)) == len(line)
        assert not line or line[-1] == world.net.round[port, 1]
        for qi in line:
            assert world.engine.qp[qi].nic == port // planes
            masks[qi] |= 1 << port % planes
    assert masks.tolist() == np.asarray(world.net.qp.ready).tolist()


@pytest.mark.parametrize("cc", ["nscc", "none"])
def test_rounds_are_whole_while_windows_and_planes_close_and_open(cc: str) -> None:
    faults = [
        Fault(40 * US, "link-down", "nic 3 plane 1 - t0"),
        Fault(90 * US, "link-up", "nic 3 plane 1 - t0"),
        Fault(60 * US, "link-loss", "nic 5 plane 0 - t0", rate=0.05),
    ]
    world = pairs(8, size=1_600_000, faults=faults, cc=cc)
    for until in range(5, 200, 5):
        world.run(until * US)
        rounds_are_whole(world)
    all_complete(world)


def test_a_qp_stands_at_the_ports_of_its_usable_planes_only() -> None:
    world = pairs(faults=[Fault(20 * US, "link-down", "nic 3 plane 1 - t0")])
    world.run(100 * US)  # by then all have heard of it
    to_3 = np.flatnonzero(world.traffic.qp_dst == 3).tolist()
    assert all(int(sender(world, qp).planes_ok) == 0b1101 for qp in to_3)
    assert all(stands_in(world, qp) & 0b0010 == 0 for qp in to_3)
    before = sent(world)
    world.run(200 * US)
    more = (sent(world) - before)[to_3]
    assert (more[:, 1] == 0).all()
    assert (more[:, [0, 2, 3]] > 0).all()
    conserved(world)


def test_a_qp_of_a_small_window_is_not_starved() -> None:
    """One that may send a packet a round trip gets that, whoever else is ready."""
    world = pairs(cc="none")
    world.run(1)  # opens the QPs
    q = sender(world, 0)
    q.cwnd = q.pkt
    world.run(100 * US)
    packets = sent(world).sum(axis=1)
    others = packets[(world.traffic.qp_src == 0) & (np.arange(len(packets)) > 0)]
    assert 100 * US // (3 * world.values.base_rtt_ps) <= packets[0] < others.min()
