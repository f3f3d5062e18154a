"""Faults drawn at random: of every kind and form, always sound, and over when they should be."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from openmrc.fabric import actions, compile_faults, draw_faults, fat_tree, multiplane
from openmrc.fabric.kinds import BEGINS, KINDS

GBPS = 10**9
HORIZON = 10**8
FABRICS = {
    "planes": multiplane(8, 4, 100 * GBPS, 4, 2, 500, 250),
    "three tiers": fat_tree(16, 100 * GBPS, 2, 2, 500, 250, tiers=3),
    "smallest": multiplane(2, 1, 10 * GBPS, 1, 1, 0, 0),
}
WHOLE = {  # what ends each state: the state of a target that nothing holds
    actions.PORT_DOWN: actions.PORT_UP,
    actions.SWITCH_DOWN: actions.SWITCH_UP,
    actions.SWITCH_SILENT: actions.SWITCH_UP,
    actions.PORT_DENY: actions.PORT_ALLOW,
    actions.NIC_PORT_DOWN: actions.NIC_PORT_UP,
}


WITHOUT_FAULT = {  # the number that a port has then
    actions.PORT_LOSS: 0,
    actions.PORT_CORRUPT: 0,
    actions.PORT_RATE: 1,
    actions.PORT_MTU: actions.MTU_WHOLE,
}


@pytest.mark.parametrize("name", FABRICS)
def test_all_is_over_at_the_horizon(name: str) -> None:
    fabric = FABRICS[name]
    for seed in range(100):
        events = compile_faults(draw_faults(fabric, seed, 12, HORIZON), fabric, seed).events
        assert events["at_ps"].max(initial=0) <= HORIZON
        last: dict[tuple[int, int, int], tuple[int, float]] = {}
        for _, action, group, target, rate, _ in events.tolist():
            whole = WHOLE.get(action, action)
            last[whole, group, target] = (action, rate)
        for (whole, _, _), (action, rate) in last.items():
            assert action == whole
            if action in WITHOUT_FAULT:
                assert rate == WITHOUT_FAULT[action]


def test_every_kind_every_form_and_every_action_comes_up() -> None:
    kinds: Counter[str] = Counter()
    forms: Counter[str] = Counter()
    played: Counter[int] = Counter()
    for seed in range(60):
        for fabric in FABRICS.values():
            faults = draw_faults(fabric, seed, len(BEGINS), HORIZON)
            kinds.update(fault.kind for fault in faults)
            assert {fault.kind for fault in faults} >= set(BEGINS)
            forms.update(key for fault in faults for key, value in vars(fault).items() if value)
            played.update(compile_faults(faults, fabric).events["action"].tolist())
    assert set(kinds) == set(KINDS)
    assert set(played) == set(range(actions.NIC_PORT_UP + 1))
    assert set(forms) == {
        "at_ps", "kind", "where", "for_ps", "rate", "burst", "factor", "mtu", "period_ps", "duty",
        "mtbf_ps", "mttr_ps", "until_ps", "share", "links", "nics",
    }  # fmt: skip
    assert min(kinds.values()) > 10


def test_what_lasts_is_drawn_only_where_it_may() -> None:
    fabric = FABRICS["planes"]

    def endless(lasting: bool) -> int:
        n = 0
        for seed in range(50):
            faults = draw_faults(fabric, seed, 8, HORIZON, lasting)
            compile_faults(faults, fabric)
            ends = {fault.kind for fault in faults} - set(BEGINS)
            once = [f for f in faults if f.kind in BEGINS and not f.repeats and f.for_ps is None]
            n += len(once) - len(ends)
        return n

    assert endless(lasting=False) == 0
    assert endless(lasting=True) > 20


def test_the_same_numbers_draw_the_same() -> None:
    fabric = FABRICS["planes"]
    first, again, other = (draw_faults(fabric, seed, 9, HORIZON) for seed in (1, 1, 2))
    assert first == again != other


def test_a_horizon_of_nearly_nothing_is_enough() -> None:
    for seed in range(30):
        faults = draw_faults(FABRICS["planes"], seed, 10, 1)
        events = compile_faults(faults, FABRICS["planes"]).events
        assert events["at_ps"].max() <= 10_000
        assert (np.diff(events["at_ps"]) >= 0).all()


def test_a_fault_prints_as_what_makes_it_again() -> None:
    from openmrc.fabric.kinds import Fault

    for fault in draw_faults(FABRICS["three tiers"], 3, 20, HORIZON):
        assert eval(repr(fault), {"Fault": Fault}) == fault
