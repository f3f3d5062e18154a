"""All kinds of `[workload]`, by name."""

from __future__ import annotations

from openmrc.scenario import collectives
from openmrc.scenario.jobs import Jobs
from openmrc.scenario.patterns import HtsimWorkload, Incast, Permutation, Stream
from openmrc.scenario.traces import ChakraWorkload, GoalWorkload, MatrixWorkload
from openmrc.scenario.training import Training
from openmrc.scenario.workload import WorkloadSection

JOB_WORKLOADS = {
    section.kind: section
    for section in (
        Permutation,
        Incast,
        collectives.RingAllReduce,
        collectives.HalvingDoublingAllReduce,
        collectives.AllGather,
        collectives.ReduceScatter,
        collectives.AllToAll,
        collectives.Broadcast,
        collectives.SendRecv,
        Stream,
        HtsimWorkload,
        MatrixWorkload,
        GoalWorkload,
        ChakraWorkload,
        Training,  # beside other jobs for a day alone, which `Jobs.build` says
    )
}
WORKLOADS: dict[str, type[WorkloadSection]] = JOB_WORKLOADS | {Jobs.kind: Jobs}
