"""Bytes at an address as arrays: tensors, without a copy and without an owner.

`Tensor.numpy()` refuses bfloat16 and marks the storage as not resizable, which breaks FSDP1.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.verbs.device import Device
from openmrc.verbs.region import MemoryRegion

Bytes = npt.NDArray[np.uint8]
Array = npt.NDArray[Any]


def bytes_at(address: int, n: int) -> Bytes:
    """`n` bytes at an address; the caller keeps them alive."""
    if n == 0:
        return np.empty(0, np.uint8)
    there: Any = (ctypes.c_uint8 * n).from_address(address)
    return np.frombuffer(there, np.uint8)


class Rooms:
    """Scratch memory in powers of two that is registered once and reused."""

    LEAST = 1 << 14

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: dict[int, list[MemoryRegion]] = {}

    def take(self, n: int) -> MemoryRegion:
        """Return a room of at least `n` bytes."""
        size = max(self.LEAST, 1 << max(n - 1, 1).bit_length())
        free = self._free.setdefault(size, [])
        return free.pop() if free else self._device.reg_mr(np.empty(size, np.uint8))

    def give(self, room: MemoryRegion) -> None:
        """Return a room to the pool."""
        self._free[room.length].append(room)
