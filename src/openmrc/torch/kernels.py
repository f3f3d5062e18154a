"""Reductions: one array into another of the same type, element by element.

bfloat16 and float16 are passed as the uint16 that hold them. They are added as PyTorch adds them:
in float32, rounded to nearest, ties to even; so a sum has the same bits as `torch.add`.
"""

from __future__ import annotations

import struct
from typing import Any

from openmrc.jit import compiled, inlined, interpreted

if interpreted():

    def float_of(bits: int) -> float:
        """The float32 with these 32 bits."""
        import numpy as np

        return np.frombuffer(struct.pack("<I", int(bits) & 0xFFFFFFFF), np.float32)[0]

    def bits_of(value: float) -> int:
        """The 32 bits of a float32."""
        return int.from_bytes(struct.pack("<f", float(value)), "little")

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def float_of(typing_context: Any, bits: Any) -> Any:
        """The float32 with these 32 bits."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = context.cast(builder, values[0], signature.args[0], types.uint32)
            return builder.bitcast(word, ir.FloatType())

        return types.float32(bits), generate

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]  # Numba has no types
    def bits_of(typing_context: Any, value: Any) -> Any:
        """The 32 bits of a float32."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = builder.bitcast(values[0], ir.IntType(32))
            return context.cast(builder, word, types.uint32, types.int64)

        return types.int64(types.float32), generate


@inlined
def _from_bf16(h):
    return float_of(int(h) << 16)


@inlined
def _to_bf16(value):
    bits = bits_of(value)
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


@inlined
def _from_f16(h):
    bits = int(h)
    sign, size = (bits & 0x8000) << 16, bits & 0x7FFF
    if size >= 0x7C00:  # infinity, or NaN
        return float_of(sign | 0x7F800000 | (size & 0x3FF) << 13)
    if size >= 0x0400:
        return float_of(sign | (size << 13) + 0x38000000)
    # below 2**-14: 2**-14 is added to the mantissa and subtracted again
    value = float_of((size << 13) + 0x38800000) - float_of(0x38800000)
    return -value if sign else value


@inlined
def _to_f16(value):
    bits = bits_of(value)
    sign, size = bits >> 16 & 0x8000, bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return sign | 0x7E00
    if size >= 0x477FF000:  # 65520 and above round to infinity
        return sign | 0x7C00
    if size >= 0x38800000:
        size += 0xFFF + (size >> 13 & 1)
        return sign | (size - 0x38000000) >> 13
    # the addition of 0.5 rounds to a multiple of 2**-24
    return sign | (bits_of(float_of(size) + float_of(0x3F000000)) - 0x3F000000)


@inlined
def _rank(bits):
    """An integer that orders floats of 16 bits; both zeros have the same."""
    size = bits & 0x7FFF
    return -size if bits & 0x8000 else size


@compiled
def add(into, other):
    """Sum."""
    for i in range(into.shape[0]):
        into[i] += other[i]


@compiled
def multiply(into, other):
    """Product."""
    for i in range(into.shape[0]):
        into[i] *= other[i]


@compiled
def least(into, other):
    """The smaller one; NaN wins, as in PyTorch."""
    for i in range(into.shape[0]):
        a, b = into[i], other[i]
        if b < a or b != b:  # noqa: PLR0124
            into[i] = b


@compiled
def most(into, other):
    """The larger one; NaN wins."""
    for i in range(into.shape[0]):
        a, b = into[i], other[i]
        if b > a or b != b:  # noqa: PLR0124
            into[i] = b


@compiled
def bits_and(into, other):
    """Bitwise and."""
    for i in range(into.shape[0]):
        into[i] &= other[i]


@compiled
def bits_or(into, other):
    """Bitwise or."""
    for i in range(into.shape[0]):
        into[i] |= other[i]


@compiled
def bits_xor(into, other):
    """Bitwise exclusive or."""
    for i in range(into.shape[0]):
        into[i] ^= other[i]


@compiled
def add_bf16(into, other):
    """Sum."""
    for i in range(into.shape[0]):
        into[i] = _to_bf16(_from_bf16(into[i]) + _from_bf16(other[i]))


@compiled
def multiply_bf16(into, other):
    """Product."""
    for i in range(into.shape[0]):
        into[i] = _to_bf16(_from_bf16(into[i]) * _from_bf16(other[i]))


@compiled
def least_bf16(into, other):
    """The smaller one."""
    for i in range(into.shape[0]):
        a, b = int(into[i]), int(other[i])
        if b & 0x7FFF > 0x7F80 or (a & 0x7FFF <= 0x7F80 and _rank(b) < _rank(a)):
            into[i] = other[i]


@compiled
def most_bf16(into, other):
    """The larger one."""
    for i in range(into.shape[0]):
        a, b = int(into[i]), int(other[i])
        if b & 0x7FFF > 0x7F80 or (a & 0x7FFF <= 0x7F80 and _rank(b) > _rank(a)):
            into[i] = other[i]


@compiled
def add_f16(into, other):
    """Sum."""
    for i in range(into.shape[0]):
        into[i] = _to_f16(_from_f16(into[i]) + _from_f16(other[i]))


@compiled
def multiply_f16(into, other):
    """Product."""
    for i in range(into.shape[0]):
        into[i] = _to_f16(_from_f16(into[i]) * _from_f16(other[i]))


@compiled
def least_f16(into, other):
    """The smaller one."""
    for i in range(into.shape[0]):
        a, b = int(into[i]), int(other[i])
        if b & 0x7FFF > 0x7C00 or (a & 0x7FFF <= 0x7C00 and _rank(b) < _rank(a)):
            into[i] = other[i]


@compiled
def most_f16(into, other):
    """The larger one."""
    for i in range(into.shape[0]):
        a, b = int(into[i]), int(other[i])
        if b & 0x7FFF > 0x7C00 or (a & 0x7FFF <= 0x7C00 and _rank(b) > _rank(a)):
            into[i] = other[i]
