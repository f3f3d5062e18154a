"""Bitmaps and random streams against Python's big integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import bits
from openmrc.jit import compiled

WORD = st.integers(0, (1 << 64) - 1)
RING = 256  # bits


# `inlined` functions can be called from compiled code only; in plain Python these are plain too.
@compiled
def on_words(a: Any, b: Any, n: int) -> Any:
    lowest = bits.lowest(a) if bits.any_bit(a) else -1
    dropped = bits.drop_lowest(a) if bits.any_bit(a) else a
    return lowest, dropped, bits.missing_from(a, b, n), bits.news(a, b)


@compiled
def on_ring(words: Any, do: int, index: int) -> None:
    if do == 0:
        bits.mark(words, 1, RING - 1, index)
    elif do == 1:
        bits.unmark(words, 1, RING - 1, index)
    else:
        bits.clear_word(words, 1, RING - 1, index)


@compiled
def read_ring(words: Any, index: int) -> Any:
    return (
        bits.test(words, 1, RING - 1, index),
        bits.word_at(words, 1, RING - 1, index),
        bits.ones_from(words, 1, RING - 1, index),
    )


@compiled
def summarised(words: Any, summary: Any, setting: bool, bit: int) -> None:
    if setting:
        bits.set_in_summary(words, summary, bit)
    else:
        bits.clear_in_summary(words, summary, bit)


@compiled
def next_set(words: Any, summary: Any, start: int) -> Any:
    return bits.next_set(words, summary, start)


@compiled
def drawn(streams: Any, n: int, below: Any) -> None:
    for i in range(n):
        below[i] = bits.draw_below(streams, 0, 10)


@compiled
def mixed(value: int) -> Any:
    return bits.mix32(value)


SOME = settings(max_examples=150, deadline=None, derandomize=True)


@SOME
@given(WORD, WORD, st.integers(0, 64))
def test_words(a: int, b: int, n: int) -> None:
    lowest, dropped, missing, news = on_words(np.uint64(a), np.uint64(b), n)
    assert lowest == (a & -a).bit_length() - 1
    assert int(dropped) == a & (a - 1) if a else a == 0
    assert int(missing) == ~(a | b) & ((1 << n) - 1)
    assert int(news) == a & ~b


@SOME
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1 << 40)), max_size=40),
    st.integers(0, RING),
    st.integers(0, 1 << 40),
)
def test_rings(script: list[tuple[int, int]], run: int, at: int) -> None:
    words = np.zeros(RING // 64 + 2, np.uint64)
    model = 0
    script = [(0, at + i) for i in range(run)] + script
    for do, index in script:
        on_ring(words, do, index)
        bit = index % RING
        if do == 0:
            model |= 1 << bit
        elif do == 1:
            model &= ~(1 << bit)
        else:
            model &= ~(((1 << 64) - 1) << (bit & ~63))
    assert words[0] == words[-1] == 0, "nothing outside the ring"
    got = sum(int(w) << (64 * i) for i, w in enumerate(words[1:-1]))
    assert got == model
    twice = model | model << RING
    for index in (at, at + 63, at + 64, *(i for _, i in script[-3:])):
        bit = index % RING
        one, word, ones = read_ring(words, index)
        assert bool(one) == bool(model >> bit & 1)
        assert int(word) == twice >> bit & ((1 << 64) - 1)
        rest = 64 - bit % 64
        value = twice >> bit & ((1 << rest) - 1)
        assert ones == (~value & (value + 1)).bit_length() - 1


@SOME
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 64 * 128 - 1)), max_size=30), st.data())
def test_a_bitmap_with_a_summary(script: list[tuple[bool, int]], data: st.DataObject) -> None:
    words, summary = np.zeros(128, np.uint64), np.zeros(2, np.uint64)
    model: set[int] = set()
    for setting, bit in script:
        summarised(words, summary, setting, bit)
        if setting:
            model.add(bit)
        else:
            model.discard(bit)
    start = data.draw(st.integers(0, 64 * 128 - 1))
    after = [b for b in model if b >= start]
    before = [b for b in model if b < start]
    expected = min(after) if after else (min(before) if before else -1)
    assert next_set(words, summary, start) == expected


def test_streams_are_xorshift64() -> None:
    streams = bits.seed_streams(7, 3, 2)
    x = int(streams[0])
    below = np.zeros(1000, np.int64)
    drawn(streams, 1000, below)
    for value in below:
        x ^= x << 13 & (1 << 64) - 1
        x ^= x >> 7
        x ^= x << 17 & (1 << 64) - 1
        assert value == (x >> 32) * 10 >> 32
    assert set(below) == set(range(10))
    assert int(streams[0]) == x


def test_seeds_and_purposes_give_streams_of_their_own() -> None:
    seen = [int(x) for s in (1, 2) for p in (0, 1) for x in bits.seed_streams(s, p, 3)]
    assert len(set(seen)) == 12
    assert 0 not in seen
    assert (bits.seed_streams(1, 0, 3) == bits.seed_streams(1, 0, 3)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1001])
def test_streams_begin_as_numpy_seeds_them(n: int) -> None:
    seeds = np.random.SeedSequence([12345678901, 4]).generate_state(n, np.uint64)
    assert bits.seed_streams(12345678901, 4, n).tolist() == seeds.tolist()


def test_mix32_spreads_and_looks_at_32_bits_only() -> None:
    values = {int(mixed(i)) for i in range(2000)}
    assert len(values) == 2000
    assert all(0 <= v < 1 << 32 for v in values)
    assert mixed(5) == mixed(5 + (1 << 32))
    low = np.bincount([v & 7 for v in values], minlength=8)
    assert low.min() > 200
