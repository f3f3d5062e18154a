"""Makes text of others safe for a terminal: names in files may hold anything.

An escape sequence moves the cursor, changes the window's title or types for the user; a bell rings;
a mark of direction shows a line backwards; a line break makes two lines of one. Such characters are
shown as Python writes them: `\\x1b`, `\\u202e`, `\\n`.
"""

from __future__ import annotations

from typing import IO, Any

LINES = "\n\t"  # what lays out text of several lines


def printable(text: str, layout: str = "") -> str:
    """Return `text` with every character escaped that is neither printable nor in `layout`:
    controls (C0 and C1), marks of direction and of no width, halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in layout else _escaped(c) for c in text)


class PrintableStream:
    """A text stream on which everything is made printable, lines apart. What draws, as a table
    does, writes to `unfiltered`, and makes its own texts printable.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """As a stream does."""
        self.unfiltered.write(printable(text, LINES))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """As a stream does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
