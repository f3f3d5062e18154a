"""Runs scenarios: `simulate`, its results, and the same in a lab of real processes (`lab`)."""

from __future__ import annotations

from openmrc.run.outcome import TransportResult
from openmrc.run.results import Result
from openmrc.run.simulation import simulate

__all__ = [
    "Result",
    "TransportResult",
    "captures",
    "columns",
    "estimate",
    "figures",
    "lab",
    "outcome",
    "parquet",
    "perfect",
    "ports",
    "results",
    "saved",
    "simulate",
    "simulation",
    "tables",
    "training",
]
