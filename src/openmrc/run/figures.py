"""The figures of a run: counters, by name, and percentiles by nearest rank, the ceil(p*n)-th
smallest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.units import US

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p100": 1.0}
PACKETS = (
    "data",
    "retransmitted",
    "trimmed",
    "dropped_queue",
    "dropped_fault",
    "dropped_corrupt",
    "ecn_marked",
    "sack",
    "nack",
    "probe",
    "duplicates",
)
PATHS = ("assumed_bad", "revived", "skips")
MEASURED = ("loop_s", "link_traversals_per_s")  # on this machine
ROCE = (  # of kind "roce"
    "acks",
    "naks",
    "cnps",
    "go_backs",
    "timeouts",
    "discarded",
    "no_route",
    "pauses",
    "pause_us",
    "pause_us_max",
    "pause_storms",
    "paused_ports",
    "pfc_drops",
)


def flat(table: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return nested dicts as one, keys joined by dots."""
    figures: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            figures |= flat(value, f"{place}{key}.")
        else:
            figures[f"{place}{key}"] = value
    return figures


def without_lists(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a transport's summary without fields that have no column: a list of ports."""
    roce = {key: value for key, value in summary.get("roce", {}).items() if key in ROCE}
    return summary | ({"roce": roce} if roce else {})


def without_measured(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a transport's summary without the figures in which two runs of a scenario differ."""
    return {key: value for key, value in summary.items() if key not in MEASURED}


def nearest_rank(values: NDArray[np.int64], share: float) -> int:
    """Return the ceil(share * n)-th smallest of `values` (at least the first); n > 0."""
    rank = rank_of(len(values), share)
    return int(np.partition(values, rank - 1)[rank - 1])


def rank_of(n: int, share: float) -> int:
    """Return ceil(share * n), at least 1: the rank of that percentile among n sorted values."""
    # 1e-9: 0.99 * 100 is 99.00000000000001 in floating point, and that is rank 99.
    return max(1, int(np.ceil(share * n - 1e-9)))


def distribution_us(values_ps: NDArray[np.int64]) -> dict[str, float | None]:
    """Return min, percentiles and mean in microseconds; all None if there is no value."""
    if not len(values_ps):
        return dict.fromkeys(("min", *PERCENTILES, "mean"))
    ranks = {key: us(nearest_rank(values_ps, share)) for key, share in PERCENTILES.items()}
    return {"min": us(values_ps.min()), **ranks, "mean": round(float(values_ps.mean()) / US, 6)}


def us(ps: float) -> float:
    """Return a time in microseconds, as results hold it."""
    return round(int(ps) / US, 6)
