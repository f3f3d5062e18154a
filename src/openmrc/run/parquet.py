"""What a Parquet file will unpack to, known from its headers before anything of it is unpacked.

A page of a few kilobytes can hold gigabytes: one long text, or a number of rows. Its header says
both, and no reader gets more out of it than that. Headers are Thrift's compact protocol; the names
of their fields are those of parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

# A run has about a million flows and as many cells of links for a transport. Memory for columns is
# taken at once, and a file of a few bytes can claim any number of rows.
ROWS_MAX = 2**24
VALUE_BYTES_MAX = 64  # on average: numbers have 8, names and texts of errors more
ROOM_BYTES = 64 << 20  # for a few longer ones
_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length, and the magic
_DEPTH_MAX = 16  # of structures within structures: a footer has six
# FileMetaData.row_groups; RowGroup.columns and num_rows; ColumnChunk.meta_data
_ROW_GROUPS, _COLUMNS, _NUM_ROWS, _META_DATA = 4, 1, 3, 3
_COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11  # of ColumnMetaData
_PAGE_UNPACKED, _PAGE_PACKED, _DICTIONARY = 2, 3, 7  # of PageHeader
_ENCODING = {5: 2, 7: 2, 8: 4}  # where each kind of page has it; its values are field 1
_PREFIXES = 7  # an encoding in which each text may repeat the one before it: more than its page


def check_room(file: Path) -> None:
    """Raise `ValueError` for a file that holds more than a table of openmrc can, or is none."""
    try:
        with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            _check(data, _footer(data).get(_ROW_GROUPS, []))
    except (LookupError, TypeError):
        raise ValueError("no Parquet file") from None


def _check(data: mmap, groups: Sequence[dict[int, Any]]) -> None:
    n = sum(group[_NUM_ROWS] for group in groups)
    seen: set[int] = set()
    for column in range(max((len(group[_COLUMNS]) for group in groups), default=0)):
        values = n_bytes = 0
        for group in groups:
            for at, page in _pages(data, group[_COLUMNS][column][_META_DATA]):
                if at in seen:
                    raise ValueError("a page of two columns")
                seen.add(at)
                values += page.values
                n_bytes += page.n_bytes
        n = max(n, values)
        if n > ROWS_MAX:
            raise ValueError(f"{n:,} rows; at most {ROWS_MAX:,} are read")
        if n_bytes > ROOM_BYTES + VALUE_BYTES_MAX * values:
            raise ValueError(f"{n_bytes:,} bytes of {values:,} values, packed")


def _footer(data: mmap) -> dict[int, Any]:
    n_bytes = int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    at = len(data) - _TAIL_BYTES - n_bytes
    if data[-4:] != _MAGIC or at < 0:
        raise ValueError("no Parquet file")
    return _Thrift(data, at).struct()


class _Page(NamedTuple):
    values: int
    n_bytes: int  # unpacked


def _pages(data: mmap, column: dict[int, Any]) -> Iterator[tuple[int, _Page]]:
    """The pages of a column in a group of rows, each with its place in the file."""
    at = min(column[_DATA_PAGE], column.get(_DICTIONARY_PAGE) or column[_DATA_PAGE])
    end = at + column[_COMPRESSED_SIZE]
    while at < end:
        read = _Thrift(data, at)
        page = read.struct()
        (kind,) = (kind for kind in _ENCODING if kind in page)
        if page[kind][_ENCODING[kind]] == _PREFIXES:
            raise ValueError("texts that begin as others do")
        values, n_bytes, packed = page[kind][1], page[_PAGE_UNPACKED], page[_PAGE_PACKED]
        if min(values, n_bytes, packed) < 0:
            raise ValueError("a page of negative size")
        # a dictionary has no values of its own: pages name them
        yield at, _Page(0 if kind == _DICTIONARY else values, n_bytes)
        at = read.at + packed


class _Thrift:
    """Reads values of the compact protocol; what they cannot be is an error of any kind."""

    def __init__(self, data: mmap, at: int) -> None:
        self.data, self.at = data, at
        if at < 0:
            raise ValueError("a place before the file")
        self.kinds: dict[int, Callable[[int], Any]] = {
            1: lambda _: True, 2: lambda _: False, 3: lambda _: self._byte(),
            4: lambda _: self._signed(), 5: lambda _: self._signed(), 6: lambda _: self._signed(),
            7: lambda _: self._skip(8), 8: lambda _: self._skip(self._number()),
            9: self._list, 10: self._list, 12: self.struct,
        }  # fmt: skip

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        if depth > _DEPTH_MAX:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self.kinds[head & 15](depth + 1)
        return fields

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        n = self._number() if head >> 4 == 15 else head >> 4
        kind = head & 15
        read = (lambda _: self._byte()) if kind in (1, 2) else self.kinds[kind]
        return [read(depth) for _ in range(n)]

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _skip(self, n: int) -> None:
        self.at += n

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return value

    def _signed(self) -> int:
        value = self._number()
        return (value >> 1) ^ -(value & 1)
