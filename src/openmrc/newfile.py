"""A file that openmrc makes where a user says: whole, and in place of another only if asked to."""

from __future__ import annotations

import os
from pathlib import Path

from openmrc.errors import InputError, OutputError

NO_PLACE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def write_new(file: Path, text: str, said_by: str = "") -> None:
    """Write `text` to a file that is not there yet; a device or a pipe takes it as it is.

    Raises `InputError` for a file that is there or cannot be, with the option `said_by` in front,
    and `OutputError` for one that there is no room for.
    """
    place = f"{said_by} {file}".strip()
    there = file.exists() and not file.is_file()
    try:
        with file.open("w" if there else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise InputError(f"{place}: already exists; name another file, or remove it") from None
    except NO_PLACE as error:
        raise InputError(f"{place}: cannot be written ({error.strerror}); name a file") from None
    except OSError as error:
        if not there:
            file.unlink(missing_ok=True)
        raise OutputError(place, error, "name another file") from None


def write_whole(file: Path, content: str | bytes, said_by: str = "") -> None:
    """Write text or bytes to a file, in place of one that is there: aside first, so none is half.

    Raises `InputError` for a file that cannot be, `OutputError` for one that there is no room for.
    """
    place = f"{said_by} {file}".strip()
    there = file.exists() and not file.is_file()
    aside = file if there else file.with_name(f".unfinished-{os.getpid()}-{file.name}")
    try:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        if not there:
            aside.replace(file)
    except NO_PLACE as error:
        raise InputError(f"{place}: cannot be written ({error.strerror}); name a file") from None
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise OutputError(place, error, "name another file") from None
