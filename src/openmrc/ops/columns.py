"""Numbers out of the columns of a result's tables."""

from __future__ import annotations

from typing import Any


def number(aggregate: Any) -> float:
    """The least, the largest or the median of a column of numbers that has rows: Polars types it as
    any value of any column.
    """
    return float(aggregate)
