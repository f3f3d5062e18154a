"""Records that compiled code and plain Python share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from openmrc.jit.decorators import interpreted

CACHE_LINE = 64  # bytes
FETCHED = 2 * CACHE_LINE  # processors fetch lines in pairs


def record_type(*members: tuple[Any, ...]) -> np.dtype[Any]:
    """The type of a record: its fields in this order, each aligned as in C."""
    return np.dtype(list(members), align=True)


def fields(kind: str, *names: str) -> list[tuple[str, str]]:
    """Several fields of one type."""
    return [(name, kind) for name in names]


def offset_of(dtype: np.dtype[Any], field: str) -> int:
    """Where a field of a record begins, bytes. `KeyError` if there is none of this name."""
    members: Any = dtype.fields or {}
    return int(members[field][1])


def records(n: int, dtype: np.dtype[Any]) -> Any:
    """`n` zeroed records with attribute access, the same in compiled and in plain Python.

    They begin on a cache-line boundary. `ValueError` if a field has the name of an attribute of
    NumPy's arrays.
    """
    clash = set(dtype.names or ()) & {*dir(np.recarray), *dir(np.record)}
    if clash:
        raise ValueError(f"plain Python would read NumPy's own attribute: {sorted(clash)}")
    room = np.zeros(n * dtype.itemsize + CACHE_LINE, np.uint8)
    skip = -room.__array_interface__["data"][0] % CACHE_LINE
    return _named(room[skip : skip + n * dtype.itemsize], dtype)


def apart(n: int, dtype: np.dtype[Any]) -> Any:
    """As `records`, for threads that each write one of them: no two share a cache line."""
    size = -(-dtype.itemsize // FETCHED) * FETCHED
    row = np.dtype({"names": ["of"], "formats": [dtype], "offsets": [0], "itemsize": size})
    return _named(records(n, row).view(np.ndarray)["of"], dtype)


def _named(of: Any, dtype: np.dtype[Any]) -> Any:
    """The records that stand there, with their fields as attributes."""
    return (
        of.view(_quick(dtype)).view(_Quick) if interpreted() else of.view(dtype).view(np.recarray)
    )


class _Quick(np.recarray[Any, Any]):
    """An array that keeps the type of its records."""

    def __array_finalize__(self, obj: Any) -> None:
        pass


@cache
def _quick(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same records in plain Python, where NumPy looks a field up by functions of Python: with
    a property for each field the conformance kit takes two thirds of the time.
    """
    members: Any = dtype.fields or {}
    body: dict[str, Any] = {name: _field(*of[:2]) for name, of in members.items()}
    body |= {"__getattribute__": np.void.__getattribute__, "__setattr__": np.void.__setattr__}
    return np.dtype((type("record", (np.record,), body), dtype))


def _field(dtype: np.dtype[Any], at: int) -> property:
    return property(lambda r: r.getfield(dtype, at), lambda r, value: r.setfield(value, dtype, at))
