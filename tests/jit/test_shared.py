"""Words that threads share, and references by address: in one thread what they say they do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from openmrc.jit import compiled, record_type, records
from openmrc.jit.byref import Kept, at, by_reference
from openmrc.jit.shared import add, doze, exchange, give_way, look

PAIR = record_type(("first", "i8"), ("second", "i8"))


@by_reference
class Row(NamedTuple):
    values: Any


@compiled
def play(pairs: Any, address: int) -> tuple[int, int]:
    before = exchange(address + 8, 5)
    for _ in range(3):
        add(pairs, 1, 8)
    give_way()
    doze(1)
    return before, look(address + 8)


@compiled
def sums(like: Any, addresses: Any) -> int:
    total = 0
    for i in range(addresses.shape[0]):
        total += at(like, addresses[i]).values[0]
    return total


def test_an_exchange_gives_what_was_there_and_an_addition_hits_one_field() -> None:
    words, pairs = np.arange(3, dtype=np.int64), records(2, PAIR)
    assert play(pairs, words.ctypes.data) == (1, 5)
    assert words.tolist() == [0, 5, 2]
    assert [tuple(pair) for pair in pairs.tolist()] == [(0, 0), (0, 3)]


def test_a_kept_tuple_is_found_by_its_address() -> None:
    rows = [Row(np.array([10**k], np.int64)) for k in range(3)]
    kept = [Kept(row) for row in rows]
    addresses = np.array([each.address for each in kept], np.int64)
    assert sums(rows[0], addresses) == 111
    assert sums(rows[0], addresses[1:]) == 110
