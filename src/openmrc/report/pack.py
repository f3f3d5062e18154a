"""One byte per cell: the encoding of a table of samples in a page.

A fraction of a rate is a multiple of half a percent, a state its number. A count is a small float:
exact up to 31, then four bits of mantissa (within 3 %). Counts above 507,904 use a unit. A table
that mostly repeats itself is encoded as runs, one of zeros not at all. `base.js` decodes it.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import numpy.typing as npt

SHARE_STEPS = 200
_EXPONENT, _MANTISSA = np.divmod(np.arange(256), 16)
COUNTS = np.where(_EXPONENT == 0, _MANTISSA, (16 + _MANTISSA) << np.maximum(_EXPONENT - 1, 0))

Array = npt.NDArray[Any]
Packed = dict[str, Any] | None


def shares(table: Array) -> Packed:
    """Pack fractions of 0 to 1, [rows, columns]."""
    return _packed(np.rint(np.clip(table, 0, 1) * SHARE_STEPS))


def states(table: Array) -> Packed:
    """Pack integers of 0 to 255."""
    return _packed(table)


def counts(table: Array) -> Packed:
    """Pack integers of 0 or more."""
    unit = max(1, -(-int(table.max(initial=0)) // int(COUNTS[-1])))
    middles = (COUNTS[1:] + COUNTS[:-1]) / 2
    packed = _packed(np.searchsorted(middles, np.asarray(table) / unit))
    return packed and {"unit": unit} | packed


def join(table: Array, factor: int, how: str, widths: Array | None = None) -> Array:
    """Merge `factor` neighbouring columns of [rows, columns] into one; the last may be of fewer.

    `how`: "sum", "max", "last", or "mean", weighted by the columns' `widths`.
    """
    if factor == 1:
        return table
    starts = np.arange(0, table.shape[1], factor)
    if how == "sum":
        found: Array = np.add.reduceat(table, starts, axis=1)
    elif how == "max":
        found = np.maximum.reduceat(table, starts, axis=1)
    elif how == "last":
        found = table[:, np.minimum(starts + factor, table.shape[1]) - 1]
    else:
        assert widths is not None
        total = np.add.reduceat(widths, starts)
        found = np.add.reduceat(table * widths, starts, axis=1) / total
    return found


def _packed(codes: Array) -> Packed:
    if not codes.any():
        return None
    flat = codes.astype(np.uint8).reshape(-1)
    runs = _runs(flat)
    if len(runs) < len(flat):
        return {"runs": b64encode(runs.tobytes()).decode()}
    return {"bytes": b64encode(flat.tobytes()).decode()}


def _runs(flat: Array) -> Array:
    """Pairs (count, value), counts at most 255."""
    first = np.flatnonzero(np.concatenate([[True], flat[1:] != flat[:-1]]))
    length = np.diff(first, append=len(flat))
    pieces = -(-length // 255)
    often = np.full(int(pieces.sum()), 255)
    often[np.cumsum(pieces) - 1] = length - 255 * (pieces - 1)
    return np.stack([often, np.repeat(flat[first], pieces)], axis=1).astype(np.uint8).reshape(-1)
