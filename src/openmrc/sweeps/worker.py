"""A worker: loads the simulator once, then forks for each run that it is given.

So each run has a process of its own, which returns all memory at its end, and starts in
milliseconds. A run that is killed, for instance for lack of memory, costs that run alone. The fork
is safe: the worker has one thread, and never loads libraries that start others.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from openmrc.run.simulation import simulate
from openmrc.scenario.scenario import make_scenario
from openmrc.sweeps.job import Job, Outcome, run_job
from openmrc.sweeps.rows import rows

REHEARSAL = {"fabric": {"nics": 2, "t0_down": 2}, "workload": {"kind": "stream", "size": "100kB"}}


def serve(sweep: Connection[Outcome, Job]) -> None:
    """Run the jobs that `sweep` sends until it disconnects; answer with `Outcome`s."""
    rows(simulate(make_scenario(REHEARSAL)))  # loads everything, so that no fork has to
    with suppress(EOFError, ConnectionError):  # the sweep has gone, perhaps with an answer unread
        while True:
            sweep.send(_in_a_fork(sweep.recv(), sweep))


def _in_a_fork(job: Job, sweep: Connection[Any, Any]) -> Outcome:
    ours, childs = Pipe(duplex=False)
    child = os.fork()
    if not child:
        _run(job, childs, sweep)
    childs.close()
    try:
        outcome: Outcome = ours.recv()
    except (EOFError, OSError):
        outcome = Outcome(error="")
    ours.close()
    _, status = os.waitpid(child, 0)
    return outcome if status == 0 else Outcome(error=_how_it_ended(status))


def _run(job: Job, answer: Connection[Any, Any], sweep: Connection[Any, Any]) -> None:
    """The body of the child; it must not return into the worker's code."""

    def nobody_waits(_: object) -> None:
        if sweep.poll():  # no job arrives before this one's answer: the sweep has gone
            os._exit(1)

    try:
        answer.send(run_job(job, nobody_waits))
        os._exit(0)
    finally:
        os._exit(1)


def _how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"its process ended with status {code}"
    hint = "; perhaps out of memory" if -code == signal.SIGKILL else ""
    return f"its process was ended by {signal.Signals(-code).name}{hint}"


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
