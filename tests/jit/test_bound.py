"""Compiled functions bound to the state that they work on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import compiled, record_type, records
from openmrc.jit.bound import Bound, column
from openmrc.jit.byref import by_reference


@by_reference
class Two(NamedTuple):
    """State of a test."""

    word: Any
    row: Any


@compiled
def _add(two: Two, i: int, more: int) -> int:
    two.word[i] += more
    return int(two.word[i]) + int(two.row[i, 1])


def test_a_bound_function_works_on_the_state_that_it_was_given() -> None:
    first, second = (Two(np.arange(4), np.full((4, 2), of, np.int32)) for of in (10, 20))
    adds = [Bound(_add, (one,), 2) for one in (first, second)]
    assert adds[0].call(3, 5) == 3 + 5 + 10
    assert adds[1].call(0, -7) == -7 + 20
    assert adds[0].call(3, 1) == 9 + 10
    assert (first.word.tolist(), second.word.tolist()) == ([0, 1, 2, 9], [-7, 1, 2, 3])


def test_a_bound_function_moves_to_other_state_of_the_same_types() -> None:
    first, second = (Two(np.arange(4), np.full((4, 2), of, np.int32)) for of in (10, 20))
    add = Bound(_add, (first,), 2)
    add.rebind((first,))
    assert add.call(3, 5) == 3 + 5 + 10
    add.rebind((second,))
    assert add.call(0, -7) == -7 + 20
    assert (first.word.tolist(), second.word.tolist()) == ([0, 1, 2, 8], [-7, 1, 2, 3])


def test_a_column_is_the_field_itself() -> None:
    both = records(2, record_type(("at", "i8"), ("kind", "i1")))
    at, kind = column(both, "at"), column(both, "kind")
    both[1].at = 1 << 40
    kind[0] = -3
    assert at.tolist() == [0, 1 << 40]
    assert both.kind.tolist() == [-3, 0]
