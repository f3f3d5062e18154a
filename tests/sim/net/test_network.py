"""The arrays of a network: which ports are of one kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.sim.net.network import FEW, byte_ps, kinds_of

COLUMN = st.integers(-3, 3)


def test_kinds_come_in_the_order_of_their_values() -> None:
    rates, lasts = np.array([400, 100, 400, 100, 100]), np.array([1, 0, 0, 1, 0], np.bool_)
    one_of_each, which = kinds_of([rates, lasts])
    assert which.tolist() == [3, 0, 2, 1, 0]
    assert rates[one_of_each].tolist() == [100, 100, 400, 400]
    assert lasts[one_of_each].tolist() == [False, True, False, True]


def test_a_byte_takes_whole_picoseconds_at_some_rates() -> None:
    rates_bps = np.array([100, 400, 30, 7], np.int64) * 10**9
    assert byte_ps(rates_bps).tolist() == [80, 20, 0, 0]


@pytest.mark.parametrize("n", [FEW, FEW + 1, 3 * FEW])
def test_a_column_may_have_many_values(n: int) -> None:
    rates = np.arange(2 * n) % n * 7
    one_of_each, which = kinds_of([rates])
    assert which.tolist() == [*range(n), *range(n)]
    assert rates[one_of_each].tolist() == list(range(0, 7 * n, 7))


@given(st.lists(st.tuples(COLUMN, COLUMN, COLUMN), min_size=1, max_size=50))
def test_kinds_are_those_of_the_rows_sorted(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows)
    kinds, number = np.unique(table, axis=0, return_inverse=True)
    one_of_each, which = kinds_of(list(table.T))
    assert which.tolist() == number.reshape(-1).tolist()
    assert table[one_of_each].tolist() == kinds.tolist()
