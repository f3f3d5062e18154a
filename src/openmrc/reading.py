"""The one place where a file that a user names is opened and read: to its end, if it has one.

Whatever is wrong with it is one `InputError`: it is not there, never ends, is no text, nests too
deeply. A FIFO or a device may keep its reader waiting for ever, so only those are read which the
caller has opened already: standard input ("-"), and /dev/fd/N, as a shell's `<(...)`.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from openmrc.errors import InputError

Name = str | os.PathLike[str]

STANDARD_INPUT = "-"  # as shells name it
CLOSED = "standard input: is closed; name a file, or leave it open"
OPEN_ALREADY = re.compile(r"/dev/(stdin|fd/\d+)|/proc/(self|\d+)/fd/\d+")
# UTF-8, with or without the mark that editors and shells of Windows put before it.
TEXT = "utf-8-sig"
# Thousands of faults make a megabyte; longer input has no end, or is something else.
TEXT_BYTES_MAX = 64 << 20
# What is raised where data of others are used as if they were what they should be.
BROKEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
NESTED_MAX = 32  # tables within tables; a scenario has four
# A key of more parts than that; its reader takes half a minute for 40,000 of them.
_PART = r"""(?:(?<![\w-])[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{NESTED_MAX},}}")


def fault(error: BaseException) -> str:
    """Return what is wrong with such data, in words, by one of these errors."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    return str(error) if isinstance(error, ValueError | OverflowError) else "a value is of no use"


def check_file(path: Name, wanted: str) -> None:
    """Raise `InputError` for what is there and may never end, `OSError` for what is not."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:
        raise InputError(f"{path!r}: no file has such a name; name {wanted}") from None
    ends = stat.S_ISREG(mode) or stat.S_ISDIR(mode)  # a directory is refused by who opens it
    if not ends and not OPEN_ALREADY.fullmatch(os.fspath(path)):
        raise InputError(f"{path}: is no regular file; name {wanted}")


@contextmanager
def opened(path: Name, wanted: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for "-", for a block that reads it.

    Raises `InputError`, which ends in "name `wanted`", if it cannot be read or is not UTF-8 text.
    """
    name = _name(path)
    try:
        if name != path:
            if sys.stdin is None:
                raise InputError(CLOSED)
            yield sys.stdin.buffer
            return
        check_file(path, wanted)
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{name}: cannot be read ({why}); name {wanted}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name}: is not UTF-8 text; name {wanted}") from None


def read_bytes(path: Name, wanted: str, most: int = TEXT_BYTES_MAX) -> bytes:
    """Return the content of a file, or of standard input for "-"; `InputError` as `opened`, and for
    more than `most` bytes.
    """
    with opened(path, wanted) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{_name(path)}: is longer than {most >> 20} MiB; name {wanted}")
    return data


def read_text(path: Name, wanted: str, most: int = TEXT_BYTES_MAX) -> str:
    """Return the text of a file, or of standard input for "-", without a byte order mark;
    `InputError` as `read_bytes`.
    """
    data = read_bytes(path, wanted, most)
    try:
        return data.decode(TEXT)
    except UnicodeDecodeError:
        raise InputError(f"{_name(path)}: is not UTF-8 text; name {wanted}") from None


def _name(path: Name) -> Name:
    return "standard input" if os.fspath(path) == STANDARD_INPUT else path


def toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; `ValueError` for anything else."""
    if _DEEP_KEY.search(text):
        raise ValueError("nested too deeply")
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    check_depth(tables)
    return tables


def check_depth(value: Any, most: int = NESTED_MAX) -> None:
    """Raise `ValueError` for dicts and lists within more than `most` others: a file of a few bytes
    may nest so deep that whoever walks it runs out of stack.
    """
    if most == 0:
        raise ValueError("nested too deeply")
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            check_depth(each, most - 1)
