"""Numbers out of tables, as plain floats."""

from __future__ import annotations

import polars as pl

from openmrc.ops.columns import number


def test_an_aggregate_is_a_float() -> None:
    column = pl.Series([3, 1, 2])
    assert [number(column.min()), number(column.median()), number(column.max())] == [1.0, 2.0, 3.0]
    assert isinstance(number(column.max()), float)
