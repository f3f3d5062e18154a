"""The runs of one experiment as its reader needs them: by the tag of a case, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.paper.case import Case
from openmrc.scenario.scenario import Scenario
from openmrc.sweeps.dataset import DataSet
from openmrc.sweeps.plan import Run

if TYPE_CHECKING:
    import polars as pl


class Data:
    """The part of the data set `directory` that belongs to these cases."""

    def __init__(self, directory: Path, cases: Sequence[Case], quick: bool) -> None:
        self.directory, self.quick = directory, quick
        self._cases = {case.tag: case for case in cases}
        self._runs = {case.tag: case.runs(quick) for case in cases}

    @property
    def tags(self) -> list[str]:
        """The cases that are run, in their order."""
        return [tag for tag, runs in self._runs.items() if runs]

    def complete(self) -> bool:
        """Whether every run is there."""
        return all(self._set(tag).has(run) for tag, runs in self._runs.items() for run in runs)

    def error(self) -> str | None:
        """Return why a run failed; None if none did."""
        for tag, runs in self._runs.items():
            for run in runs:
                if not self._set(tag).has(run) and (said := self._set(tag).failure(run)):
                    return f"{tag}, seed {run.scenario.seed}: {said}"
        return None

    def rows(self, tag: str, transport: str | None = None) -> list[dict[str, Any]]:
        """Return the figures of each seed, as a sweep names them; of one transport if named."""
        rows: list[dict[str, Any]] = []
        for run in self._runs[tag]:
            rows += self._set(tag).read([run]).iter_rows(named=True)
        return [row for row in rows if transport in (None, row["transport"])]

    def scenarios(self, tag: str) -> list[Scenario]:
        """Return the scenario of each seed."""
        return [run.scenario for run in self._runs[tag]]

    def values(self, tag: str, key: str, transport: str | None = None) -> list[float]:
        """Return one figure of each seed; seeds without it are left out."""
        found = [row[key] for row in self.rows(tag, transport)]
        return [float(value) for value in found if value is not None]

    def tables(self, tag: str, name: str, transport: str | None = None) -> list[pl.DataFrame]:
        """Return "flows", "timeline", "steps" or "paths" of each seed."""
        import polars as pl

        data = self._set(tag)
        tables = [data.table(run, name) for run in self._runs[tag]]
        if transport is None:
            return tables
        return [table.filter(pl.col("transport") == transport) for table in tables]

    def _set(self, tag: str) -> DataSet:
        return data_set(self.directory, self._cases[tag].keep)


def data_set(directory: Path, keep: Sequence[str]) -> DataSet:
    """Return the data set that keeps these tables in addition to the figures."""
    return DataSet(directory, "flows" in keep, tuple(name for name in keep if name != "flows"))


def runs_to_make(cases: Sequence[Case], quick: bool) -> dict[tuple[str, ...], list[Run]]:
    """Return all runs of the cases, grouped by the tables to keep of them."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for case in cases:
        groups.setdefault(case.keep, []).extend(case.runs(quick))
    return {keep: runs for keep, runs in groups.items() if runs}
