"""Atomic operations on words that several threads share. In plain Python the GIL or a lock makes
them atomic.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from typing import Any

import numpy as np

from openmrc.jit.decorators import interpreted

if interpreted():
    _lock = threading.Lock()

    def exchange(address: int, value: int) -> int:
        """Store an int64 at an address; return the previous value. The GIL makes it atomic."""
        place = ctypes.c_int64.from_address(int(address))
        with _lock:
            before, place.value = place.value, value
        return int(before)

    def look(address: int) -> int:
        """Load the int64 at an address, atomically."""
        return int(ctypes.c_int64.from_address(int(address)).value)

    def add(records: Any, index: int, offset: int) -> None:
        """Add 1 to the int64 `offset` bytes into `records[index]`, atomically."""
        words = records.view(np.int64).reshape(len(records), -1)
        with _lock:
            words[index, offset // words.itemsize] += 1

    def give_way() -> int:
        """Yield to another thread."""
        os.sched_yield()
        return 0

    def doze(us: int) -> int:
        """Sleep for this many microseconds."""
        time.sleep(us * 1e-6)
        return 0

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from openmrc.jit.instructions import within

    _WORD = ir.IntType(64)

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def exchange(typing_context: Any, address: Any, value: Any) -> Any:
        """Store an int64 at an address and return the previous value, atomically."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = builder.inttoptr(values[0], _WORD.as_pointer())
            new = context.cast(builder, values[1], signature.args[1], types.int64)
            return builder.atomic_rmw("xchg", place, new, "seq_cst")

        return types.int64(types.int64, value), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def look(typing_context: Any, address: Any) -> Any:
        """Load the int64 at an address, atomically."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = builder.inttoptr(values[0], _WORD.as_pointer())
            return builder.load_atomic(place, "seq_cst", 8)

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def add(typing_context: Any, records: Any, index: Any, offset: Any) -> Any:
        """Add 1 to the int64 `offset` bytes into `records[index]`, atomically."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = within(context, builder, signature, values)
            place = builder.bitcast(place, _WORD.as_pointer())
            builder.atomic_rmw("add", place, _WORD(1), "monotonic")
            return context.get_dummy_value()

        return types.void(records, index, offset), generate

    give_way = types.ExternalFunction("sched_yield", types.int32())
    doze = types.ExternalFunction("usleep", types.int32(types.int64))
