"""Compiled functions bound to the state that they work on, called from Python in a microsecond.

A dispatcher determines the type of each argument, and builds the table of each tuple that is passed
by reference (`byref`): 0.5 ms if the state is sixty arrays. A function that is called often with
the same state is bound to it once, and called by its address. The GIL is released during
the call, unless another thread that takes it meanwhile must not hold this one up, for 5 ms at a
time: while this one has a lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from openmrc.jit.byref import kind_of, table_of
from openmrc.jit.decorators import interpreted


def column(records: Any, name: str) -> memoryview:
    """A field of all records: reading an element of it is ten times as fast as reading a record's
    attribute.
    """
    return memoryview(records[name].view(np.ndarray))


class Bound:
    """`call(*numbers)` is `function(*parts, *numbers)`; it returns an int."""

    call: Callable[..., int]

    def __init__(
        self, function: Any, parts: tuple[Any, ...], numbers: int, keeps_gil: bool = False
    ) -> None:
        self._function = function
        if not interpreted():
            from numba import types

            kinds = (*map(kind_of, parts), *[types.int64] * numbers)
            function.compile(kinds)  # compiled now, or loaded from disk
            made = function.overloads[kinds]
            at = made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)
            words = [ctypes.c_int64] * (len(parts) + numbers)
            kind = ctypes.PYFUNCTYPE if keeps_gil else ctypes.CFUNCTYPE
            self._passed = kind(ctypes.c_int64, *words)(int(at))
        self._bind(parts)

    def rebind(self, parts: tuple[Any, ...]) -> None:
        """Bind it to other parts of the same types, unless they are those that it has."""
        if any(new is not old for new, old in zip(parts, self._parts, strict=True)):
            self._bind(parts)

    def _bind(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts
        if interpreted():
            self.call = lambda *values: int(self._function(*parts, *values))
            return
        self._tables = [table_of(part) for part in parts]
        self.call = partial(self._passed, *(table.ctypes.data for table in self._tables))
