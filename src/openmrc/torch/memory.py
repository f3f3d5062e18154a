"""Bytes at an address as arrays: tensors, without a copy and without an owner.

`Tensor.numpy()` refuses bfloat16 and marks the storage as not resizable, which breaks FSDP1.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.verbs.region import LOCAL_WRITE, MemoryRegion, Regions

Bytes = npt.NDArray[np.uint8]


def bytes_at(address: int, n: int) -> Bytes:
    """`n` bytes at an address; the caller keeps them alive."""
    if n == 0:
        return np.empty(0, np.uint8)
    there: Any = (ctypes.c_uint8 * n).from_address(address)
    return np.frombuffer(there, np.uint8)


def address_of(array: npt.NDArray[Any]) -> int:
    """The address of an array."""
    return int(array.__array_interface__["data"][0])


class Local(MemoryRegion):
    """Memory that is only sent from: no peer gets a key to it, so the device's table has no
    entry.
    """

    def __init__(self, data: Bytes) -> None:
        self.view, self.addr, self.length = data, address_of(data), data.nbytes
        self.last = {}
        self.open = True


class Exposed(MemoryRegion):
    """Memory that a peer may write to, until `dereg`."""

    def __init__(self, regions: Regions, data: Bytes) -> None:
        self._regions = regions
        self.buffer, self.view, self.addr, self.length = data, data, address_of(data), data.nbytes
        self.access = LOCAL_WRITE | 2
        self.rkey = self.lkey = regions.add(self)
        self.last = {}
        self.open = True


class Rooms:
    """Scratch memory in powers of two that is registered once and reused."""

    LEAST = 1 << 14

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._free: dict[int, list[Exposed]] = {}

    def take(self, n: int) -> Exposed:
        """Return a room of at least `n` bytes."""
        size = max(self.LEAST, 1 << max(n - 1, 1).bit_length())
        free = self._free.setdefault(size, [])
        return free.pop() if free else Exposed(self._regions, np.empty(size, np.uint8))

    def give(self, room: Exposed) -> None:
        """Return a room to the pool."""
        self._free[room.length].append(room)
