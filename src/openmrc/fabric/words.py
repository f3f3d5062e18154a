"""Line-by-line reading of plain text inputs, with errors that name file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from openmrc.errors import InputError
from openmrc.reading import read_text
from openmrc.units import integer

# Far above any real count, size or time, and safe to calculate with in int64.
NUMBER_MAX = 2**60

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Line(NamedTuple):
    """The words of one line, and its place: "a.topo:12"."""

    place: str
    words: list[str]


def read_lines(path: str | Path, what: str) -> list[Line]:
    """Return the lines of a text file, without empty lines and comments ("#").

    Raises `InputError` if there is no such file, if it is not text, or if nothing is left.
    """
    text = read_text(path, what)
    lines = [
        Line(f"{path}:{number}", line.split())
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not lines:
        raise InputError(f"{path}: nothing in it; name {what}")
    return lines


def whole(place: str, name: str, word: str, least: int = 0) -> int:
    """Return the whole number `word`, the value of `name`; raise `InputError` at `place`."""
    if not _WHOLE.fullmatch(word):
        raise InputError(f"{place}: {name} {word!r} is not a whole number; write digits only")
    number = integer(word)
    if not least <= number <= NUMBER_MAX:
        raise InputError(
            f"{place}: {name} {word} is out of range; {least} to {NUMBER_MAX} is accepted"
        )
    return number
