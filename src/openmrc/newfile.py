"""Creates files at places that a user names: never partial, and never in place of another unless
asked.
"""

from __future__ import annotations

import os
from pathlib import Path

from openmrc.errors import InputError, OutputError

NO_PLACE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def write_new(file: Path, text: str, said_by: str = "") -> None:
    """Write `text` to a file that does not exist yet; a device or a pipe is written directly.

    Raises `InputError`, which begins with the option `said_by`, for a file that exists or cannot be
    created, and `OutputError` if there is no room.
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
    """Write text or bytes to a file, replacing an existing one: first to a temporary file, so that
    none is partial.

    Raises `InputError` for a file that cannot be created, `OutputError` if there is no room.
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
