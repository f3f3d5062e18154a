"""C structures at addresses: those of a caller, and those that a caller receives.

An address that a caller passes is trusted, as in C, except NULL; a handle never is.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from openmrc.capi.layouts import Struct
from openmrc.errors import InputError, OpenMrcError
from openmrc.jit import offset_of

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """A call fails; `code` is its errno."""

    def __init__(self, code: int, why: str = "") -> None:
        super().__init__(why)
        self.code = code


@contextmanager
def refused_as(code: int) -> Iterator[None]:
    """Within the block, an error of the device other than a wrong value has this errno."""
    try:
        yield
    except InputError:
        raise
    except OpenMrcError as error:
        raise Refused(code, str(error)) from None


def at(address: int, struct: Struct) -> Any:
    """The structure at an address, to read and write; EINVAL for NULL."""
    if not address:
        raise Refused(errno.EINVAL, f"{struct.name}: NULL")
    room = (ctypes.c_char * struct.dtype.itemsize).from_address(address)
    return np.frombuffer(memoryview(room), struct.dtype)[0:1].reshape(())


def put(address: int, kind: str, value: int) -> None:
    """Store a number (NumPy's name of its type) at an address, unless that is NULL."""
    if not address:
        raise Refused(errno.EINVAL, "NULL")
    one = np.dtype(kind)
    room = (ctypes.c_char * one.itemsize).from_address(address)
    np.frombuffer(memoryview(room), one)[0] = value


class Block:
    """A structure that a caller receives: it stays in place as long as this object lives."""

    def __init__(self, struct: Struct, part: str = "") -> None:
        self._room = np.zeros(1, struct.dtype)
        self.record = self._room[0:1].reshape(())
        offset = offset_of(struct.dtype, part) if part else 0
        self.address = int(self._room.ctypes.data) + offset


def is_mapped(address: int, length: int) -> bool:
    """Whether all of these addresses are mapped in this process."""
    page = mmap.PAGESIZE
    first = address // page * page
    pages = -(-(address + length - first) // page)
    seen = (ctypes.c_ubyte * min(pages, 1 << 16))()
    for begin in range(0, pages, len(seen)):
        n = min(len(seen), pages - begin)
        where = ctypes.c_void_p(first + begin * page)
        if _libc.mincore(where, ctypes.c_size_t(n * page), seen):
            return False
    return True
