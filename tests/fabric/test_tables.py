"""What a switch's static table holds; `tests/wire/test_srv6.py` walks carriers through them."""

from __future__ import annotations

from openmrc.fabric import fat_tree, multiplane
from openmrc.fabric.tables import OWN, table
from openmrc.fabric.usid import UsidPlan

GBPS = 10**9
PREFIX = 0x2001_0DB8 << 16


def test_a_table_holds_neighbours_and_the_t0s_below() -> None:
    fabric = multiplane(16, 4, GBPS, 4, 4, 0, 0)
    plan = UsidPlan(fabric)
    sizes = [len(table(plan, switch)) for switch in range(fabric.n_switches)]
    assert sizes[:16] == [1 + 4 + 4] * 16  # T0: own, T1s, NICs
    assert sizes[16:] == [1 + 4] * 16  # T1: own, T0s
    t0 = table(plan, 0)
    assert t0[PREFIX | plan.t0(0, 0)] == OWN
    assert t0[PREFIX | plan.t1(0, 2)] == fabric.sw_first_up[0] + 2


def test_a_table_of_a_second_tier_leads_up_too_and_of_a_third_to_pods() -> None:
    fabric = fat_tree(32, GBPS, 2, 3, 0, 0, tiers=3, t1_down=3, t1_up=2)
    plan = UsidPlan(fabric)
    t1 = table(plan, int(fabric.port_peer_switch[fabric.sw_first_up[0] + 1]))
    assert len(t1) == 1 + 3 + 2
    assert t1[PREFIX | plan.t1(0, 1)] == OWN
    t2 = table(plan, fabric.n_switches - 1)
    assert t2[PREFIX | plan.t2(0, 2, 1)] == OWN
    ports = [t2[PREFIX | plan.t0(0, index)] for index in range(fabric.tier_counts[0])]
    assert ports == [int(fabric.sw_first_down[-1]) + index // 3 for index in range(16)]
