"""The data set: a directory of Parquet files, one for each run, named by the run's key.

runs/KEY.parquet         one row per transport: keys of the scenario, and figures
runs/KEY.failed.parquet  one row: which run failed, and why
flows/KEY.parquet        one row per transport and flow, if they are wanted
timeline/KEY.parquet     and further tables, one directory each (`extras`), if they are wanted

A file is written aside and renamed into place, so none is half there. A run that failed is tried
again by the next sweep.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from openmrc import version
from openmrc.errors import InputError, OutputError
from openmrc.reading import check_file
from openmrc.run.parquet import check_room
from openmrc.run.tables import FIGURES
from openmrc.sweeps.job import Outcome
from openmrc.sweeps.plan import Run, code_hash
from openmrc.sweeps.rows import failed_row, fault_types, key_types

# What reading another file raises.
BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)
AGAIN = "remove it, and the next sweep makes it again"
# The same columns whatever the scenario, so that parts of different sweeps form one data set.
SCHEMA: dict[str, Any] = {
    "run": str,
    "transport": str,
    "error": str,
    **FIGURES,
    **key_types(),
    "fault": pl.List(pl.Struct(pl.Schema(fault_types()))),
    "wall_s": float,
    "peak_rss_mb": float,
    "openmrc": str,
    "code": str,
}


class DataSet:
    """The results of sweeps in `directory`, with the flows of each run if `flows`, and with the
    tables of `extras` that `also` names.
    """

    def __init__(self, directory: Path, flows: bool, also: tuple[str, ...] = ()) -> None:
        self.directory, self.flows, self.also = directory, flows, also
        self._own: set[Path] = set()  # written here: nobody else has touched them

    def has(self, run: Run) -> bool:
        """True if the complete result of `run` is here."""
        folders = ("runs", *(["flows"] if self.flows else []), *self.also)
        return all((self.directory / folder / f"{run.key}.parquet").exists() for folder in folders)

    def write(self, run: Run, outcome: Outcome) -> None:
        """Store the outcome of `run`."""
        if outcome.error:
            row = failed_row(run.scenario, outcome.error)
            self._write(self._part(run, ".failed"), _parquet(run, [row]))
            return
        if self.flows:
            self._write(self.directory / "flows" / f"{run.key}.parquet", outcome.flows)
        for name in self.also:
            self._write(self.directory / name / f"{run.key}.parquet", outcome.also[name])
        self._write(self._part(run), _parquet(run, outcome.rows))
        self._part(run, ".failed").unlink(missing_ok=True)

    def read(self, runs: Iterable[Run]) -> pl.DataFrame:
        """Return the rows of `runs`, in their order; a run that is not here has none."""
        choices = ((self._part(run), self._part(run, ".failed")) for run in runs)
        parts = [part for done, failed in choices for part in [done if done.exists() else failed]]
        parts = [part for part in parts if part.exists()]
        with suppress(*BROKEN, InputError):
            for part in parts:
                if part not in self._own:
                    _check(part)
            table = pl.read_parquet(parts, glob=False)
            if table.schema == pl.Schema(SCHEMA):
                return table
        return pl.concat([_read(part, SCHEMA) for part in parts])

    def failure(self, run: Run) -> str | None:
        """Return why the last attempt of `run` failed; None if it did not, or there was none."""
        part = self._part(run, ".failed")
        return str(_read(part, SCHEMA)["error"].first()) if part.exists() else None

    def table(self, run: Run, name: str) -> pl.DataFrame:
        """Return "flows" or a table of `also` of a run that is here."""
        return _read(self.directory / name / f"{run.key}.parquet")

    def _part(self, run: Run, how: str = "") -> Path:
        return self.directory / "runs" / f"{run.key}{how}.parquet"

    def _write(self, path: Path, data: bytes) -> None:
        aside = self.directory / f".unfinished-{os.getpid()}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_bytes(data)
            aside.replace(path)
            self._own.add(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise OutputError(path, error, "what was written before is kept") from None


def _read(part: Path, schema: dict[str, Any] | None = None) -> pl.DataFrame:
    """Return a table of the data set, whose columns are those of `schema` if one is given."""
    try:
        _check(part)
        table = pl.read_parquet(part, glob=False)
    except BROKEN as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{part}: was not written by mrc sweep ({first}); {AGAIN}") from None
    for name, kind in {} if schema is None else pl.Schema(schema).items():
        if table.schema.get(name) != kind:
            has = table.schema.get(name, "nothing")
            raise InputError(f"{part}: column {name} holds {has}, not {kind}; {AGAIN}")
    return table if schema is None else table.select(*schema)


def _check(part: Path) -> None:
    """Raise `InputError`, `ValueError` or `OSError` for what must not be read."""
    check_file(part, "a directory of mrc sweep")
    check_room(part)


def _parquet(run: Run, rows: list[dict[str, Any]]) -> bytes:
    made_by = {"run": run.key, "openmrc": version.__version__, "code": code_hash()}
    table = pl.DataFrame([made_by | row for row in rows], schema=SCHEMA)
    stream = BytesIO()
    table.write_parquet(stream, statistics=False)
    return stream.getvalue()
