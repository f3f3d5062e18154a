"""Workloads as data: the messages that both worlds execute, and the least time they can take."""

from __future__ import annotations

from openmrc.traffic.traffic import Traffic

__all__ = [
    "Traffic",
    "earliest",
    "ideal",
    "releases",
    "traffic",
    "trims",
]
