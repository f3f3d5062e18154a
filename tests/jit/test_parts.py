"""What only compiled code calls is compiled once for all widths of integers, and has no machine
code of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core.caching import NullCache

from openmrc.jit import compiled, inlined, inner, interpreted

pytestmark = pytest.mark.skipif(interpreted(), reason="nothing is compiled")


@inner
def double(n: int, times: int) -> Any:
    return n * 2 * times


@inlined
def half(x: float) -> Any:
    return x / 2


@inner
def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


@inner
def difference(a: int, b: int) -> Any:
    return a - b


@compiled
def whole(n: int) -> Any:
    return double(n, 1) + 1


@compiled
def caller(small: int, tiny: int, large: int) -> Any:
    return double(small, 1) + double(tiny, large) + double(3, 1) + double(times=small, n=large)


@compiled
def halves(small: int, x: float) -> Any:
    return half(small) + half(x) + half(7)


@compiled
def factorials(small: int) -> Any:
    return factorial(small) + factorial(5)


@inner
def long(n: int) -> int:
    return n * n


@inlined
def short(n: int) -> Any:
    return long(n) + 1


@compiled
def around(n: int) -> Any:
    return short(n)


@compiled
def outer(n: int) -> Any:
    return whole(n) + whole(1)


@compiled
def below(a: int, b: int) -> Any:
    return difference(a, b)


@inner
def quadruple(n: int) -> Any:
    return double(n, 2)


@compiled
def deep(n: int) -> Any:
    return quadruple(n) + double(n, 1)


@pytest.fixture(autouse=True)
def nothing_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier run left there would not be compiled again, nor anything that it calls."""
    for function in (caller, halves, factorials, outer, below, whole, deep, around):
        monkeypatch.setattr(function, "_cache", NullCache())


def test_integers_of_all_widths_are_one() -> None:
    small, tiny = np.int32(-5), np.int8(-3)
    assert caller(small, tiny, 1 << 40) == -10 - 6 * (1 << 40) + 6 - 10 * (1 << 40)
    assert len(double.overloads) == 1
    assert factorials(np.int16(4)) == 144
    assert len(factorial.overloads) == 1


def test_floats_and_unsigned_numbers_are_themselves() -> None:
    assert halves(np.int32(3), 5.0) == 7.5
    assert len(half.overloads) == 2
    assert below(np.uint32(3), np.uint32(2)) == 1
    assert below(2, 3) == -1
    assert len(difference.overloads) == 2


def test_what_compiled_code_calls_has_no_machine_code_until_python_calls_it() -> None:
    assert outer(3) == 10
    assert len(whole.overloads) == 0
    assert whole(3) == 7
    assert len(whole.overloads) == 1
    assert outer(np.int32(3)) == 10
    assert len(whole.overloads) == 1


def test_a_part_holds_its_own_code_alone() -> None:
    assert deep(5) == 30
    (made,) = quadruple.overloads.values()
    held = [function.name for function in made.library.get_defined_functions()]
    assert held == [made.fndesc.llvm_func_name]


def test_what_an_inlined_function_calls_is_not_inlined_with_it() -> None:
    assert around(3) == 10
    assert [made.fndesc.inline for made in short.overloads.values()] == [True]
    assert [made.fndesc.inline for made in long.overloads.values()] == [False]
