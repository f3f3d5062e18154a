"""Instructions of the processor that Numba has no word for; plain Python does the same without.

`prefetch` is a hint that a record will be needed soon. A simulation of thousands of NICs waits for
memory more than it computes: what an event needs lies anywhere in hundreds of megabytes. Naming it
some events ahead (`sim/mrc/scout.py`) hides most of the wait: half of the time at 8192 NICs, little
where everything fits the caches.

`trailing_zeros` finds a bit in a word: one instruction instead of six steps, several times for
each packet.
"""

from __future__ import annotations

from typing import Any

from openmrc.jit.decorators import interpreted

if interpreted():

    def prefetch(records: Any, index: int, offset: int) -> None:
        """Nothing to do."""

    def trailing_zeros(word: Any) -> int:
        """How many bits are clear below the lowest set bit of a non-zero uint64."""
        return (int(word) & -int(word)).bit_length() - 1

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

    @intrinsic
    def trailing_zeros(typing_context: Any, word: Any) -> Any:
        """How many bits are clear below the lowest set bit of a non-zero uint64."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            undefined_for_zero = ir.Constant(ir.IntType(1), 1)
            return builder.cttz(values[0], undefined_for_zero)

        return types.int64(types.uint64), generate
