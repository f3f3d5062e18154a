"""Bytes at an address as arrays: tensors, without a copy and without an owner.

`Tensor.numpy()` refuses bfloat16 and marks the storage as not resizable, which breaks FSDP1.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


def bytes_at(address: int, n: int) -> Bytes:
    """`n` bytes at an address; the caller keeps them alive."""
    if n == 0:
        return np.empty(0, np.uint8)
    there: Any = (ctypes.c_uint8 * n).from_address(address)
    return np.frombuffer(there, np.uint8)
