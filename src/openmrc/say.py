"""Messages on standard error: lines for people, or with OPENMRC_LOG=json objects for machines."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

from openmrc.errors import InputError
from openmrc.printable import printable

VARIABLE = "OPENMRC_LOG"
PEOPLE, MACHINES = "text", "json"
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
            print(words, end=end, file=sys.stderr, flush=True)


def check() -> None:
    """Raise `InputError` for an unknown form of lines."""
    form = os.environ.get(VARIABLE, "")
    if form not in ("", PEOPLE, MACHINES):
        raise InputError(f"{VARIABLE}={form}: {PEOPLE} or {MACHINES} is accepted")


def _object(words: str) -> str:
    from datetime import UTC, datetime  # needed by few, and every command starts here

    level = "error" if words.startswith(ERROR) else "info"
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": time, "level": level, "message": words.removeprefix(ERROR)})
