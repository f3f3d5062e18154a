"""Times of a column in the unit that fits."""

from __future__ import annotations

import pytest

from openmrc.report.times import column, figures


@pytest.mark.parametrize(
    ("times_us", "unit", "cells"),
    [
        ([125_839.0, 4.535], "ms", ["125.8", "0.00453"]),
        ([4535.0, 3550.0], "ms", ["4.535", "3.550"]),
        ([999.94, 40.0], "us", ["999.9", "40.00"]),
        ([1000.0], "ms", ["1.000"]),
        ([0.25, None], "ns", ["250.0", "-"]),
        ([3.6e9], "s", ["3,600"]),
        ([0.0, 0.0], "us", ["0.000", "0.000"]),
        ([None], "us", ["-"]),
        ([], "us", []),
    ],
)
def test_all_times_of_a_column_have_the_unit_of_the_longest(
    times_us: list[float | None], unit: str, cells: list[str]
) -> None:
    assert column(times_us) == (unit, cells)


def test_four_figures_of_any_number() -> None:
    shown = [figures(value) for value in (0.0123456, 0.5, 12.3456, 1234.5, 1234567.0)]
    assert shown == ["0.0123", "0.500", "12.35", "1,234", "1,234,567"]
