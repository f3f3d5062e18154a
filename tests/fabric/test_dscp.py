"""A fabric's table of DSCPs: what a file or a shell may say, and the one number that it becomes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import InputError
from openmrc.fabric.dscp import DEFAULT, Dscps
from openmrc.wire import classes, layout
from tests.exposed import exposed

dscp, is_trimmed = exposed(classes.dscp), exposed(classes.is_trimmed)


def test_the_defaults_are_those_of_the_page() -> None:
    assert DEFAULT.names == layout.DSCPS
    assert DEFAULT.text == (
        "no_trim=0, trimmable=4, trimmable_retx=8, trimmed=12, trimmed_lasthop=16, control=46"
    )


def test_what_is_not_named_has_its_default() -> None:
    table = Dscps.parse("trimmed=11,trimmed_lasthop = 21")
    assert table == DEFAULT._replace(trimmed=11, trimmed_lasthop=21)
    assert table.trims == (11, 21)
    assert Dscps.parse("") == DEFAULT
    assert Dscps.parse("trimmed=16, trimmed_lasthop=12").trims == (16, 12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lasthop=3", "'lasthop=3': accepted, no_trim, trimmable, trimmable_retx, trimmed, "),
        ("trimmed", "'trimmed': a DSCP is 0 to 63"),
        ("trimmed=64", "'trimmed=64': a DSCP is 0 to 63"),
        ("trimmed=-1", "'trimmed=-1': a DSCP is 0 to 63"),
        ("trimmed=1,trimmed=1", "'trimmed=1': accepted, once each: no_trim"),
        ("trimmed=46", "trimmed and control are both 46: each class needs its own"),
        ("trimmed=16", "trimmed and trimmed_lasthop are both 16"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Dscps.parse(text)


@settings(derandomize=True, database=None, deadline=None)
@given(st.permutations(range(64)))
def test_compiled_code_reads_each_value_out_of_one_number(values: list[int]) -> None:
    table = Dscps(*values[:6])
    assert [dscp(table.packed, place) for place in range(6)] == values[:6]
    assert Dscps.parse(table.text) == table
    cut = {value for value in range(64) if is_trimmed(table.packed, value)}
    assert cut == set(table.trims)


def test_no_number_is_the_table_of_the_defaults() -> None:
    assert [dscp(0, place) for place in range(6)] == list(DEFAULT)
    assert all(a != b for a, b in pairwise(sorted(DEFAULT)))
