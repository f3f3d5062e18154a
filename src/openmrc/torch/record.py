"""What a rank knows of its paths, recorded while a job runs: the basis of `mrc why` after it.

`OPENMRC_RECORD=DIR` makes each rank append lines of JSON to DIR/rank-N.jsonl: its peers when it
joins, each path that is avoided or returns to service, each port that goes down or comes up, and
why it left. Each line names the job, so that those of two are never read as one. Lines that cannot
be written are left out, with one warning: a full disk ends no job.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from openmrc.say import say

VARIABLE = "OPENMRC_RECORD"
VERSION = 2
NAME_DIGITS = 20  # 80 bits: no two jobs share a name by chance


class Recorder:
    """Writes the lines of one rank; does nothing unless requested."""

    def __init__(self, rank: int) -> None:
        self._file: Any = None
        self._rank = rank
        self._job = ""
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

    def join(self, secret: bytes, **there: Any) -> None:
        """Begin with who is there. The secret of the ranks names the job: all of them have it, and
        no other job does.
        """
        self._job = hashlib.sha256(b"openmrc job " + secret).hexdigest()[:NAME_DIGITS]
        self.write("joined", version=VERSION, **there)

    def write(self, event: str, **more: Any) -> None:
        """Append a line: the event, and when it was noticed (seconds since 1970). A rank that has
        not joined has nothing to tell.
        """
        if self._file is None or not self._job:
            return
        noticed = {"event": event, "t": round(time.time(), 6), "rank": self._rank}
        line = {"job": self._job, **noticed, **more}
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
