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

import openmrc.jit
from openmrc.jit import byref, decorators

tuples: set[type] = set()  # classes whose arrays compiled code receives by reference


def guarded(value: Any) -> Any:
    """A tuple of the same arrays that are guarded; any other value itself."""
    from openmrc.policies.rehearse import CheckedNumbers, checked

    if type(value) not in tuples or isinstance(value[0], CheckedNumbers):
        return value
    return type(value)(*map(checked, value))


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
