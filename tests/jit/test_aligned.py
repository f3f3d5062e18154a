"""Records are the same in compiled and in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openmrc.jit import CACHE_LINE, apart, offset_of, record_type, records


@pytest.mark.parametrize("plain", ["0", "1"])
@pytest.mark.parametrize("made", [records, apart])
def test_records_are_zero_and_have_attributes(
    made: Callable[..., Any], plain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", plain)
    found = made(3, np.dtype([("cwnd", "f8"), ("psn", "i4"), ("sacks", "u8", 2)]))
    assert found.psn.tolist() == [0, 0, 0]
    found[1].psn = 7
    found[2].sacks[1] = 9
    assert found.psn.tolist() == [0, 7, 0]
    assert (found[1].psn, found[1:][0].psn, found[1]["psn"]) == (7, 7, 7)
    assert found[2].sacks.tolist() == found.sacks[2].tolist() == [0, 9]


@pytest.mark.parametrize("name", ["size", "flags", "item", "data"])
def test_a_field_that_plain_python_could_not_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        records(1, np.dtype([(name, "i8")]))


def test_a_field_begins_where_c_would_place_it() -> None:
    record = record_type(("kind", "u1"), ("psn", "i4"), ("at", "i8"))
    assert [offset_of(record, name) for name in ("kind", "psn", "at")] == [0, 4, 8]
    with pytest.raises(KeyError):
        offset_of(record, "ev")


def test_records_begin_at_a_cache_line() -> None:
    for n in range(1, 9):
        assert records(n, np.dtype([("psn", "i4")])).ctypes.data % CACHE_LINE == 0


@pytest.mark.parametrize("kind", ["i4", "(32,)i4", "(33,)i4"])
def test_neighbours_that_are_apart_share_no_two_cache_lines(kind: str) -> None:
    found = apart(3, np.dtype([("psn", kind)]))
    first = [found[i : i + 1].ctypes.data for i in range(3)]
    assert first[1] - first[0] >= max(found.dtype.itemsize, 2 * CACHE_LINE)
    assert first[2] - first[1] == first[1] - first[0]
    assert found[1:2].view(np.recarray).flags.c_contiguous
