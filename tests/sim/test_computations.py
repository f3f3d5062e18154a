"""Computations begin when they may, one at a time on a core; what waits for them goes on then."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.errors import InputError
from openmrc.fabric.faults import Fault
from openmrc.sim.net import state as ss
from openmrc.traffic.ideal import ideal_ps
from openmrc.traffic.traffic import Calcs, Traffic, unroll
from openmrc.workload import Job, ring_all_reduce, several_jobs
from tests.sim import lab
from tests.sim.lab import FRAME, US, all_complete, clos, finished, world_of


def there_and_back(calcs: Calcs, recv: list[tuple[int, int]]) -> Traffic:
    return lab.there_and_back(calcs, recv, far=4, size=10_000)


def done_at(traffic: Traffic) -> tuple[list[int], list[int], int]:
    """When each message began and each computation ended, and when all was over."""
    world = all_complete(world_of(clos(), traffic))
    calcs = world.net.message[traffic.n_msgs :]
    return world.flows()["start_ps"].tolist(), calcs.done_at.tolist(), world.now_ps


def test_a_message_waits_for_the_computation_after_the_one_before() -> None:
    begun, computed, _ = done_at(there_and_back(Calcs([7 * US]), [(0, 2), (2, 1)]))
    alone, _, _ = done_at(there_and_back(Calcs(()), [(0, 1)]))
    assert begun == [0, alone[1] + 7 * US]
    assert computed == [begun[1]]


def test_a_run_lasts_until_its_last_computation_is_over() -> None:
    begun, computed, end = done_at(there_and_back(Calcs([50 * US]), [(0, 1), (1, 2)]))
    assert computed == [end]
    assert end > begun[1] + 50 * US


def test_a_core_does_one_at_a_time_in_the_order_in_which_they_could_begin() -> None:
    # 2 and 3 could begin at once; 4 when message 0 is there, behind 3; 5 has a core of its own
    calcs = Calcs([20 * US, 30 * US, 5 * US, 5 * US], core=[1, 1, 1, 2])
    begun, computed, _ = done_at(there_and_back(calcs, [(0, 4), (0, 5), (5, 1)]))
    arrived = begun[1] - 5 * US
    assert arrived < 20 * US
    assert computed == [20 * US, 50 * US, 55 * US, arrived + 5 * US]


def test_computations_without_a_core_take_none() -> None:
    _, computed, _ = done_at(there_and_back(Calcs([20 * US, 30 * US]), [(0, 1)]))
    assert computed == [20 * US, 30 * US]


def test_what_waits_for_several_begins_with_the_last() -> None:
    begun, _, _ = done_at(there_and_back(Calcs([40 * US, 30 * US]), [(2, 1), (3, 1), (0, 1)]))
    assert begun == [0, 40 * US]


def test_the_bound_knows_computations() -> None:
    traffic = there_and_back(Calcs([7 * US]), [(0, 2), (2, 1)])
    plain = there_and_back(Calcs(()), [(0, 1)])
    ideal, without = (
        ideal_ps(clos(), t, lambda payload: payload + FRAME, 4096, 100) for t in (traffic, plain)
    )
    assert ideal == without + 7 * US
    assert ideal <= done_at(traffic)[2]


def test_a_job_that_starts_later_computes_later_and_on_cores_of_its_own() -> None:
    one = there_and_back(Calcs([20 * US], core=1), [(0, 1)])
    both = several_jobs(
        [Job("one", one, np.arange(8)), Job("ring", ring_all_reduce(4, 4000), np.arange(4)),
         Job("late", one, np.arange(8), 5 * US)], 8
    )  # fmt: skip
    assert both.calc_core.tolist() == [1, 2]
    assert both.n_msgs == 2 + 4 + 2
    assert both.recv_next.tolist() == [1, 3, 4, 5, 2, 7]
    world = all_complete(world_of(clos(), both))
    assert world.net.message.done_at[8:].tolist() == [20 * US, 25 * US]
    listed = unroll(both)
    again = all_complete(world_of(clos(), listed))
    assert again.now_ps == world.now_ps
    assert again.net.message.done_at[listed.n_msgs :].tolist() == [20 * US, 25 * US]


def test_releases_keep_their_giver_when_jobs_are_joined() -> None:
    # the computations of the first job lie behind the messages of the second
    one = there_and_back(Calcs([1, 2]), [(0, 2), (2, 3), (3, 1)])
    both = several_jobs([Job("a", one, np.arange(8)), Job("b", one, np.arange(8))], 8)
    giving = np.repeat(np.arange(both.n_entries), np.diff(both.recv_first))
    assert list(zip(giving.tolist(), both.recv_next.tolist(), strict=True)) == [
        (0, 4), (2, 6), (4, 5), (5, 1), (6, 7), (7, 3),
    ]  # fmt: skip


def test_what_waits_for_a_failed_message_never_computes() -> None:
    traffic = there_and_back(Calcs([7 * US]), [(0, 2), (2, 1)])
    cut = [Fault(0, "port-down", f"nic 4 plane {plane}") for plane in range(8)]
    world = finished(world_of(clos(), traffic, cut))
    assert np.asarray(world.net.message.fate).tolist() == [ss.FAILED, ss.ORPHAN, ss.ORPHAN]
    assert world.net.ctl[0].messages_orphaned == 1


@pytest.mark.parametrize(
    ("calcs", "recv", "message"),
    [
        (Calcs([-1]), [(0, 1)], "workload time of computation 0: -1; 0 ps or more is accepted"),
        (Calcs([1], core=-1), [(0, 1)], "workload core of computation 0: -1; 0 or more"),
        (Calcs([1, 1]), [(2, 3), (3, 2)], "workload computation 0: never begins, the releases"),
        (Calcs([1]), [(0, 1), (3, 1)], "traffic release 1: 3; name a message below 3"),
    ],
)
def test_impossible_computations_are_refused(
    calcs: Calcs, recv: list[tuple[int, int]], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        there_and_back(calcs, recv)
    assert str(refused.value).startswith(message)
