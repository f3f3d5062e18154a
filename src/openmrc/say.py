"""Words for people, on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress


def say(words: str, end: str = "\n") -> None:
    """Say one line; where nobody can hear it, a run goes on without."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(words, end=end, file=sys.stderr, flush=True)
