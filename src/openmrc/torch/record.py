"""What a rank knows of its paths, written down while a job runs: the ground of `mrc why` after it.

`OPENMRC_RECORD=DIR` makes each rank append lines of JSON to DIR/rank-N.jsonl: who is there when it
joins, each path that is set aside or believed again, each port that goes down or comes up, and why
it left. What cannot be written is left out, and said once: a full disk ends no job.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from openmrc.say import say

VARIABLE = "OPENMRC_RECORD"
VERSION = 1


class Recorder:
    """Writes the lines of one rank; does nothing where nobody asked for it."""

    def __init__(self, rank: int) -> None:
        self._file: Any = None
        self._rank = rank
        if directory := os.environ.get(VARIABLE):
            try:
                Path(directory).mkdir(parents=True, exist_ok=True)
                path = Path(directory) / f"rank-{rank}.jsonl"
                self._file = path.open("a", encoding="utf-8", buffering=1)
            except OSError as error:
                self._stop(error)

    @property
    def writes(self) -> bool:
        """Whether anybody asked for it."""
        return self._file is not None

    def write(self, event: str, **more: Any) -> None:
        """Append a line: what happened, and when it was noticed (seconds since 1970)."""
        if self._file is None:
            return
        line = {"event": event, "t": round(time.time(), 6), "rank": self._rank, **more}
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _stop(self, error: OSError) -> None:
        self._file = None
        say(f"mrc: {VARIABLE}: rank {self._rank} writes nothing more ({error})")
