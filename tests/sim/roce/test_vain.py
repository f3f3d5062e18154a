"""What RoCEv2 sends in vain is known before the run, and happens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.roce import vain
from openmrc.sim.world import World
from openmrc.workload import permutation
from tests.sim.lab import MS, US
from tests.sim.roce.lab import leaf_spine, roce_world

BYTES, PMTU = 400_000, 4096
FIRST = 300 * US  # longer than the flows take, which share links
CONVERGED = 3 * MS
DEAD = Fault(0, "link-down", "plane 0 t0 0 - t1 0")


def world(*faults: Fault, size: int = BYTES, seed: int = 3, **more: Any) -> World:
    return roce_world(
        leaf_spine(),
        permutation(8, size, 1),
        faults,
        seed=seed,
        rto_first_ps=FIRST,
        rto_ps=64 * FIRST,
        local_repair_ps=1 * US,
        convergence_ps=(CONVERGED, CONVERGED),
        cc="none",
        **more,
    )


def of(one: World) -> tuple[list[int], list[float]]:
    at, packets = one.side.in_vain(one.traffic)
    return at.tolist(), packets.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_timers_expire_when_they_were_foretold(seed: int) -> None:
    one = world(DEAD, seed=seed)
    at, packets = of(one)
    known_at = vain._known_at(one.side.net, one.side.state)
    repaired = vain._after_local_repair(one.side.net, one.side.state, list(known_at))
    pairs = zip(one.ends.sender.tolist(), one.ends.receiver.tolist(), strict=True)
    stuck = [vain._stuck(one.side.net, repaired, *pair, known_at) for pair in pairs]
    parts = [part for until_ps, part in stuck if until_ps]
    assert all(until_ps in (0, CONVERGED) for until_ps, _ in stuck)
    if parts:
        assert at == [FIRST, 3 * FIRST, 7 * FIRST]  # and at 15 routing has converged
        assert packets == pytest.approx([sum(parts) * 98] * 3)
    one.run()
    assert one.flows()["failed"].sum() == 0
    assert one.counters()["timeouts"] == 4 * len(parts)


def test_on_some_seeds_flows_are_stuck_and_on_some_answers_alone() -> None:
    parts = {round(sum(of(world(DEAD, seed=seed))[1][:1]) / 98, 6) for seed in range(8)}
    assert len(parts) > 2


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(10 * US, "link-down", "plane 0 t0 0 - t1 0"),),  # not from the start
        (Fault(0, "link-loss", "plane 0 t0 0 - t1 0", rate=0.5),),  # routing sees nothing
    ],
)
def test_otherwise_nothing_is_known(faults: tuple[Fault, ...]) -> None:
    assert of(world(*faults)) == ([], [])


def test_of_many_flows_every_so_many_stands_for_those_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = world(DEAD, qps=64)
    known_at = vain._known_at(one.side.net, one.side.state)
    repaired = vain._after_local_repair(one.side.net, one.side.state, list(known_at))
    senders = np.flatnonzero(one.ends.sends)
    stuck = [
        vain._stuck(one.side.net, repaired, end, int(one.ends.other[end]), known_at)
        for end in senders.tolist()
    ]
    parts = np.array([part * (until_ps > 0) for until_ps, part in stuck]) * 98 / 64
    assert of(one)[1] == pytest.approx([parts.sum()] * 3)  # 512 flows
    monkeypatch.setattr(vain, "LOOKED_AT", 100)
    assert of(one)[1] == pytest.approx([parts[::6].sum() * 512 / 86] * 3)
