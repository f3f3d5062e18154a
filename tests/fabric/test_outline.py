"""A fabric as its senders know it where switches hash."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.outline import SOURCE_PORT_BITS, outline
from openmrc.fabric.ways import routes

FABRICS = (
    multiplane(20, 3, 10**9, 6, 4, 0, 0),
    fat_tree(64, 10**9, 4, 4, 0, 0, tiers=3, t1_down=4, t1_up=2),
    fat_tree(24, 10**9, 6, 3, 0, 0),
)


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_path_of_a_plane_is_the_one_that_the_outline_has(fabric: Fabric) -> None:
    found = outline(fabric)
    rng = np.random.default_rng(3)
    for _ in range(50):
        src, dst = (int(nic) for nic in rng.choice(fabric.n_nics, 2, replace=False))
        plane = int(rng.integers(fabric.n_planes))
        index = int(rng.integers(fabric.n_paths(src, dst, plane)))
        ways = fabric.route(src, dst, fabric.ev_of_path(src, dst, plane, index))
        source_port = int(rng.integers(1 << SOURCE_PORT_BITS))
        (known,) = routes(found.fabric, [src], [dst], [plane << SOURCE_PORT_BITS | source_port])
        assert found.port_of[ways].tolist() == known[known >= 0].tolist()
        for port in ways:
            switch, peer = fabric.port_switch[port], fabric.port_peer_switch[port]
            if switch >= 0 and peer >= 0:
                ends = (found.fabric.port_switch, found.fabric.port_peer_switch)
                there = tuple(int(end[found.port_of[port]]) for end in ends)
                assert there == tuple(found.switch_of[[switch, peer]].tolist())


@pytest.mark.parametrize("fabric", FABRICS)
def test_nics_and_t0s_keep_their_names_and_all_above_stands_for_all_that_there_is(
    fabric: Fabric,
) -> None:
    found = outline(fabric)
    for port in range(found.fabric.n_ports):
        names = {fabric.port_name(each) for each in found.ports(port).tolist()}
        if found.fabric.port_name(port).startswith("nic"):
            assert names == {found.fabric.port_name(port)}
        else:
            assert len(names) > 1
    for switch in range(found.fabric.n_switches):
        names = {fabric.switch_name(each) for each in found.switches(switch).tolist()}
        is_t0 = found.fabric.sw_tier[switch] == 0
        assert (names == {found.fabric.switch_name(switch)}) == is_t0
    every = [found.ports(port) for port in range(found.fabric.n_ports)]
    assert sorted(np.concatenate(every).tolist()) == list(range(fabric.n_ports))


def test_counts_are_shared_equally_and_summed_again() -> None:
    found = outline(FABRICS[1])
    counts = np.arange(found.fabric.n_ports, dtype=np.float64)
    shared = found.spread(counts)
    assert np.allclose(np.bincount(found.port_of, shared), counts)
    for port in range(found.fabric.n_ports):
        assert len(set(shared[found.ports(port)].tolist())) == 1
