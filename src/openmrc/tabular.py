"""Tables for people, in which no number is ever clipped: tables that are too wide are stacked.

A column of numbers is as wide as its longest number, and its heading wraps at words. If not all
columns fit side by side, the others follow in a table below, which begins with the same key. Text
wraps, so a column of text takes the width that the numbers leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Literal, NamedTuple

from rich.console import Console
from rich.table import Table

from openmrc.printable import printable

WORD_MAX = 24  # longer words (an IPv6 address) are broken if space is short
BORDER = 3  # of a column: a line and a blank at either side
PIPE_WIDTH = 120  # a pipe has no width


class Column(NamedTuple):
    """A heading that describes the column, with its unit; `words` may wrap, numbers may not."""

    heading: str
    words: bool = False


Vertical = Literal["top", "bottom"]
Cells = Sequence[Sequence[str]]


def print_table(
    title: str | None,
    columns: Sequence[Column],
    rows: Cells,
    out: IO[str],
    *,
    keys: int = 1,
    pipe_width: int = PIPE_WIDTH,
    sections: Sequence[int] = (),
) -> None:
    """Print a table to `out`, in as many parts as its width requires.

    The first `keys` columns identify a row, and are repeated in each part. A line is drawn above
    the rows numbered in `sections`.
    """
    console = _console(out, pipe_width)
    title = None if title is None else printable(title)
    columns = [Column(printable(heading), words) for heading, words in columns]
    rows = [[printable(cell) for cell in cells] for cells in rows]
    # Beside cells that wrap, the others are aligned at their top.
    vertical: Vertical = "top" if any(column.words for column in columns[keys:]) else "bottom"
    for number, part in enumerate(_parts(columns, rows, keys, console.width)):
        table = Table(title=None if number else title, title_justify="left")
        for (heading, words), width in part.values():
            table.add_column(
                heading,
                justify="left" if words else "right",
                vertical=vertical,
                width=width,
                overflow="fold",
            )
        for row, cells in enumerate(rows):
            if row in sections:
                table.add_section()
            table.add_row(*(cells[index] for index in part))
        console.print(table, markup=False)


class _Console(Console):
    """A console whose reader may leave as that of any other output may: rich would exit."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 (rich calls this where it has caught one)


def _console(out: IO[str], pipe_width: int) -> Console:
    return _Console(
        file=getattr(out, "unfiltered", out),  # styles are escape sequences
        highlight=False,
        markup=False,
        emoji=False,
        width=None if out.isatty() else pipe_width,
    )


def _parts(
    columns: Sequence[Column], rows: Cells, keys: int, width: int
) -> list[dict[int, tuple[Column, int]]]:
    """The columns of each part by their index in a row, with their widths."""
    least = [_least(column, _cells(rows, i)) for i, column in enumerate(columns)]
    key = list(range(keys))
    parts: list[list[int]] = [key]
    for i in range(keys, len(columns)):
        if len(parts[-1]) > keys and _room(width, [*parts[-1], i], least) < 0:
            parts.append(key)
        parts[-1] = [*parts[-1], i]
    return [_widened(part, columns, rows, least, width) for part in parts]


def _widened(
    part: list[int], columns: Sequence[Column], rows: Cells, least: list[int], width: int
) -> dict[int, tuple[Column, int]]:
    """Give the remaining width to columns of text, or take missing width from them."""
    widths = {i: least[i] for i in part}
    room = _room(width, part, least)
    for i in part:
        if columns[i].words:
            longest = max(map(len, _cells(rows, i)), default=0)
            wanted = max(longest, widths[i]) - widths[i]
            more = max(min(room, wanted), 1 - widths[i])
            widths[i] += more
            room -= more
    return {i: (columns[i], widths[i]) for i in part}


def _room(width: int, part: Sequence[int], least: Sequence[int]) -> int:
    return width - 1 - sum(least[i] + BORDER for i in part)


def _least(column: Column, cells: Sequence[str]) -> int:
    """The width below which a number would be clipped, or a word broken."""
    heading = max((len(word) for word in column.heading.split()), default=1)
    if not column.words:
        return max([heading, *map(len, cells)])
    words = [len(word) for cell in cells for word in cell.split()]
    return max(heading, min(max(words, default=0), WORD_MAX), 1)


def _cells(rows: Cells, i: int) -> list[str]:
    return [cells[i] for cells in rows]
