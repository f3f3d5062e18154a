"""Messages on standard error: lines for people, or with OPENMRC_LOG=json objects for machines; and
how numbers read in them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from openmrc.errors import InputError
from openmrc.printable import printable

VARIABLE = "OPENMRC_LOG"
PEOPLE, MACHINES = "text", "json"
WHOLE = 1e6  # from here on nobody reads the fraction
ERROR = "mrc: "  # prefix of a message that ends a command
CLEAR = "\r\x1b[K"  # on a terminal, empties the line


def say(words: str, end: str = "\n", over: bool = False) -> None:
    """Print one line, made printable; if it cannot be written, the run continues.

    Parts of a line, such as a growing bar, are for people only. `over`: on a terminal, in place of
    the part of a line that is there.
    """
    if os.environ.get(VARIABLE) == MACHINES:
        if end != "\n":
            return
        words = _object(words)
    else:
        words = f"{CLEAR * over}{printable(words)}"
    if sys.stderr is not None:
        with suppress(OSError):
            print(words + end, end="", file=sys.stderr, flush=True)  # whole, of several threads


def check() -> None:
    """Raise `InputError` for an unknown form of lines."""
    form = os.environ.get(VARIABLE, "")
    if form not in ("", PEOPLE, MACHINES):
        raise InputError(f"{VARIABLE}={form}: {PEOPLE} or {MACHINES} is accepted")


def counted(n: int, noun: str, nouns: str = "") -> str:
    """Return "1 plane", "2 planes" or "1,024 planes"; `nouns` where it is not the noun and an s."""
    return f"{n:,} {noun if n == 1 else nouns or f'{noun}s'}"


def number(value: float) -> str:
    """Return a number as people write it: "1,073,741,824", "0.01", never "1.07e+09"."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= WHOLE else f"{value:.6g}"


def written(value: Any) -> str:
    """Return a value as a TOML file has it: "true", not "True"; text in single quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {written(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written, value))}]"
    return str(value.isoformat()) if hasattr(value, "isoformat") else repr(value)


def _object(words: str) -> str:
    from datetime import UTC, datetime  # needed by few, and every command starts here

    level = "error" if words.startswith(ERROR) else "info"
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": time, "level": level, "message": words.removeprefix(ERROR)})
