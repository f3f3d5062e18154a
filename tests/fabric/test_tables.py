"""Every carrier of small fabrics, walked through the real tables, against the arithmetic."""

from __future__ import annotations

import pytest

from openmrc.errors import InputError
from openmrc.fabric import Fabric, fat_tree, multiplane
from openmrc.fabric.tables import OWN, build_tables, forward, walk
from openmrc.fabric.usid import UsidPlan

GBPS = 10**9


@pytest.mark.parametrize(
    ("fabric", "n_carriers"),
    [
        # pairs x planes x paths: below one T0 one path, else 4
        (multiplane(16, 4, GBPS, 4, 4, 0, 0), 4 * (16 * 3 + 16 * 12 * 4)),
        # sizes that are no powers of two, T0s and pods not full
        (multiplane(11, 3, GBPS, 4, 3, 0, 0), 3 * (30 + 80 * 3)),
        (fat_tree(32, GBPS, 2, 3, 0, 0, tiers=3, t1_down=3, t1_up=2), 32 + 120 * 3 + 840 * 6),
    ],
    ids=["two tiers", "uneven", "three tiers"],
)
def test_all_carriers_take_the_ports_that_the_ev_names(fabric: Fabric, n_carriers: int) -> None:
    plan = UsidPlan(fabric)
    tables = build_tables(plan)
    walked = 0
    for src in range(fabric.n_nics):
        for dst in set(range(fabric.n_nics)) - {src}:
            for plane in range(fabric.n_planes):
                for index in range(fabric.n_paths(src, dst, plane)):
                    ev = fabric.ev_of_path(src, dst, plane, index)
                    ports = walk(fabric, tables, src, plane, plan.carrier(src, dst, ev))
                    assert ports == fabric.route(src, dst, ev)
                    walked += 1
    assert walked == n_carriers


def test_a_table_holds_neighbours_and_the_t0s_below() -> None:
    fabric = multiplane(16, 4, GBPS, 4, 4, 0, 0)
    plan = UsidPlan(fabric)
    sizes = [len(table) for table in build_tables(plan)]
    assert sizes[:16] == [1 + 4 + 4] * 16  # T0: own, T1s, NICs
    assert sizes[16:] == [1 + 4] * 16  # T1: own, T0s
    t0 = build_tables(plan)[0]
    assert t0[0x2001_0DB8 << 16 | plan.t0(0, 0)] == OWN
    assert t0[0x2001_0DB8 << 16 | plan.t1(0, 2)] == fabric.sw_first_up[0] + 2


def test_a_switch_sees_its_own_usid_once_and_the_next_stays_in_front() -> None:
    fabric = multiplane(16, 4, GBPS, 4, 4, 0, 0)
    plan = UsidPlan(fabric)
    carrier = plan.carrier(0, 15, fabric.ev(0, 2))
    port, leaves = forward(build_tables(plan)[0], carrier)
    assert port == fabric.sw_first_up[0] + 2
    assert leaves >> 80 == 0x2001_0DB8 << 16 | plan.t1(0, 2)


def test_a_carrier_of_another_plane_has_no_route() -> None:
    fabric = multiplane(16, 4, GBPS, 4, 4, 0, 0)
    plan = UsidPlan(fabric)
    with pytest.raises(InputError, match="no route; build it for this switch's fabric"):
        walk(fabric, build_tables(plan), 0, 1, plan.carrier(0, 15, fabric.ev(0, 2)))
