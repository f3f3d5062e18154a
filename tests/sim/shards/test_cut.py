"""Where fabrics are cut, and where they are not; which shard posts what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.actions import PORT_DOWN, REVIEW_PATHS, SWITCH_SILENT
from openmrc.fabric.clos import multiplane
from openmrc.fabric.faults import Fault, compile_faults
from openmrc.fabric.model import Fabric
from openmrc.sim.net.network import Ends
from openmrc.sim.shards.cut import EVERY, Cut, Uncut, cut, entries, of_faults, shards_of
from openmrc.traffic.traffic import Calcs, Traffic, make_traffic
from openmrc.workload.patterns import permutation
from tests.sim.lab import GBPS, NS, US, clos, tree


def found(fabric: Fabric, n: int) -> Cut:
    parts = cut(fabric, n)
    assert isinstance(parts, Cut)
    return parts


def why(fabric: Fabric, n: int) -> str:
    parts = cut(fabric, n)
    assert isinstance(parts, Uncut)
    return parts.why


@pytest.mark.parametrize(
    ("nics", "ports", "n"),
    [
        (1023, 1 << 20, 1),
        (1024, 4096, 2),  # one plane, two tiers
        (1024, 12_287, 2),
        (1024, 12_288, 3),
        (1024, 32_768, 8),  # eight planes, two tiers
        (1535, 6140, 2),  # one plane again
        (1536, 6144, 3),
        (8192, 32_768, 16),
        (131_072, 1 << 22, 64),
    ],
)
def test_only_the_size_of_a_fabric_says_into_how_many_shards_it_is_cut(
    nics: int, ports: int, n: int
) -> None:
    assert shards_of(replace(clos(), n_nics=nics, n_ports=ports)) == n


@pytest.mark.parametrize("fabric", [clos(16, 2, 2, 3), clos(16, 4, 2, 8), tree(16, 2, 2)])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_only_links_between_switches_cross(fabric: Fabric, n: int) -> None:
    parts = found(fabric, n)
    assert parts.n == n
    assert set(parts.nic.tolist()) == set(range(n))
    crosses = parts.port != parts.peer
    assert (fabric.port_switch[crosses] >= 0).all()
    assert (fabric.port_peer_switch[crosses] >= 0).all()
    assert parts.window_ps == 750 * NS
    assert (parts.port[fabric.port_reverse] == parts.peer).all()
    shares = np.bincount(parts.switch, minlength=n)
    assert shares.max() - shares.min() <= fabric.n_tiers * fabric.n_planes


def test_there_are_no_more_shards_than_t0s() -> None:
    assert found(clos(nics=16, down=4), 8).n == 4


def test_what_cannot_be_cut_says_so() -> None:
    assert "no more than" in why(clos(), 1)
    assert "same T0" in why(clos(nics=4, down=4), 8)
    at_once = multiplane(8, 2, 100 * GBPS, 2, 2, 0, 0)
    assert "delays" in why(at_once, 2)


def shards_of_entries(traffic: Traffic, n: int = 4) -> list[int] | str:
    fabric = clos(nics=8, planes=2, down=2, up=2)
    of = entries(found(fabric, n), traffic, Ends(traffic))
    return of.why if isinstance(of, Uncut) else of.tolist()


def test_a_message_is_its_senders() -> None:
    traffic = permutation(8, 1000, 1)
    assert shards_of_entries(traffic) == (traffic.qp_src[traffic.msg_qp] // 2).tolist()


def test_a_computation_is_where_its_releases_come_from_or_go_to() -> None:
    """Message 0 from NIC 0 to 6, its arrival starts a computation, whose end message 1 waits for;
    another computation comes before message 0.
    """
    traffic = make_traffic(
        "test", 8, [0, 6], [6, 0], [0, 1], 1000, recv=([0, 2, 3], [2, 1, 0]), calcs=Calcs([5, 5])
    )
    assert shards_of_entries(traffic) == [0, 3, 3, 0]


def test_a_chain_of_computations_is_in_one_shard() -> None:
    traffic = make_traffic(
        "test", 8, [6], [0], [0], 1000, recv=([1, 2, 3], [2, 3, 0]), calcs=Calcs([5, 5, 5])
    )
    assert shards_of_entries(traffic) == [3, 3, 3, 3]


def test_computations_of_a_core_are_in_one_shard() -> None:
    calcs = Calcs([5, 5], [1, 1])
    one = make_traffic("test", 8, [6], [0], [0], 1000, recv=([1], [0]), calcs=calcs)
    assert shards_of_entries(one) == [3, 3, 3]
    two = make_traffic("test", 8, [6, 0], [0, 6], [0, 1], 1000, recv=([2, 3], [0, 1]), calcs=calcs)
    assert "at once" in str(shards_of_entries(two))


def test_what_is_released_elsewhere_at_once_is_not_cut() -> None:
    """NIC 4 sends when NIC 2 has what NIC 0 sent; below one T0 that is no matter."""
    far = make_traffic("test", 8, [0, 4], [2, 6], [0, 1], 1000, recv=([0], [1]))
    assert "at once" in str(shards_of_entries(far))
    near = make_traffic("test", 8, [0, 3], [2, 6], [0, 1], 1000, recv=([0], [1]))
    assert shards_of_entries(near) == [0, 1]


def test_a_fault_happens_where_its_port_or_switch_is() -> None:
    fabric = clos(nics=8, planes=2, down=2, up=2)
    faults = [
        Fault(1 * US, "link-down", "plane 0 t0 3 - t1 1"),
        Fault(2 * US, "switch-silent", "plane 1 t0 2"),
        Fault(3 * US, "deny", "plane 1 t1 0"),
    ]
    events = compile_faults(faults, fabric).events.view(np.recarray)
    parts = found(fabric, 4)
    shard = of_faults(parts, events)
    down, silent = events.action == PORT_DOWN, events.action == SWITCH_SILENT
    assert set(shard[down].tolist()) == {3, int(parts.port[events.target[down]].min())}
    assert shard[silent].tolist() == [2]
    assert (shard[events.action == REVIEW_PATHS] == EVERY).all()
    assert (shard >= EVERY).all()
