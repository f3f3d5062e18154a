"""How a function is compiled: for which callers, and with which options."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numba

from openmrc.jit.cache import Cache
from openmrc.jit.parts import PartCompiler, WholeCompiler, widened

# error_model "numpy": no division by zero is ever raised, so LLVM sees straight code without
# cleanup paths around every call; measured ten times cheaper calls where a state of a dozen arrays
# is passed. _nrt off: nothing is allocated, and no reference of an array is counted at every call.
# forceinline off where it is not asked for: else whatever is compiled first within an inlined
# function would be inlined too, with all that it calls, into each of its callers.
_OPTIONS: dict[str, Any] = {
    "error_model": "numpy",
    "nogil": True,
    "_nrt": False,
    "forceinline": False,
}
_NO_ENTRY: dict[str, Any] = {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}


def interpreted() -> bool:
    """True when NUMBA_DISABLE_JIT asks for plain Python (debugger, coverage, comparison with
    compiled code).
    """
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def compiled(function: Callable[..., Any]) -> Any:
    """Compile for calls from Python, and cache the result on disk if the source is a file."""
    dispatcher = numba.njit(pipeline_class=WholeCompiler, **_OPTIONS)(function)
    if interpreted():
        return dispatcher
    if os.path.exists(function.__code__.co_filename):
        dispatcher._cache = Cache(function)  # what `cache=True` does, with a place of our own
    part = _part(function)  # for compiled callers
    for name in ("fold_argument_types", "get_call_template", "get_overload"):
        setattr(dispatcher, name, getattr(part, name))
    return dispatcher


def inner(function: Callable[..., Any]) -> Any:
    """Compile for calls from other compiled code only (plain Python may call it when nothing is
    compiled).
    """
    return _part(function)


def inlined(function: Callable[..., Any]) -> Any:
    """As `inner`, and copy the body into each caller: for the functions on the path of every
    packet.
    """
    return _part(function, forceinline=True)


def _part(function: Callable[..., Any], **more: Any) -> Any:
    dispatcher = numba.njit(**_OPTIONS | _NO_ENTRY | more)(function)
    return dispatcher if interpreted() else widened(dispatcher)
