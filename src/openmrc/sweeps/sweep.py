"""sweep(scenario, over, out): every combination of the values, as one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.jit.beside import cores
from openmrc.jit.warmup import is_cached
from openmrc.report.directory import check_directory
from openmrc.report.progress import SweepBar, compiling
from openmrc.scenario.scenario import Scenario, as_scenario
from openmrc.sweeps.cluster import run_on_cluster
from openmrc.sweeps.here import WORKERS_MAX, run_here
from openmrc.sweeps.job import job_of
from openmrc.sweeps.plan import Over, Run, plan

if TYPE_CHECKING:
    import polars as pl


def sweep(
    scenario: Scenario | str | Path | Mapping[str, Any],
    over: Over,
    out: str | Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    flows: bool = False,
    progress: bool = True,
) -> pl.DataFrame:
    """Run `scenario` for every combination of the values in `over`; return one row per run and
    transport.

    `over` maps keys, as `Scenario.replace` takes them, to lists of values; or it is a list of
    dicts, one for each run. The data set is `out`/runs, a directory of Parquet files, one for each
    run, written as runs end; with `flows`, one row per flow goes to `out`/flows. Finished runs are
    not repeated, so a sweep that was stopped resumes when it is called again.

    Each run has a process of its own, `workers` at a time (one for each core), or goes to the Dask
    cluster whose scheduler is at the address `dask`. A run that fails is a row whose `error` says
    why; the others continue. The columns are the swept keys, `transport`, the figures of the
    summary by their place in it (`flows.fct_us.p100`), and every key of the scenario, with
    quantities as integers of bytes, bit/s and picoseconds. Raises `InputError`
    before anything is run if a value is refused. `progress` shows progress on standard error.
    """
    runs = plan(as_scenario(scenario), over)
    return run_all(runs, Path(out), workers=workers, dask=dask, flows=flows, progress=progress)


def run_all(
    runs: list[Run],
    out: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    flows: bool = False,
    progress: bool = True,
    also: tuple[str, ...] = (),
) -> pl.DataFrame:
    """Run those of `runs` that are not in `out` yet; return the rows of all, as `sweep` does.

    The data set also keeps the tables of `extras` that `also` names.
    """
    _check(out, workers, dask)
    from openmrc.sweeps.dataset import DataSet

    data = DataSet(out, flows, also)
    todo = {run.key: run for run in runs if not data.has(run)}
    jobs = (job_of(run, flows, also) for run in todo.values())
    if todo and dask is None and not is_cached("sim"):
        from openmrc.sim.warmup import warm_up_mrc

        warm_up_mrc(compiling if progress else None)
    outcomes = run_here(jobs, workers or cores()) if dask is None else run_on_cluster(jobs, dask)
    with SweepBar(len(runs), len(todo), out, progress) as bar, closing(outcomes):
        for job, outcome in outcomes if todo else ():
            data.write(todo[job.key], outcome)
            bar.update(described(todo[job.key].overrides), outcome.error)
    return _arranged(data.read(runs), runs)


def described(overrides: Mapping[str, Any]) -> str:
    """Return what distinguishes the run from the others, as in a shell."""
    return " ".join(f"{key}={value}" for key, value in overrides.items())


def swept_keys(runs: Iterable[Run]) -> list[str]:
    """Return every key that some run changes, in the order of the first."""
    return list(dict.fromkeys(key for run in runs for key in run.overrides))


def _check(out: Path, workers: int | None, dask: str | None) -> None:
    if workers is not None and dask is not None:
        raise InputError("workers: is for this machine; a Dask cluster has its own, leave it out")
    if workers is not None and not 1 <= workers <= WORKERS_MAX:
        raise InputError(f"workers: {workers}; accepted: 1 to {WORKERS_MAX}")
    check_directory(out, "out")


def _arranged(table: pl.DataFrame, runs: list[Run]) -> pl.DataFrame:
    """Swept keys come first; a key of one transport or fault gets a column as given."""
    import polars as pl

    from openmrc.run.tables import Table

    keys = swept_keys(runs)
    given = {
        key: _one_type([run.overrides.get(key) for run in runs])
        for key in keys
        if key not in table.columns
    }
    if given:
        added = pl.DataFrame({"run": [run.key for run in runs]} | given)
        table = table.join(added, on="run", how="left", maintain_order="left")
    first = list(dict.fromkeys([*keys, "transport", "error", *table.columns]))
    return Table(table.select(first))


def _one_type(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) <= 1 else [None if v is None else str(v) for v in values]
