"""The adapter for torch 2.14 and later: a `Backend` within torch's own group, device map kept.

The tests do not cover it, because they run with torch 2.13: docs/torch.md says what was run by
hand. torch 2.14 and 2.15 forward only `wait` and `get_future` of a work object created in Python.
`OPENMRC_ADAPTER=group` selects the process group of 2.13 there.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from openmrc.errors import InputError
from openmrc.torch import group

VARIABLE = "OPENMRC_ADAPTER"
FIRST = (2, 14)


def wanted() -> bool:
    """Whether this torch uses the `Backend` adapter."""
    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", "group", "backend"):
        raise InputError(f"{VARIABLE} = {asked!r}: group and backend are accepted")
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    return asked == "backend" or (asked == "" and version >= FIRST)


def create(opts: Any, pg_options: Any = None) -> Any:
    """Return the backend of a group."""
    return _class()(group.create(opts, pg_options))


def _class() -> Any:
    """Define the class late: `Backend` of torch 2.13 has no constructor."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import Backend

    base: Any = getattr(dist, "BackendBase", Backend)

    class MrcBackend(base):
        """Delegates everything to the process group's core."""

        def __init__(self, inside: group.MrcProcessGroup) -> None:
            super().__init__(inside.rank(), inside.size())
            self._inside = inside
            self._options = Backend.Options(inside_name(inside), timeout=inside.options._timeout)

        @property
        def options(self) -> Any:
            return self._options

        def getBackendName(self) -> str:  # noqa: N802  C++'s name
            return inside_name(self._inside)

        def __getattr__(self, name: str) -> Any:
            if name == "_inside":  # torch asks for attributes before the constructor has set it
                raise AttributeError(name)
            return getattr(self._inside, name)

    for name in FORWARDED:
        setattr(MrcBackend, name, _forward(name))
    for name in LACKING:  # C++ asks Python for them, and a base that has none asks C++ again
        setattr(MrcBackend, name, False)
    return MrcBackend


LACKING = (
    "supports_coalescing",
    "supports_reconfigure",
    "supports_shrinking",
    "supports_splitting",
    "supports_time_estimate",
    "supports_window",
)
FORWARDED = (
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "_allgather_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "allgather_into_tensor_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "gather",
    "scatter",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "barrier",
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
    "set_timeout",
    "_set_default_timeout",
    "_set_sequence_number_for_group",
    "_get_sequence_number_for_group",
    "shutdown",
    "abort",
)


def inside_name(inside: group.MrcProcessGroup) -> str:
    """The name that torch is given."""
    return inside.getBackendName()


def _forward(name: str) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._inside, name)(*args, **kwargs)

    call.__name__ = name
    return call
