"""A hint to the processor that a record will be needed soon.

A simulation of thousands of NICs waits for memory more than it computes: what an event needs lies
anywhere in hundreds of megabytes. Naming it some events ahead (`sim/scout.py`) hides most of the
wait: half of the time at 8192 NICs, little where everything fits the caches. Plain Python ignores
the hint.
"""

from __future__ import annotations

from typing import Any

from openmrc.jit import interpreted

if interpreted():

    def prefetch(records: Any, index: int, offset: int) -> None:
        """Nothing to do."""

else:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

    WRITE, NEAR, DATA = 1, 3, 1  # what `llvm.prefetch` asks: to be written, kept in all caches

    @intrinsic
    def prefetch(typing_context: Any, records: Any, index: Any, offset: Any) -> Any:
        """Fetch the cache line `offset` bytes into `records[index]`, which must exist."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            array_type = signature.args[0]
            array = make_array(array_type)(context, builder, value=values[0])
            at, within = (
                context.cast(builder, value, kind, types.intp)
                for value, kind in zip(values[1:], signature.args[1:], strict=True)
            )
            record = cgutils.get_item_pointer(
                context, builder, array_type, array, [at], wraparound=False
            )
            line = builder.gep(builder.bitcast(record, cgutils.voidptr_t), [within])
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(hint, [line, number(WRITE), number(NEAR), number(DATA)])
            return context.get_dummy_value()

        return types.void(records, index, offset), generate
