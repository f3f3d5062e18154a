"""Access to memory outside arrays from compiled code: bytes at an address, and memory ordering."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from openmrc.jit import interpreted

if interpreted():

    def bytes_at(address: int, n: int) -> Any:
        """`n` bytes at an address, as a uint8 array."""
        room = (ctypes.c_uint8 * int(n)).from_address(int(address))
        return np.frombuffer(memoryview(room), np.uint8)

    def fence() -> None:
        """Nothing to do: plain Python keeps the order of its statements."""

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic
    from numba.np.arrayobj import populate_array

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def bytes_at(typing_context: Any, address: Any, n: Any) -> Any:
        """`n` bytes at an address, as a uint8 array; the caller keeps them alive."""
        array_type = types.Array(types.uint8, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            at, length = (
                context.cast(builder, value, kind, types.intp)
                for value, kind in zip(values, signature.args, strict=True)
            )
            array = context.make_array(array_type)(context, builder)
            one = ir.Constant(ir.IntType(64), 1)
            populate_array(
                array,
                data=builder.inttoptr(at, array.data.type),
                shape=[length],
                strides=[one],
                itemsize=one,
                meminfo=None,
            )
            return array._getvalue()

        return array_type(address, n), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def fence(typing_context: Any) -> Any:
        """A full fence: earlier stores are visible to other threads before later loads and
        stores.
        """

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), generate
