"""Files of captures: their names, and how they are written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from openmrc.errors import OutputError
from openmrc.reading import STANDARD_INPUT as STANDARD_OUTPUT

# Characters that a file name cannot hold, or that are unreadable in one; and their substitute.
_NOT_IN_A_NAME = re.compile(r"[/%\x00-\x1f\x7f]")


def pcap_paths(pcap: Path | None, names: Sequence[str]) -> dict[str, Path]:
    """Return the capture file of each transport: `pcap`, or for several "OUT-NAME.pcapng" each."""
    if pcap is None:
        return {}
    if len(names) == 1:
        return {names[0]: pcap}
    return {name: pcap.with_name(f"{pcap.stem}-{_in_a_name(name)}{pcap.suffix}") for name in names}


def _in_a_name(label: str) -> str:
    return _NOT_IN_A_NAME.sub(lambda found: f"%{ord(found[0]):02X}", label)


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Open a capture for writing: to a temporary file, which is renamed into place when it is
    complete, or after Ctrl-C. Any other end leaves the previous file.

    A device or a pipe is written directly, "-" is standard output. Raises `OutputError` for what
    cannot be written.
    """
    if str(path) == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    there = path.exists() and not path.is_file()
    aside = path if there else path.with_name(f".unfinished-{os.getpid()}-{path.name}")
    keep = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as stream:
                yield stream
            keep = True
        except KeyboardInterrupt:
            keep = True
            raise
        finally:
            if keep and not there:
                aside.replace(path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"--pcap {path}", error, "name a file with room for it") from None
    finally:
        if not there:
            aside.unlink(missing_ok=True)
