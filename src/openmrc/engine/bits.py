"""Unsigned 64-bit arithmetic: bitmaps over rings of words, and streams of random numbers.

The only place where uint64 values are combined. Everywhere else a value is an int64, because
compiled and plain Python disagree about the type of `uint64 + int64`. All functions take
`np.uint64` words and behave the same in both.
"""

from __future__ import annotations

import numpy as np

from openmrc.jit import inlined
from openmrc.jit.instructions import trailing_zeros

ZERO = np.uint64(0)
ONE = np.uint64(1)
ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_S7, _S13, _S17, _S32 = (np.uint64(n) for n in (7, 13, 17, 32))


@inlined
def lowest(word):
    """Index 0..63 of the lowest set bit of a non-zero word."""
    return trailing_zeros(word)


@inlined
def drop_lowest(word):
    """The word without its lowest set bit; the word must not be zero."""
    return word & (word - ONE)


@inlined
def any_bit(word):
    """True if a bit of the word is set."""
    return word != ZERO


@inlined
def missing_from(word, known, n):
    """Of the `n` lowest bits (0..64), those set neither in `word` nor in `known`."""
    if n <= 0:
        return ZERO
    below = ALL
    if n < 64:
        below = (ONE << np.uint64(n)) - ONE
    return ~(word | known) & below


@inlined
def above(word, n):
    """The word shifted down by `n` bits: non-zero if a bit at `n` or above is set."""
    if n <= 0:
        return word
    if n >= 64:
        return ZERO
    return word >> np.uint64(n)


@inlined
def news(word, known):
    """Bits set in `word` and not in `known`."""
    return word & ~known


@inlined
def test(words, word0, ring_mask, index):
    """Bit `index` of the ring of words that starts at `words[word0]`; `ring_mask` is the number of
    its bits minus 1.
    """
    bit = index & ring_mask
    return (words[word0 + (bit >> 6)] >> np.uint64(bit & 63)) & ONE != ZERO


@inlined
def mark(words, word0, ring_mask, index):
    """Set bit `index` of a ring."""
    bit = index & ring_mask
    words[word0 + (bit >> 6)] |= ONE << np.uint64(bit & 63)


@inlined
def unmark(words, word0, ring_mask, index):
    """Clear bit `index` of a ring."""
    bit = index & ring_mask
    words[word0 + (bit >> 6)] &= ~(ONE << np.uint64(bit & 63))


@inlined
def clear_word(words, word0, ring_mask, index):
    """Clear the 64 bits of the word that holds bit `index` of a ring."""
    words[word0 + ((index & ring_mask) >> 6)] = ZERO


@inlined
def word_at(words, word0, ring_mask, index):
    """The 64 bits `index .. index + 63` of a ring, bit 0 first."""
    bit = index & ring_mask
    offset = np.uint64(bit & 63)
    low = words[word0 + (bit >> 6)]
    if offset == ZERO:
        return low
    high = words[word0 + (((bit + 64) & ring_mask) >> 6)]
    return (low >> offset) | (high << (np.uint64(64) - offset))


@inlined
def ones_from(words, word0, ring_mask, index):
    """Number of consecutive set bits from `index` on, up to the end of its word (0..64)."""
    bit = index & ring_mask
    holes = ~(words[word0 + (bit >> 6)] >> np.uint64(bit & 63))
    return 64 if holes == ZERO else lowest(holes)  # the zeros shifted in count as holes


@inlined
def set_in_summary(words, summary, bit):
    """Set a bit of a bitmap that has a summary: one summary bit per word that is not zero."""
    words[bit >> 6] |= ONE << np.uint64(bit & 63)
    summary[bit >> 12] |= ONE << np.uint64((bit >> 6) & 63)


@inlined
def clear_in_summary(words, summary, bit):
    """Clear a bit of a bitmap with summary."""
    words[bit >> 6] &= ~(ONE << np.uint64(bit & 63))
    if words[bit >> 6] == ZERO:
        summary[bit >> 12] &= ~(ONE << np.uint64((bit >> 6) & 63))


@inlined
def next_set(words, summary, start):
    """The first set bit at or after `start`, wrapping around once; -1 if none is set."""
    n_words = words.shape[0]
    word = start >> 6
    rest = words[word] & (ALL << np.uint64(start & 63))
    if rest != ZERO:
        return (word << 6) + lowest(rest)
    found = _next_word(summary, word + 1, n_words)
    if found < 0:
        found = _next_word(summary, 0, n_words)
    if found < 0:
        return -1
    return (found << 6) + lowest(words[found])


@inlined
def _next_word(summary, start, n_words):
    if start >= n_words:
        return -1
    group = start >> 6
    rest = summary[group] & (ALL << np.uint64(start & 63))
    while rest == ZERO:
        group += 1
        if group >= summary.shape[0]:
            return -1
        rest = summary[group]
    return (group << 6) + lowest(rest)


@inlined
def draw(streams, i):
    """32 random bits as an int64 from stream `i` (xorshift64: shifts only, so no overflow that
    compiled and plain Python treat differently).
    """
    x = streams[i]
    x = x ^ (x << _S13)
    x = x ^ (x >> _S7)
    x = x ^ (x << _S17)
    streams[i] = x
    return np.int64(x >> _S32)


@inlined
def draw_below(streams, i, n):
    """A random integer 0 <= value < n, n < 2**31."""
    return (draw(streams, i) * n) >> 32


@inlined
def mix32(value):
    """A well mixed 32-bit hash of an int64 (only its low 32 bits count), for ECMP."""
    x = int(value) & 0xFFFF_FFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFF_FFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFF_FFFF
    return x ^ (x >> 16)


_SEED_A, _SEED_B, _SEED_SHIFT = 0x8B51F9DD, 0x58F38DED, 16  # of NumPy's SeedSequence


def seed_streams(seed: int, purpose: int, n: int) -> np.ndarray:
    """States of `n` independent random streams for one purpose of a run; shape (n,), uint64,
    non-zero.

    They are `SeedSequence([seed, purpose]).generate_state(n, uint64)`, computed for all at once:
    NumPy takes 2 s for the ports of 131,072 NICs on eight planes.
    """
    pool = np.random.SeedSequence([seed, purpose]).pool
    n = max(n, 1)
    keys = np.full(2 * n + 2 + len(pool), _SEED_B, np.uint32)  # two for each, and some spare
    keys[0] = _SEED_A
    np.multiply.accumulate(keys, out=keys)
    whole = len(keys) // len(pool) * len(pool) - len(pool)
    state = (keys[:whole].reshape(-1, len(pool)) ^ pool).ravel()
    state *= keys[1 : whole + 1]
    state ^= state >> np.uint32(_SEED_SHIFT)
    words: np.ndarray = state[: 2 * n].astype("<u4").view("<u8").astype(np.uint64)
    words[words == 0] = np.uint64(0x9E37_79B9_7F4A_7C15)
    return words
