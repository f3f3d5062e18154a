"""Numbers out of tables, as plain floats."""

from __future__ import annotations

import polars as pl

from openmrc.ops.columns import bin_us, number


def test_an_aggregate_is_a_float() -> None:
    column = pl.Series([3, 1, 2])
    assert [number(column.min()), number(column.median()), number(column.max())] == [1.0, 2.0, 3.0]
    assert isinstance(number(column.max()), float)


def test_a_bin_lasts_as_long_as_the_longest() -> None:
    links = pl.DataFrame({"from_us": [0.0, 20.0, 40.0], "until_us": [20.0, 40.0, 51.0]})
    assert bin_us(links) == 20.0
