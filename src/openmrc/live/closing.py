"""Objects that are closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base for everything that has `close()`: a `with` block calls it, however the block ends."""

    def close(self) -> None:
        """Release all resources."""
        raise NotImplementedError  # each class holds different ones

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
