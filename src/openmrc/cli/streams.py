"""Standard output and standard error as a command needs them, however the shell set them up."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from openmrc.errors import OutputError
from openmrc.printable import PrintableStream

STDOUT = "standard output"
# Errors of a write to an output without a name: full, over a quota or limit, broken, closed.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


@contextmanager
def prepared() -> Iterator[None]:
    """Within, everything is printable: characters that a terminal obeys, or that its encoding
    lacks, are escaped; a closed standard error discards its output. Raises `OutputError` if there
    is no standard output.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    if sys.stdout is None:
        raise OutputError(STDOUT, "it is closed")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    before = sys.stdout
    sys.stdout = PrintableStream(before)
    try:
        yield
    finally:
        sys.stdout = before


def hush(number: int = 1) -> None:
    """Discard remaining output, or messages (2): there is no reader, or no room."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, (sys.stdout if number == 1 else sys.stderr).fileno())
        os.close(null)


def forget_messages() -> None:
    """Discard what standard error did not take, with which Python would end in a status of its
    own.
    """
    try:
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        hush(2)


def is_nowhere(error: OSError) -> bool:
    """Whether an error says that the directory in which the command runs has been removed."""
    return error.errno == errno.ENOENT and error.filename is None


def described(error: OSError) -> str:
    """Return the system's error, as a line."""
    why = error.strerror or str(error)
    if is_nowhere(error):
        return "the current directory is gone; cd to one that exists"
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {why}"
    if error.errno in WRITE_ERRORS:
        return str(OutputError(STDOUT, error))
    return f"the system refused something: {why}"
