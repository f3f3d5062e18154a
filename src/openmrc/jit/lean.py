"""Less work for Numba in a process that does nothing but compile this package's code.

It makes the same machine code. Elsewhere all of it stays as it is: other code of the process may
teach Numba more meanwhile, listen to its events, or need its checks.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from numba.core import event, ir
from numba.core.compiler_machinery import PassManager
from numba.core.types.functions import BaseFunction

COMPILED = "numba:compile"  # the events that are told (`progress`)


def only_compile() -> None:
    """Make this process one that only compiles."""
    gc.freeze()  # compilation makes little garbage: fewer collections save a tenth
    gc.set_threshold(50_000, 20, 1000)
    PassManager._ENFORCING = False  # analyses after each step, which find what the next finds too
    for owner, name, does in (
        (BaseFunction, "get_call_type", once_for_all(BaseFunction.get_call_type)),
        (event, "broadcast", broadcast),
        (ir.Inst, "_rec_list_vars", lambda _, value: variables(value)),
    ):
        setattr(owner, name, does)


def once_for_all(ask: Callable[..., Any]) -> Callable[..., Any]:
    """How Numba determines what a function or operator of its own returns, asked once for the same
    types.
    """
    known: dict[tuple[Any, ...], Any] = {}

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws:
            return ask(function, context, args, kws)
        about = (function._code, *(each._code for each in args))  # Numba's numbers of types
        if about not in known:
            known[about] = ask(function, context, args, kws)
        return known[about]

    return get_call_type


def broadcast(one: Any) -> None:
    """Tell an event to its listeners if it is that a function is compiled. Of others only Numba's
    own timers hear, one for each function that waits for what it calls.
    """
    if one.kind == COMPILED:
        for listener in event._registered[COMPILED]:
            listener.notify(one)


def variables(value: Any) -> list[Any]:
    """The variables that an instruction's operand names; in most cases it is one, or none."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, ir.Inst):
        found: list[Any] = value.list_vars()
        return found
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [one for each in value if type(each) not in PLAIN for one in variables(each)]


PLAIN = frozenset((str, int, bool, float, type(None), ir.Loc, ir.Scope))  # these name none
