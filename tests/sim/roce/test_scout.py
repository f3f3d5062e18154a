"""What is fetched ahead changes no result."""

from __future__ import annotations

from typing import Any

import pytest

from openmrc.sim.roce import build
from openmrc.sim.world import World
from openmrc.workload.patterns import permutation
from tests.sim import plain
from tests.sim.roce.lab import all_complete, leaf_spine, roce_world


@pytest.mark.parametrize("keys", [{"qps": 3}, {"routing": "adaptive", "pfc": False}])
def test_hints_change_nothing(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(above_bytes: int) -> World:
        monkeypatch.setattr(build, "SCOUT_ABOVE_BYTES", above_bytes)
        fabric = leaf_spine(nics=16, planes=2)
        return all_complete(roce_world(fabric, permutation(16, 200_000, 1), **keys))

    ahead, without = run(0), run(1 << 40)
    assert ahead.net.ctl[0].scout_turn > 1000
    assert without.net.ctl[0].scout_turn == 0
    found, expected = (plain.outcome(world) for world in (ahead, without))
    for figures in (found, expected):
        del figures["net"]["ctl"]  # where the scout is
    assert found == expected
