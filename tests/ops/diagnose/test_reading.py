"""When ports were down, as readings of them tell."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.ops.diagnose.reading import read_down

TICK_US = 10.0
# Ticks of 10 us; the third is four in one.
EDGES_US = np.array([0.0, 10.0, 20.0, 60.0, 70.0, 80.0])


@pytest.mark.parametrize(
    ("down", "spans_us"),
    [
        ([0, 1, 0, 0, 0], [(20, 20)]),
        ([1, 1, 2, 0, 0], [(10, 20)]),
        ([0, 0, 2, 1, 0], [(70, 70)]),
        ([0, 0, 2, 0, 0], []),  # nobody knows when
        ([1, 0, 0, 1, 1], [(10, 10), (70, 80)]),
    ],
)
def test_a_port_was_down_from_the_first_to_the_last_reading_that_found_it_so(
    down: list[int], spans_us: list[tuple[float, float]]
) -> None:
    found = read_down(EDGES_US, np.array([down], np.float64).T, TICK_US)
    assert [it[0] for it in found] == [0] * len(spans_us)
    assert [it[1:] for it in found] == [pytest.approx(it, abs=1e-3) for it in spans_us]
