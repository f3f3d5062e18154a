"""Fields of a header as compiled code reads and writes them: a 32-bit word, a shift and a mask.

The constants below, one for each header, are computed from `layout` when this module is imported;
Numba freezes them, so that a field costs a load, a shift and a mask. Values are int64; only the
bitmap of a SACK is a uint64, which `high`, `low` and `joined` convert.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import inlined
from openmrc.wire import layout
from openmrc.wire.layout import RESERVED, Header

WORD_BITS = 32
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)


class Slot(NamedTuple):
    """Where a field is: the byte in which it begins, and its word, shift and mask."""

    byte: int
    word: int  # offset of its word in bytes
    shift: int  # bits of the word below it
    mask: int  # ones, as many as the field's bits


def slots(header: Header) -> Any:
    """Return a named tuple: `size_bytes` of the header, and each field by its name.

    A field is a `Slot` if it lies within one of the header's words, else (a MAC or IPv6 address, 64
    bits, the end of the Ethernet header) the offset of its first byte, an integer.
    """
    names = [f.name for f in header.fields if f.name != RESERVED]
    make: Any = namedtuple  # mypy cannot know its fields: they come from the layout
    return make(header.name, ["size_bytes", *names])(
        header.size_bytes, *(_slot(header, name) for name in names)
    )


def _slot(header: Header, name: str) -> Slot | int:
    word, first = divmod(header.bit(name), WORD_BITS)
    bits = header.field(name).bits
    if first + bits > WORD_BITS or (word + 1) * WORD_BITS > header.size_bytes * 8:
        return header.byte(name)
    word_bytes = word * WORD_BITS // 8
    return Slot(header.byte(name), word_bytes, WORD_BITS - first - bits, (1 << bits) - 1)


@inlined
def word(data, at):
    """The 32-bit word of the bytes from `at` on, an int64."""
    return (
        np.int64(data[at]) << 24
        | np.int64(data[at + 1]) << 16
        | np.int64(data[at + 2]) << 8
        | np.int64(data[at + 3])
    )


@inlined
def put_word(out, at, value):
    """Write the low 32 bits of an int64."""
    out[at] = value >> 24 & 0xFF
    out[at + 1] = value >> 16 & 0xFF
    out[at + 2] = value >> 8 & 0xFF
    out[at + 3] = value & 0xFF


@inlined
def get(data, at, slot):
    """A field of the header that begins at `at`."""
    return word(data, at + slot.word) >> slot.shift & slot.mask


@inlined
def signed16(value):
    """The two's complement value of a 16-bit field."""
    return value - ((value & 0x8000) << 1)


@inlined
def add(out, at, slot, value):
    """Write the low bits of `value` into a field that is zero."""
    old = word(out, at + slot.word)
    put_word(out, at + slot.word, old | (int(value) & slot.mask) << slot.shift)


@inlined
def put(out, at, slot, value):
    """Write the low bits of `value` over the contents of a field."""
    old = word(out, at + slot.word) & ~(slot.mask << slot.shift)
    put_word(out, at + slot.word, old | (int(value) & slot.mask) << slot.shift)


@inlined
def zero(room):
    """Zero all bytes of an array."""
    for i in range(room.shape[0]):
        room[i] = 0


@inlined
def put_bytes(out, at, values):
    """Write all bytes of `values` from `at` on."""
    for i in range(values.shape[0]):
        out[at + i] = values[i]


@inlined
def get_bytes(data, at, to):
    """Fill `to` with the bytes from `at` on."""
    for i in range(to.shape[0]):
        to[i] = data[at + i]


@inlined
def high(bitmap):
    """The upper 32 of 64 bits (uint64), an int64."""
    return np.int64(bitmap >> _HALF)


@inlined
def low(bitmap):
    """The lower 32 of 64 bits (uint64), an int64."""
    return np.int64(bitmap & _LOW)


@inlined
def joined(high, low):
    """The uint64 of its two halves."""
    return np.uint64(high) << _HALF | np.uint64(low)


ETHERNET, IPV6, IPV4 = slots(layout.ETHERNET), slots(layout.IPV6), slots(layout.IPV4)
SRH, UDP, BTH = slots(layout.SRH), slots(layout.UDP), slots(layout.BTH)
METH, TSETH, RETH = slots(layout.METH), slots(layout.TSETH), slots(layout.RETH)
IMMDT, AETH, SETH = slots(layout.IMMDT), slots(layout.AETH), slots(layout.SETH)
CC_STATE, NETH, PETH = slots(layout.CC_STATE), slots(layout.NETH), slots(layout.PETH)
ERTH, EETH, ICRC = slots(layout.ERTH), slots(layout.EETH), slots(layout.ICRC)
