"""The day of a scenario: its job on each fabric, through the same failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from openmrc.day.failures import Failures
from openmrc.day.life import Job, Life
from openmrc.day.stalls import stalls_of
from openmrc.day.steps import S_PER_PS, Steps
from openmrc.errors import InputError
from openmrc.fabric.clos import fat_tree
from openmrc.fabric.model import Fabric, LongArray
from openmrc.flow.capacity import Messages, capacity
from openmrc.flow.steps import Lockstep, Ranks
from openmrc.planning.collisions import slowest_of_ring
from openmrc.planning.sizing import Design, size
from openmrc.run.perfect import perfect_costs
from openmrc.scenario.jobs import Jobs
from openmrc.scenario.training import Training
from openmrc.scenario.workload import placed
from openmrc.sim.mrc.transport import Transport
from openmrc.sim.roce.transport import RoceTransport
from openmrc.units import PS_BITS
from openmrc.workload.jobs import read_nics

if TYPE_CHECKING:
    from openmrc.scenario.scenario import Scenario

STEPS = 2  # of a job, to see how long one of many takes
ONE_PLANE_TIERS_MAX = 3  # that a fabric is built with; a fourth adds its failures alone


class Placed(NamedTuple):
    """A job of the scenario: its name where there are several, and the NIC of each rank."""

    name: str
    section: Training
    nics: LongArray


class Side(NamedTuple):
    """A fabric, the transport on it, and one of its jobs."""

    name: str
    design: Design
    fabric: Fabric
    transport: Any
    job: Placed


def sides_of(scenario: Scenario, switch_rate_bps: int) -> list[Side]:
    """Return the scenario's fabric with each of its transports, and one plane beside it for those
    that hash, each once for every job; raise `InputError` for what a day cannot be made of.
    """
    section: Any = scenario.fabric
    if scenario.fabric.kind not in ("multiplane", "fat-tree"):
        raise InputError(f"fabric.kind: {scenario.fabric.kind!r}; accepted: multiplane, fat-tree")
    if section.t0_up not in (None, section.t0_down):
        raise InputError(
            f"fabric.t0_up: {section.t0_up}, with t0_down = {section.t0_down}: a day is one of a"
            " fabric of full bisection; leave it out"
        )
    fabric = scenario.fabric.build()
    nic_rate_bps = int(section.port_rate) * fabric.n_planes
    own_rate_bps = 2 * section.t0_down * int(section.port_rate)
    design = Design(fabric.n_nics, fabric.n_planes, fabric.n_tiers, nic_rate_bps, own_rate_bps)
    jobs = _jobs(scenario, fabric.n_nics)
    found = []
    for number in range(len(scenario.transports)):
        transport = scenario.transport(number)
        _check(transport)
        hashed = isinstance(transport, RoceTransport) and not transport.balances
        name = f"{transport.name}, {design.name}" if hashed else transport.name
        found.append(Side(name, design, fabric, transport, jobs[0]))
        if hashed and design.planes > 1:
            found.append(_one_plane(design, switch_rate_bps, section, transport, jobs[0]))
    if len(jobs) == 1:
        return found
    return [
        side._replace(name=f"{side.name}: {job.name}", job=job) for side in found for job in jobs
    ]


def _jobs(scenario: Scenario, n_nics: int) -> list[Placed]:
    """The training job of a scenario, or several."""
    workload = scenario.workload
    if isinstance(workload, Training):
        return [_placed("", workload, np.arange(n_nics), scenario.seed)]
    parts = workload.job if isinstance(workload, Jobs) else ()
    wrong = [
        (f"workload.job[{i}]", work)
        for i, (_, work) in enumerate(parts)
        if not isinstance(work, Training)
    ]
    if wrong or not parts:
        place, other = wrong[0] if wrong else ("workload", workload)
        raise InputError(
            f"{place}.kind: {other.kind!r}: a day is one of a training job, or of several; set"
            ' kind = "training"'
        )
    return [
        _placed(job.name, cast(Training, work), read_nics(job.nics, n_nics), scenario.seed)
        for job, work in parts
    ]


def _placed(name: str, section: Training, nics: LongArray, seed: int) -> Placed:
    n_ranks = section.groups(len(nics)).n_ranks
    placement = placed(n_ranks, section.placement, seed)
    order = np.arange(n_ranks) if placement is None else np.asarray(placement)
    return Placed(name, section, nics[order])


def _check(transport: Any) -> None:
    if isinstance(transport, Transport) and (transport.paths != "mrc" or transport.balances):
        raise InputError(
            f"transport.paths of {transport.name!r}: {transport.paths!r}: a day is known of"
            ' MRC that names its paths, and of kind = "roce"'
        )


def _one_plane(
    several: Design, switch_rate_bps: int, section: Any, transport: Any, job: Placed
) -> Side:
    """The same NICs, each with one port into as many tiers as it takes."""
    nics, nic_rate_bps = several.nics, several.nic_rate_bps
    design = size(nics, 1, nic_rate_bps, switch_rate_bps)
    half, tiers = design.half, min(design.tiers, ONE_PLANE_TIERS_MAX)
    delays = (int(section.link_delay), int(section.switch_delay))
    blocks = {"t1_down": half, "t1_up": half} if tiers > 2 else {}
    fabric = fat_tree(nics, nic_rate_bps, half, half, *delays, tiers=tiers, **blocks)
    return Side(f"{transport.name}, {design.name}", design, fabric, transport, job)


def life_of(
    side: Side,
    steps: Steps,
    failures: Failures,
    values: Mapping[str, float],
    seed: int,
) -> Life:
    """Return the job on a fabric, at its start."""
    section = side.job.section
    job = Job(
        side.job.nics,
        int(section.checkpoint) * S_PER_PS,
        int(section.checkpoint_time) * S_PER_PS,
        int(section.restart) * S_PER_PS,
    )
    stalls = stalls_of(side.transport, values, steps.exposed_share)
    return Life(job, side.design, failures, steps, stalls, values, seed)


def steps_of(side: Side, seed: int) -> Steps:
    """Return the times of the job's steps on a fabric, as a function of what is missing."""
    section, nics = side.job.section, side.job.nics
    layout = section.groups(len(nics))
    work = replace(section.work(layout), steps=STEPS)
    messages = Messages(side.fabric, side.transport, perfect_costs)
    job = Lockstep(layout, replace(work, jitter=0.0), messages, nics)
    whole = capacity(side.fabric, side.fabric.port_rate_bps / PS_BITS)
    uneven_s = 0.0
    if work.jitter:  # rank by rank, once: what is missing later hardly changes it
        ends_ps = Ranks(layout, work, messages, nics, seed).step_ends_ps(whole)
        even_ps = job.step_ps(job.taken(whole))
        uneven_s = max(float(ends_ps[1] - ends_ps[0]) - even_ps, 0.0) * S_PER_PS
    transport = side.transport
    if not isinstance(transport, RoceTransport) or transport.balances:
        return Steps(job, whole, uneven_s=uneven_s)
    used = min(transport.qps / side.design.planes, 1)  # each queue pair is on one plane
    return Steps(job, whole, cache(partial(slowest, side.design, transport.qps)), used, uneven_s)


def slowest(design: Design, qps: int, missing_share: float) -> float:
    """Return how many times as long a phase across T0s takes where queue pairs collide."""
    uplinks = max(round(design.half * (1 - missing_share * design.planes)), 1)
    of_plane = max(qps // design.planes, 1)
    nics = min(design.half, design.nics)
    return slowest_of_ring(nics, uplinks, of_plane, design.t0s * design.planes).time
