"""Reads a file that a user names to its end, if it has one."""

from __future__ import annotations

import os
import sys
from typing import Any

from openmrc.errors import InputError

STANDARD_INPUT = "-"  # as shells name it
CLOSED = "standard input: is closed; name a file, or leave it open"
# UTF-8, with or without the mark that editors and shells of Windows put before it.
TEXT = "utf-8-sig"
# Thousands of faults make a megabyte; longer input has no end (/dev/zero), or is something else.
TEXT_BYTES_MAX = 64 << 20
NESTED_MAX = 32  # tables within tables; a scenario has four


def read_bytes(path: str | os.PathLike[str], most: int = TEXT_BYTES_MAX) -> bytes:
    """Return the content of a file, or of standard input for "-".

    Raises `InputError` for one of more than `most` bytes, and `OSError` where it cannot be read.
    """
    if str(path) == STANDARD_INPUT:
        path = "standard input"
        if sys.stdin is None:
            raise InputError(CLOSED)
        data = sys.stdin.buffer.read(most + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{path}: is longer than {most >> 20} MiB; name the right file")
    return data


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, or of standard input for "-", without a byte order mark.

    Raises `InputError` and `OSError` as `read_bytes` does, `UnicodeDecodeError` for other text than
    UTF-8.
    """
    return read_bytes(path).decode(TEXT)


def check_depth(value: Any, most: int = NESTED_MAX) -> None:
    """Raise `ValueError` for dicts and lists within more than `most` others: a file of a few bytes
    may nest so deep that whoever walks it runs out of stack.
    """
    if most == 0:
        raise ValueError("nested too deeply")
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            check_depth(each, most - 1)
