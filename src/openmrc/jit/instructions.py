"""Processor instructions that Numba does not offer; plain Python does the same without them.

`prefetch` is a hint that a record will be needed soon. A simulation of thousands of NICs waits for
memory more than it computes: the data of an event may be anywhere in hundreds of megabytes.
Prefetching it some events ahead (`sim/net/scout.py`) hides most of the wait: half of the time at
8192 NICs, little if everything fits the caches.

`trailing_zeros` finds a bit in a word: one instruction instead of six steps, several times for each
packet.

`folded` reduces the bytes of a packet, as a polynomial over GF(2), to 128 bits with the same
remainder, by carry-less multiplication (PCLMULQDQ): a CRC eight times as fast as with tables. It
exists only if `FOLDS` is true.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding
from numba.core import config

from openmrc.jit.decorators import interpreted


def _has(feature: str) -> bool:
    """Whether code is compiled for processors with this feature (LLVM's name)."""
    if config.CPU_FEATURES is not None or config.CPU_NAME not in (None, "host"):
        return f"+{feature}" in (config.CPU_FEATURES or "").split(",")
    return bool(binding.get_host_cpu_features().get(feature))


FOLD_BYTES = 64  # per round: four lanes of 16
FOLDS = not interpreted() and _has("pclmul")

if interpreted():

    def folded(
        start: int, address: int, n: int, far: int, far_high: int, near: int, near_high: int
    ) -> tuple[int, int]:
        """Never called: plain Python has no such instruction."""
        raise NotImplementedError

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

    WRITE, NEAR, DATA = 1, 3, 1  # to `llvm.prefetch`: for writing, keep in all caches, data
    LANES, LANE_BYTES = 4, 16
    LOW_LOW, HIGH_HIGH = 0x00, 0x11  # the halves that PCLMULQDQ multiplies
    _I8, _I32, _I64 = (ir.IntType(bits) for bits in (8, 32, 64))
    _PAIR = ir.VectorType(_I64, 2)

    def within(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        """The address of a byte in an array of records, from the arguments of an intrinsic: the
        array, the index of a record, and the offset in the record in bytes.
        """
        array_type = signature.args[0]
        array = make_array(array_type)(context, builder, value=values[0])
        at, offset = (
            context.cast(builder, value, kind, types.intp)
            for value, kind in zip(values[1:], signature.args[1:], strict=True)
        )
        record = cgutils.get_item_pointer(
            context, builder, array_type, array, [at], wraparound=False
        )
        return builder.gep(builder.bitcast(record, cgutils.voidptr_t), [offset])

    @intrinsic
    def folded(
        typing_context: Any,
        start: Any,
        address: Any,
        n: Any,
        far: Any,
        far_high: Any,
        near: Any,
        near_high: Any,
    ) -> Any:
        """Fold `n` blocks of FOLD_BYTES, at least one, that begin at an address into 16 bytes with
        the same remainder, returned as two int64. `start` is added to the first eight bytes.

        `far` and `far_high` are x^(512 + 32) and x^(512 - 32) modulo the polynomial, bits reversed;
        `near` and `near_high` the same with 128 in place of 512 (Gopal et al., "Fast CRC
        Computation for Generic Polynomials Using PCLMULQDQ", Intel 2009).
        """

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            first, at, blocks, *constants = values
            kind = ir.FunctionType(_PAIR, [_PAIR, _PAIR, _I8])
            multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")

            def pair(low: Any, high: Any) -> Any:
                one = builder.insert_element(ir.Constant(_PAIR, [0, 0]), low, _I32(0))
                return builder.insert_element(one, high, _I32(1))

            def load(at: Any, lane: int) -> Any:
                there = builder.add(at, _I64(LANE_BYTES * lane))
                return builder.load(builder.inttoptr(there, _PAIR.as_pointer()), align=1)

            def fold(x: Any, by: Any, following: Any) -> Any:
                low = builder.call(multiply, [x, by, _I8(LOW_LOW)])
                high = builder.call(multiply, [x, by, _I8(HIGH_HIGH)])
                return builder.xor(builder.xor(low, high), following)

            far_pair, near_pair = pair(*constants[:2]), pair(*constants[2:])
            end = builder.add(at, builder.mul(blocks, _I64(FOLD_BYTES)))
            lanes = [load(at, lane) for lane in range(LANES)]
            lanes[0] = builder.xor(lanes[0], pair(first, _I64(0)))
            second = builder.add(at, _I64(FOLD_BYTES))
            before = builder.block
            ask, work, over = (builder.append_basic_block(name) for name in ("ask", "work", "over"))
            builder.branch(ask)
            builder.position_at_end(ask)
            here = builder.phi(_I64)
            here.add_incoming(second, before)
            kept = [builder.phi(_PAIR) for _ in lanes]
            for phi, lane in zip(kept, lanes, strict=True):
                phi.add_incoming(lane, before)
            builder.cbranch(builder.icmp_unsigned("<", here, end), work, over)
            builder.position_at_end(work)
            new = [fold(x, far_pair, load(here, lane)) for lane, x in enumerate(kept)]
            here.add_incoming(builder.add(here, _I64(FOLD_BYTES)), work)
            for phi, lane in zip(kept, new, strict=True):
                phi.add_incoming(lane, work)
            builder.branch(ask)
            builder.position_at_end(over)
            x = kept[0]
            for lane in kept[1:]:
                x = fold(x, near_pair, lane)
            halves = [builder.extract_element(x, _I32(half)) for half in range(2)]
            return context.make_tuple(builder, signature.return_type, halves)

        return types.UniTuple(types.int64, 2)(*[types.int64] * 7), generate

    @intrinsic
    def prefetch(typing_context: Any, records: Any, index: Any, offset: Any) -> Any:
        """Fetch the cache line `offset` bytes into `records[index]`, which must exist."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            line = within(context, builder, signature, values)
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
