"""Jobs on the cores of this machine.

Workers are started as commands, not through `multiprocessing`: that would run the caller's script
again in each of them, and require `if __name__ == "__main__"` around every sweep.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection, Pipe, wait

from openmrc.jit.cache import PACKAGE
from openmrc.sweeps.job import Job, Outcome

WORKERS_MAX = 1024  # two file descriptors each
# The cores are busy with runs: libraries that start a thread for each make them slower.
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)


def run_here(jobs: Iterable[Job], workers: int) -> Generator[tuple[Job, Outcome], None, None]:
    """Run `jobs` in `workers` processes; yield each outcome as it arrives.

    If the caller stops iterating, for whatever reason, no process is left behind.
    """
    waiting = iter(jobs)
    busy: dict[Connection, _Worker] = {}
    try:
        for job in islice(waiting, workers):
            worker = _Worker(job)
            busy[worker.connection] = worker
        while busy:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                job, outcome = worker.take()
                following = next(waiting, None)
                if following is None or not worker.give(following):
                    del busy[worker.connection]
                    worker.end()
                    if following is not None:
                        worker = _Worker(following)
                        busy[worker.connection] = worker
                yield job, outcome
    finally:
        for worker in busy.values():
            worker.end()


class _Worker:
    """A process and its current job."""

    def __init__(self, job: Job) -> None:
        self.connection, theirs = Pipe()
        package = str(PACKAGE.parent)  # the same code, wherever the caller imported it from
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "openmrc.sweeps.worker", str(theirs.fileno())],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the sweep, which then ends its workers
        )
        theirs.close()
        self.give(job)

    def give(self, job: Job) -> bool:
        """Send the next job; False if the worker is gone."""
        self._job = job
        with suppress(BrokenPipeError):
            self.connection.send(job)
            return True
        return False

    def take(self) -> tuple[Job, Outcome]:
        """Return the job and its outcome, once the connection is readable."""
        try:
            return self._job, self.connection.recv()
        except (EOFError, ConnectionResetError):
            status = self._process.wait()
            return self._job, Outcome(error=f"its worker ended with status {status}")

    def end(self) -> None:
        """End the worker, and the run that it may be executing."""
        self.connection.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
