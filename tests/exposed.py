"""Functions that only compiled code may call, for tests to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from openmrc.jit import interpreted
from openmrc.jit.parts import WholeCompiler


def exposed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, callable from Python: called directly, a compiled one would crash."""
    if interpreted():
        return function

    @njit(pipeline_class=WholeCompiler)
    def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call  # type: ignore[no-any-return]
