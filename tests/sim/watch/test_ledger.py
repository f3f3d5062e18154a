"""What the engines of a world tell, as one account."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.engine import account
from openmrc.fabric.draw import draw_faults
from openmrc.fabric.kinds import BEGINS
from openmrc.sim.watch import ledger
from openmrc.sim.world import World
from openmrc.workload import permutation
from tests.sim.lab import US, clos, world_of
from tests.sim.shards.same import digest

ON_ONLY = ("array 1 config", "array 1 tally", "array 1 account")


def eventful(shards: int = 1, threads: int = 1, told: bool = True, size: int = 400_000) -> World:
    """A permutation among all kinds of faults."""
    fabric = clos(nics=16, planes=2, down=2, up=4)
    faults = draw_faults(fabric, 7, len(BEGINS), 60 * US)
    traffic = permutation(16, size, 5, channels=2)
    world = world_of(fabric, traffic, faults, seed=6, shards=shards, threads=threads)
    if told:
        world.keep_account()
    return world


def in_steps(world: World, step_ps: int) -> Any:
    """Everything that was told, taken after each step."""
    parts, at = [], step_ps
    while True:
        ended = world.run(until_ps=at)
        found, missing = world.account()
        assert missing == 0
        parts.append(found)
        if ended:
            return np.concatenate(parts)
        at += step_ps


def test_an_account_changes_no_figure_of_a_run() -> None:
    results = []
    for told in (False, True):
        world = eventful(told=told)
        world.run()
        came = digest(world)
        results.append({name: value for name, value in came.items() if name not in ON_ONLY})
    assert results[0] == results[1]


def test_records_are_the_same_for_any_number_of_threads_and_in_any_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    for threads, step_ps, due in ((1, 10**12, 4096), (3, 10**12, 16), (2, 30 * US, 4096)):
        monkeypatch.setattr(ledger, "DUE", due)
        runs.append(in_steps(eventful(4, threads), step_ps))
    assert len(runs[0]) > 100
    assert (np.diff(runs[0]["at"]) >= 0).all()
    for other in runs[1:]:
        assert np.array_equal(runs[0], other)


def test_records_agree_with_the_counters_of_a_run() -> None:
    world = eventful()
    told, counters = in_steps(world, 50 * US), world.counters()
    q = world.engine.qp
    judged = int(q.n_inferred.sum() + q.n_timeouts.sum())
    assert np.isin(told["what"], (account.LOST,)).sum() >= judged > 0
    changes = told[told["what"] == account.EV_CHANGED]["why"]
    assert np.isin(changes, (2, 3)).sum() == counters["assumed_bad"] > 0  # loss, always skip
    sent = told[told["what"] == account.PROBE_SENT]
    assert len(sent) > (told["what"] == account.PROBE_ANSWERED).sum() > 0
    assert world.engine.tally[:, account.N_TRIMMED].sum() <= counters["trimmed"]
