"""The overloads of a ProcessGroup's methods: what C++'s accept, a method written once accepts.

Each takes its tensors, one or a list, and then either options, or a reduction, a root and a
timeout, by position or by name. Which is which shows in its type.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from openmrc.errors import InputError

OPS = (dist.ReduceOp, dist.ReduceOp.RedOpType)
NAMED = ("op", "root", "timeout", "opts")


class Asked(NamedTuple):
    """What a call asks for besides its tensors."""

    op: Any = dist.ReduceOp.SUM
    root: int = 0
    timeout: timedelta | None = None


DEFAULT = Asked()


def asked(name: str, given: list[Any], named: dict[str, Any]) -> Asked:
    """Read what follows the tensors of a call; `InputError` names what is none of it."""
    found = {}
    for value in given:
        found[_role(name, value)] = value
    for role, value in named.items():
        if role not in NAMED:
            raise InputError(f"{name}: {role!r} is no argument of it")
        found[role] = value
    opts = found.pop("opts", None)
    if opts is not None:
        found = {
            "op": getattr(opts, "reduceOp", DEFAULT.op),
            "root": getattr(opts, "rootRank", DEFAULT.root),
            "timeout": getattr(opts, "timeout", None),
        }
    return Asked(**found)


def _role(name: str, value: Any) -> str:
    if value is None or isinstance(value, timedelta):
        return "timeout"
    if isinstance(value, OPS):
        return "op"
    if isinstance(value, int):
        return "root"
    if hasattr(value, "timeout"):
        return "opts"
    raise InputError(f"{name}: {type(value).__name__} is no options, reduction, root or timeout")


def overloaded(*parameters: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method `(self, tensors ..., Asked)` of a group accept C++'s overloads. `parameters`
    are the names that its tensors have there, "|" between those of one.
    """
    names = [one.split("|") for one in parameters]

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        called = method.__name__

        @wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Any:
            tensors = list(args[: len(names)])
            for each in names[len(tensors) :]:
                at = next((one for one in each if one in named), None)
                if at is None:
                    raise InputError(f"{called}: {each[0]} is missing")
                tensors.append(named.pop(at))
            rest = args[len(names) :]
            return method(
                self, *tensors, asked(called, list(rest), named) if rest or named else DEFAULT
            )

        return call

    return wrap


def single(name: str, tensors: Any) -> torch.Tensor:
    """The one tensor that is passed, itself or in a list."""
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise InputError(f"{name}: {len(tensors)} tensors: one is accepted")
    only: torch.Tensor = tensors[0]
    return only
