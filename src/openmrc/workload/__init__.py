"""Workloads: built-in patterns, collectives, several jobs, and imported files."""

from __future__ import annotations

from openmrc.workload.chakra.trace import load_chakra
from openmrc.workload.cm import load_cm
from openmrc.workload.collectives import (
    all_gather,
    all_to_all,
    broadcast,
    halving_doubling_all_reduce,
    reduce_scatter,
    ring_all_reduce,
    send_recv,
)
from openmrc.workload.goal import load_goal
from openmrc.workload.jobs import Job, read_nics, several_jobs
from openmrc.workload.patterns import incast, permutation, stream

__all__ = [
    "Job",
    "all_gather",
    "all_to_all",
    "broadcast",
    "chakra",
    "cm",
    "collectives",
    "goal",
    "halving_doubling_all_reduce",
    "incast",
    "jobs",
    "layout",
    "load_chakra",
    "load_cm",
    "load_goal",
    "matrix",
    "model",
    "patterns",
    "permutation",
    "phases",
    "pipeline",
    "read_nics",
    "reduce_scatter",
    "ring_all_reduce",
    "send_recv",
    "several_jobs",
    "stream",
    "training",
]
