"""One run of a sweep, as sent to where it is run, and its outcome."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openmrc.errors import OpenMrcError
from openmrc.sweeps.plan import Run, code_hash


@dataclass(frozen=True)
class Job:
    """A run as text: independent of the process and, except for files that it names, of the
    machine.
    """

    key: str
    toml: str
    source: str  # how errors name the scenario
    code: str  # the code that must run it
    flows: bool  # whether the flows are requested too
    also: tuple[str, ...] = ()  # further tables of `extras`


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: rows of the data set, or why there are none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    flows: bytes = b""  # as Parquet
    error: str = ""
    also: dict[str, bytes] = field(default_factory=dict)  # further tables, as Parquet


def job_of(run: Run, flows: bool, also: tuple[str, ...] = ()) -> Job:
    """Return the job that executes `run`."""
    scenario = run.scenario
    return Job(run.key, scenario.to_toml(), scenario.source, code_hash(), flows, also)


def run_job(job: Job, progress: Callable[[Any], None] | None = None) -> Outcome:
    """Simulate; any error becomes part of the outcome, on one line."""
    from openmrc.run.simulation import simulate
    from openmrc.scenario.scenario import parse_scenario
    from openmrc.sweeps import extras
    from openmrc.sweeps.rows import rows

    if code_hash() != job.code:
        return Outcome(error=f"the code here is {code_hash()}, not {job.code}; install the same")
    try:
        scenario = parse_scenario(job.toml, source=job.source, base=Path("/"))
        result = simulate(scenario, progress, sampled=extras.needs_samples(job.also), threads=1)
        if result.partial:
            return Outcome(error="interrupted")
        flows = extras.flows(result, job.key) if job.flows else b""
        return Outcome(rows(result), flows, also=extras.tables(result, job.also))
    except OpenMrcError as error:
        return Outcome(error=str(error))
    except Exception as error:  # a bug, or out of memory: of this run, not of the others
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(at.filename).name}:{at.lineno}"
        return Outcome(error=" ".join(f"{type(error).__name__}: {error} (at {place})".split()))
