"""Records that compiled code and plain Python share."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    return room[skip : skip + n * dtype.itemsize].view(dtype).view(np.recarray)


def apart(n: int, dtype: np.dtype[Any]) -> Any:
    """As `records`, for threads that each write one of them: no two share a cache line."""
    size = -(-dtype.itemsize // FETCHED) * FETCHED
    row = np.dtype({"names": ["of"], "formats": [dtype], "offsets": [0], "itemsize": size})
    return records(n, row)["of"]
