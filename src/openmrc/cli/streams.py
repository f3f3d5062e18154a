"""Standard output and standard error as a command needs them, whatever the shell made of them."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from io import TextIOWrapper

from openmrc.errors import OutputError

STDOUT = "standard output"
# What a write to an output without a name can meet: full, over a quota or limit, broken, closed.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Let everything be printed: what a terminal's encoding lacks is escaped, a closed standard
    error swallows all. Raises `OutputError` where there is no standard output.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    if sys.stdout is None:
        raise OutputError(STDOUT, "it is closed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def hush() -> None:
    """Let what is still to be printed vanish: there is nobody, or no room, to take it."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def described(error: OSError) -> str:
    """Return what the system refused, as a line."""
    why = error.strerror or str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {why}"
    if error.errno in WRITE_ERRORS:
        return str(OutputError(STDOUT, error))
    return f"the system refused something: {why}"
