"""The steps of a training job by phases, beside those message by message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.fabric.faults import compile_faults
from openmrc.flow.capacity import Capacity, Messages, capacity
from openmrc.flow.health import Health
from openmrc.flow.steps import Lockstep, Ranks
from openmrc.run.perfect import perfect_costs
from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import Scenario, make_scenario

FRAME_BYTES = 4200


def drawn(seed: int, broken: bool = True) -> Scenario:
    """A small job: any sizes of groups; every third one with ports down, every fourth uneven."""
    rng = np.random.default_rng(seed)
    tp, pp, ep, dp = (int(size) for size in rng.choice([1, 2, 4], 4))
    pp = 1 if seed % 2 else pp
    nics, planes = max(tp * pp * ep * dp, 2), int(rng.choice([2, 4]))
    dp = nics // (tp * pp * ep)
    sizes = {
        f"{key}_size": f"{int(size)}B"
        for key, size in zip(
            ("tp", "pp", "ep", "dp", "expert"), rng.integers(50_000, 1_000_000, 5), strict=True
        )
    }
    down = [{"at": "0s", "kind": "link-down", "where": f"nic {nics // 2} plane 1"}]
    return make_scenario(
        {
            "seed": seed,
            "level": "flow",
            "fabric": {"nics": nics, "planes": planes, "port_rate": "100Gbps", "t0_down": 4},
            "workload": {
                **{"kind": "training", "tp": tp, "pp": pp, "ep": ep, "layers": 4, "steps": 2},
                **{"microbatches": int(rng.integers(1, 4)), "forward": "200us"},
                **{"jitter": 0.05 if seed % 4 == 0 else 0.0, "bucket": "2MB", **sizes},
                "tp_collective": str(rng.choice(["all-reduce", "reduce-scatter"])),
            },
            "fault": down if broken and seed % 3 == 0 else [],
        }
    )


def parts(scenario: Scenario) -> tuple[dict[str, Any], Capacity]:
    """The arguments of a job, and what its fabric carries with all faults."""
    fabric = scenario.fabric.build()
    workload: Any = scenario.workload
    layout = workload.groups(fabric.n_nics)
    job = {
        "layout": layout,
        "work": workload.work(layout),
        "messages": Messages(fabric, scenario.transport(0), perfect_costs),
        "nics": np.arange(layout.n_ranks),
    }
    health = Health(fabric, FRAME_BYTES)
    health.apply(compile_faults([f.build() for f in scenario.faults], fabric, 1, None).events)
    return job, capacity(fabric, health.bytes_per_ps(1))


def ends_ps(scenario: Scenario) -> Any:
    """When each step ends, message by message."""
    return simulate(scenario, threads=1).steps["end_us"].to_numpy() * 1e6


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_step_by_phases_is_that_message_by_message(seed: int) -> None:
    scenario = drawn(seed)
    job, has = parts(scenario)
    found = Ranks(**job, seed=seed).step_ends_ps(has)
    # of one stage, and in equal state, only gradients are beside anything
    alike = job["layout"].size("pp") == 1 and not scenario.faults
    within = 0.01 if alike else 0.06
    assert found == pytest.approx(ends_ps(scenario), rel=within)


def test_answers_that_nobody_sends_any_more_take_nothing_of_a_port() -> None:
    """All-to-alls of short messages begin at once everywhere, at rates that nobody keeps."""
    work = {"tp": 2, "ep": 8, "layers": 1, "microbatches": 1, "steps": 1, "forward": "100us"}
    sizes = {"tp_size": "512KiB", "ep_size": "256KiB", "dp_size": "0B", "expert_size": "0B"}
    fabric = {"nics": 16, "planes": 8, "port_rate": "100Gbps", "t0_down": 16}
    workload = {"kind": "training", "pp_size": "1B", **work, **sizes}
    scenario = make_scenario({"level": "flow", "fabric": fabric, "workload": workload})
    job, has = parts(scenario)
    assert Ranks(**job).step_ends_ps(has) == pytest.approx(ends_ps(scenario), rel=0.002)


@pytest.mark.parametrize("seed", [1, 2, 5, 7])
def test_ranks_that_are_equal_are_in_step(seed: int) -> None:
    job, has = parts(drawn(seed, broken=False))
    ends = Ranks(**job).step_ends_ps(has)
    assert step_ps(Lockstep(**job), has) == pytest.approx(ends[1] - ends[0], rel=0.01)


def step_ps(job: Lockstep, has: Capacity) -> float:
    """How long a step takes in lockstep."""
    return job.step_ps(job.taken(has))


@pytest.mark.parametrize("seed", [1, 2, 5, 7])
def test_where_some_have_less_only_their_groups_are_computed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, has = parts(drawn(seed, broken=False))
    steps = Lockstep(**job)
    whole = steps.taken(has)
    nics = np.array([1, len(has.out) - 1])
    less = has._replace(out=has.out.copy(), into=has.into.copy())
    less.out[nics, 0] = less.into[nics, 0] = 0
    worse = steps.worse(whole, less, nics)
    assert worse.tolist() == steps.taken(less).tolist()
    assert steps.step_ps(worse) > steps.step_ps(whole)
    assert steps.worse(whole, has, nics).tolist() == whole.tolist()
    monkeypatch.setattr("openmrc.flow.groups.links", None)
    monkeypatch.setattr("openmrc.flow.groups.exchange", None)
    assert steps.worse(whole, less, nics[:0]).tolist() == whole.tolist()
