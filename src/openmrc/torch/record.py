"""What a rank knows of its paths, recorded while a job runs: the basis of `mrc why` after it.

`OPENMRC_RECORD=DIR` makes each rank append lines of JSON to DIR/rank-N.jsonl: its peers when it
joins, each path that is set aside or returns to service, each port that goes down or comes up, and
why it left. Lines that cannot be written are left out, with one warning: a full disk ends no job.
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
    """Writes the lines of one rank; does nothing unless requested."""

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
        """Whether records were requested."""
        return self._file is not None

    def write(self, event: str, **more: Any) -> None:
        """Append a line: the event, and when it was noticed (seconds since 1970)."""
        if self._file is None:
            return
        line = {"event": event, "t": round(time.time(), 6), "rank": self._rank, **more}
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._stop(error)

    def close(self) -> None:
        """Stop writing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _stop(self, error: OSError) -> None:
        self._file = None
        say(f"mrc: {VARIABLE}: rank {self._rank} writes nothing more ({error})")
