"""A table in any room: every number whole, no line too long, the key in each part."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from openmrc.tabular import Column, print_table

NUMBER = re.compile(r"\d[\d,.]*")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    columns: list[Column],
    rows: list[list[str]],
    width: int,
    keys: int = 1,
    title: str | None = None,
) -> list[str]:
    out = io.StringIO()
    print_table(title, columns, rows, out, keys=keys, pipe_width=width)
    return out.getvalue().splitlines()


COLUMNS = [
    Column("transport", words=True),
    Column("flow completion time, p50, us"),
    Column("flow completion time, p100, us"),
    Column("goodput of all flows, Gb/s"),
]
ROWS = [["mrc", "24.1", "20,992,000,002.5", "11,729"], ["one path", "28.0", "5,604.2", "1,682"]]


def test_what_fits_is_one_table() -> None:
    lines = shown(COLUMNS, ROWS, 80, title="a run")
    assert lines[0].strip() == "a run"
    assert [line.count("│") for line in lines[-3:-1]] == [5, 5]
    assert lines[-2].split() == ["│", "one", "path", "│", "28.0", "│", "5,604.2", "│", "1,682", "│"]


def test_what_does_not_fit_stands_below_behind_the_same_key() -> None:
    lines = shown(COLUMNS, ROWS, 44, title="a run")
    assert max(map(len, lines)) <= 44
    rows = [re.sub(r"\s+", " ", line) for line in lines if "mrc" in line]
    assert rows == ["│ mrc │ 24.1 │", "│ mrc │ 20,992,000,002.5 │ 11,729 │"]
    assert sum("a run" in line for line in lines) == 1


def test_a_terminal_says_how_wide_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setenv("COLUMNS", "60")
    print_table(None, COLUMNS, ROWS, out)
    plain = re.sub(r"\x1b\[\d*m", "", out.getvalue())
    assert 50 < max(map(len, plain.splitlines())) <= 60


def test_words_wrap_before_numbers_part() -> None:
    columns = [Column("name", words=True), Column("value"), Column("from", words=True)]
    lines = shown(columns, [["power", "17.8", "a maker's data sheet, typical " * 5]], 60)
    assert len([line for line in lines if line.startswith("┏")]) == 1
    assert max(map(len, lines)) == 60


def test_brackets_are_no_markup() -> None:
    assert "[bold]" in "".join(shown([Column("a [b] c", words=True)], [["[bold]x[/]"]], 60))


@given(
    some.lists(some.sampled_from(["p50, us", "packets", "time over ideal time"]), max_size=9),
    some.lists(some.integers(0, 10**12), min_size=1, max_size=4),
    some.integers(40, 130),
)
def test_no_number_is_ever_cut(headings: list[str], values: list[int], width: int) -> None:
    columns = [Column("key", words=True), *map(Column, headings)]
    rows = [[f"k{v}", *(f"{v + i:,}" for i in range(len(headings)))] for v in values]
    lines = shown(columns, rows, width)
    assert max(map(len, lines)) <= width
    whole = {number for line in lines for number in NUMBER.findall(line)}
    assert {cell for row in rows for cell in row[1:]} <= whole
