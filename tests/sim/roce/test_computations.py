"""Computations between messages run under RoCEv2 as they do under MRC, to the picosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openmrc.fabric.faults import Fault
from openmrc.sim.net import state as ss
from openmrc.traffic.traffic import Calcs, Traffic
from tests.sim import lab
from tests.sim.lab import MS, US
from tests.sim.roce.lab import (
    FIRST,
    FRAME,
    WAY,
    all_complete,
    balanced,
    leaf_spine,
    roce_world,
    start_of,
)

PACKETS = 4


def there_and_back(calcs: Calcs, recv: list[tuple[int, int]]) -> Traffic:
    return lab.there_and_back(calcs, recv, far=7, size=PACKETS * 4096)


def test_a_message_waits_for_the_computation_after_the_one_before() -> None:
    traffic = there_and_back(Calcs([7 * US]), [(0, 2), (2, 1)])
    world = all_complete(roce_world(leaf_spine(), traffic, cc="none"))
    arrived = start_of(PACKETS - 1) + 4 * FRAME + WAY + 3 * (FIRST - FRAME)
    assert world.flows()["start_ps"].tolist() == [0, arrived + 7 * US]
    assert world.calcs_ended_ps().tolist() == [arrived + 7 * US]


@pytest.mark.parametrize("qps", [1, 3])
def test_a_core_does_one_at_a_time_and_the_run_lasts_until_the_last(qps: int) -> None:
    calcs = Calcs([20 * US, 30 * US, 45 * US], core=[1, 1, 2])
    world = all_complete(roce_world(leaf_spine(), there_and_back(calcs, [(3, 1)]), qps=qps))
    assert world.calcs_ended_ps().tolist() == [20 * US, 50 * US, 45 * US]
    assert world.flows()["start_ps"].tolist() == [0, 50 * US]
    alone = there_and_back(Calcs([900 * US]), [])
    assert all_complete(roce_world(leaf_spine(), alone, qps=qps)).now_ps == 900 * US


@pytest.mark.parametrize("ends", [False, True])
def test_a_dead_queue_pair_orphans_computations_or_ends_the_job(ends: bool) -> None:
    # 2 waits for the message that fails, and 1 for it; 3 waits for nobody
    traffic = there_and_back(Calcs([7 * US, 50 * MS]), [(0, 2), (2, 1)])
    cut = [Fault(0, "port-down", "nic 7 plane 0")]
    world = roce_world(
        leaf_spine(), replace(traffic, ends_on_error=ends), cut, rto_ps=MS, retry_cnt=2
    )
    world.run()
    balanced(world)
    fates = [ss.FAILED, ss.ORPHAN, ss.ORPHAN, ss.OPEN if ends else ss.COMPLETED]
    assert np.asarray(world.net.message.fate).tolist() == fates
    (error,) = world.qp_errors()
    # the third timer ends it; each begins when the last packet of its turn has been handed over
    died_ps = int(world.engine.qp.error_at.max())
    assert 3 * MS <= died_ps < 3 * MS + 2 * US
    assert "retry counter exceeded" in error
    assert world.died_ps == (died_ps if ends else None)
    assert world.now_ps == (died_ps if ends else 50 * MS)
