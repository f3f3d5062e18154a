"""Real processes, on the cores of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest

from openmrc.jit import interpreted
from openmrc.scenario.scenario import Scenario
from openmrc.sweeps import worker
from openmrc.sweeps.here import run_here
from openmrc.sweeps.job import Job, Outcome, job_of
from openmrc.sweeps.plan import plan

PATIENCE_S = 120  # for a run to begin
GONE_S = 15  # a third of what an endless run takes


def jobs(scenario: Scenario, seeds: range) -> list[Job]:
    return [job_of(run, flows=False) for run in plan(scenario, {"seed": seeds})]


def endless(scenario: Scenario) -> Scenario:
    return scenario.replace({"workload.size": "300GB", "stop.time": "100s"})


def children(parent: int) -> list[int]:
    """Workers of a sweep, or the run of a worker."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            of = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if of == parent and b"openmrc.sweeps.worker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def running(sweep: int) -> list[tuple[int, int]]:
    """(worker, the run it is in) below the process `sweep`."""
    return [(worker, run) for worker in children(sweep) for run in children(worker)]


def wait_for(found: Callable[[], object], patience_s: int = PATIENCE_S) -> None:
    limit = time.monotonic() + patience_s
    while not found():
        assert time.monotonic() < limit
        time.sleep(0.02)


def errors_when(kill: Callable[[int, int], None], asked: list[Job]) -> list[str]:
    """One worker gets `asked`; `kill(worker, run)` is called in the middle of the first."""

    def hit() -> None:
        wait_for(lambda: running(os.getpid()))
        kill(*running(os.getpid())[0])

    killer = threading.Thread(target=hit)
    killer.start()
    with closing(run_here(asked, 1)) as outcomes:
        errors = [outcome.error for _, outcome in outcomes]
    killer.join()
    return errors


def test_every_job_is_answered_and_no_process_left(small: Scenario) -> None:
    asked = jobs(small, range(5))
    with closing(run_here(asked, 2)) as outcomes:
        answers = {job.key: outcome for job, outcome in outcomes}
    assert [outcome.error for outcome in answers.values()] == [""] * 5
    rows = [row for job in asked for row in answers[job.key].rows]
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["flows.completed"] for row in rows] == [1] * 5
    assert children(os.getpid()) == []


def test_a_run_that_is_killed_costs_that_run_alone(small: Scenario) -> None:
    asked = [*jobs(endless(small), range(1)), *jobs(small, range(2))]
    assert errors_when(lambda worker, run: os.kill(run, signal.SIGKILL), asked) == [
        "its process was ended by SIGKILL; perhaps out of memory",
        "",
        "",
    ]


def test_a_worker_that_is_killed_is_replaced(small: Scenario) -> None:
    asked = [*jobs(endless(small), range(1)), *jobs(small, range(2))]
    assert errors_when(lambda worker, run: os.killpg(worker, signal.SIGKILL), asked) == [
        "its worker ended with status -9",
        "",
        "",
    ]


def test_who_stops_reading_leaves_no_process_behind(small: Scenario) -> None:
    outcomes = run_here([*jobs(small, range(1)), *jobs(endless(small), range(1, 4))], 2)
    _, outcome = next(outcomes)
    assert outcome.error == ""
    pids = [pid for pair in running(os.getpid()) for pid in pair]
    assert len(children(os.getpid())) == 2
    outcomes.close()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), GONE_S)


def test_a_worker_whose_answer_nobody_takes_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "simulate", lambda _: None)
    monkeypatch.setattr(worker, "rows", lambda _: None)
    ours, theirs = Pipe()
    theirs.send(Outcome(error=""))
    ours.close()  # with the answer in it, as when a disk is full: theirs is reset
    with pytest.raises(ConnectionResetError):
        theirs.recv()
    ours, theirs = Pipe()
    theirs.send(Outcome(error=""))
    ours.close()
    worker.serve(theirs)


@pytest.mark.skipif(interpreted(), reason="a run looks up each 300,000 events: too seldom")
def test_a_sweep_that_is_killed_leaves_no_process_behind(small: Scenario, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(endless(small).to_toml())
    command = [sys.executable, "-m", "openmrc.cli", "sweep", "x.toml", "--over", "seed=1..4"]
    sweep = subprocess.Popen([*command, "--out", "d", "--workers", "1"], cwd=tmp_path)
    wait_for(lambda: running(sweep.pid))
    pids = running(sweep.pid)[0]
    sweep.kill()
    sweep.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), GONE_S)
