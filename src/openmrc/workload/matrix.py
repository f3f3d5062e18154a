"""A traffic matrix: the bytes of one message from each row's rank to each column's.

As CSV (or separated by blanks or semicolons) it is one line for each rank, of as many whole numbers
as there are ranks; a first line and a first column of names may say whose they are. As `.npy` it is
a square NumPy array. Cells of 0 send nothing. What a rank sends to itself does not cross the
network: it is left out, with a remark.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np

from openmrc.errors import InputError, remark
from openmrc.fabric.words import NUMBER_MAX
from openmrc.reading import read_bytes, read_text
from openmrc.say import counted
from openmrc.traffic.traffic import LongArray, Traffic, check_listed, make_traffic

NPY, WANTED = ".npy", "a matrix of bytes, as CSV or .npy"
_NUMBER = re.compile(r"[0-9]+(?:\.0*)?", re.ASCII)


def load_matrix(path: str | Path, n_nics: int, nics: LongArray | None = None) -> Traffic:
    """Return the workload of a matrix file for a fabric of `n_nics` NICs; all messages start at 0.

    Rank r is NIC `nics[r]`, in order without `nics`. `InputError` names file, row and column.
    """
    nics = np.arange(n_nics) if nics is None else nics
    matrix = _npy(path) if str(path).endswith(NPY) else _csv(path)
    n = len(matrix)
    if n > len(nics):
        raise InputError(f"{path}: {n} ranks on {len(nics)} NICs; take a larger fabric")
    if own := int(np.diagonal(matrix).sum()):
        remark(f"{path}: {own:,} B from ranks to themselves stay in their hosts, and are left out")
        np.fill_diagonal(matrix, 0)
    src, dst = np.nonzero(matrix)
    check_listed(len(src))
    try:
        return make_traffic(
            "matrix", n_nics, nics[src], nics[dst], np.arange(len(src)), matrix[src, dst]
        )
    except InputError as error:
        raise error.at(str(path)) from None


def _npy(path: str | Path) -> LongArray:
    data = read_bytes(path, WANTED)
    try:
        found = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except Exception as error:  # its header is parsed as Python's own words are
        raise InputError(f"{path}: no array of NumPy ({error}); name an .npy file") from None
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        shape = " x ".join(map(str, found.shape)) or "one number"
        raise InputError(f"{path}: {shape}; a row and a column for each rank are accepted")
    if found.dtype.kind not in "iuf":
        raise InputError(f"{path}: numbers of type {found.dtype}; bytes are whole numbers")
    whole = np.isfinite(found) & (found >= 0) & (found <= NUMBER_MAX) & (found == np.floor(found))
    if not whole.all():
        row, column = (int(at) for at in np.argwhere(~whole)[0])
        raise _refused(f"{path}: row {row}, column {column}", str(found[row, column]))
    return np.array(found, np.int64)


def _csv(path: str | Path) -> LongArray:
    rows = _cells(read_text(path, WANTED))
    # names above the columns, and before the rows
    if rows and not any(map(_NUMBER.fullmatch, rows[0][1])):
        del rows[0]
    if rows and all(not _NUMBER.fullmatch(cells[0]) for _, cells in rows):
        rows = [(number, cells[1:]) for number, cells in rows]
    if not rows:
        raise InputError(f"{path}: nothing in it; name a matrix of bytes")
    for number, cells in rows:  # before memory for as many columns is taken
        if len(cells) != len(rows):
            raise InputError(
                f"{path}:{number}: {counted(len(cells), 'number')} in a matrix of {len(rows)} rows;"
                " a row and a column for each rank are accepted"
            )
    matrix = np.zeros((len(rows), len(rows)), np.int64)
    for row, (number, cells) in enumerate(rows):
        for column, cell in enumerate(cells):
            if not _NUMBER.fullmatch(cell) or len(cell) > 19 or float(cell) > NUMBER_MAX:
                raise _refused(f"{path}:{number}: column {column}", cell)
            matrix[row, column] = int(cell.partition(".")[0])
    return matrix


def _cells(text: str) -> list[tuple[int, list[str]]]:
    """Return the cells of each line, with its number from 1; "#" begins a comment line."""
    lines = text.splitlines()
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    mark = next((mark for mark in ",;\t" if mark in first), None)
    split = (line.split() for line in lines) if mark is None else csv.reader(lines, delimiter=mark)
    return [
        (number, [cell.strip() for cell in cells])
        for number, cells in enumerate(split, start=1)
        if any(cells) and not cells[0].startswith("#")
    ]


def _refused(place: str, value: str) -> InputError:
    return InputError(f"{place}: {value[:40]!r}; whole bytes, 0 to {NUMBER_MAX}, are accepted")
