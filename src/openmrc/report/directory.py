"""Checks the results directory before a long run starts."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from openmrc.errors import InputError


def check_directory(directory: Path, said_by: str = "--out") -> None:
    """Raise `InputError` unless `directory` can be written, or created."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{said_by} {directory}: is a file; name a directory")
    nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        Path(mkdtemp(dir=nearest)).rmdir()
    except OSError:
        raise InputError(
            f"{said_by} {directory}: {nearest} cannot be written; name another directory"
        ) from None
