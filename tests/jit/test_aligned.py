"""Records are the same in compiled and in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.jit import CACHE_LINE, records


def test_records_are_zero_and_have_attributes() -> None:
    found = records(3, np.dtype([("cwnd", "f8"), ("psn", "i4")]))
    assert found.psn.tolist() == [0, 0, 0]
    found[1].psn = 7
    assert found[1].psn == 7


@pytest.mark.parametrize("name", ["size", "flags", "item", "data"])
def test_a_field_that_plain_python_could_not_read_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        records(1, np.dtype([(name, "i8")]))


def test_records_begin_at_a_cache_line() -> None:
    for n in range(1, 9):
        assert records(n, np.dtype([("psn", "i4")])).ctypes.data % CACHE_LINE == 0
