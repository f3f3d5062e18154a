"""Numbers out of the columns of a result's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def number(aggregate: Any) -> float:
    """The least, the largest or the median of a column of numbers that has rows: Polars types it as
    any value of any column.
    """
    return float(aggregate)


def bin_us(links: pl.DataFrame) -> float:
    """How long a bin of time of these rows lasts, us."""
    return number((links["until_us"] - links["from_us"]).max())
