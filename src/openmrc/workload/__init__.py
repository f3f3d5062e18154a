"""Who makes workloads: built-in patterns and imported files."""

from __future__ import annotations

from openmrc.workload.cm import load_cm
from openmrc.workload.patterns import incast, permutation, ring_all_reduce, stream

__all__ = ["incast", "load_cm", "permutation", "ring_all_reduce", "stream"]
