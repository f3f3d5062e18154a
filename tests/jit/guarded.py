"""Plain Python in which compiled code must not use negative indices: `python -m tests.jit.guarded
MODULE [ARGUMENT ...]` runs a module in it.

Compiled, an index into an array of a `by_reference` tuple is not tested for its sign, so a negative
one would read and write memory in front of the array. Here it raises `IndexError`, in every
function that would be compiled. It must be set up before anything else of the project is imported,
and does nothing unless NUMBA_DISABLE_JIT asks for plain Python.
"""

from __future__ import annotations

import functools
import runpy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import openmrc.jit
from openmrc.jit import byref, decorators

tuples: set[type] = set()  # classes whose arrays compiled code receives by reference


def is_negative(index: Any) -> bool:
    """Whether an index, or one of a tuple of them, is a negative number."""
    if isinstance(index, tuple):
        return any(is_negative(one) for one in index)
    return isinstance(index, int | np.integer) and bool(index < 0)


class _Guard:
    """An array that refuses negative numbers as indices; what is derived from it does not."""

    on = False

    def __getitem__(self, index: Any) -> Any:
        self._look(index)
        return super().__getitem__(index)  # type: ignore[misc]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._look(index)
        super().__setitem__(index, value)  # type: ignore[misc]

    def _look(self, index: Any) -> None:
        if self.on and is_negative(index):
            raise IndexError(f"compiled code would read or write in front of an array: {index}")


class GuardedArray(_Guard, np.ndarray):
    """Of numbers."""


class GuardedRecords(_Guard, np.recarray):
    """Of records."""


def guarded(value: Any) -> Any:
    """A tuple of the same arrays that are guarded; any other value itself."""
    if type(value) not in tuples or isinstance(value[0], _Guard):
        return value
    return type(value)(*(_guarded(array) for array in value))


def _guarded(array: Any) -> Any:
    view = array.view(GuardedRecords if isinstance(array, np.recarray) else GuardedArray)
    view.on = True
    return view


def called_guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its arguments guarded."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*[guarded(value) for value in arguments])

    return call


def set_up() -> None:
    """Replace the decorators by such that guard what is passed."""
    for name in ("compiled", "inner", "inlined"):
        decorate = getattr(decorators, name)

        def replaced(function: Any, decorate: Any = decorate) -> Any:
            return called_guarded(decorate(function))

        setattr(decorators, name, replaced)
        setattr(openmrc.jit, name, replaced)

    def by_reference(cls: Any) -> Any:
        tuples.add(cls)
        return cls

    byref.by_reference = by_reference


def main() -> None:
    """Run the module with its arguments."""
    if decorators.interpreted():
        set_up()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
