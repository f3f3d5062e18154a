"""A results directory as it is read: each file checked, all of one run.

The files of a run carry its identity (`run.results.Result.identity`): `summary.json` as "run",
Parquet files in their metadata, `scenario.toml` in its first line, `report.html` in its head. So a
file of another run is never taken for one of this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from openmrc.errors import InputError
from openmrc.reading import check_depth, check_file, read_text, toml
from openmrc.run.columns import TABLES, Limits, read_table
from openmrc.run.summary import SUMMARY as FORM

if TYPE_CHECKING:
    import polars as pl

SUMMARY, SCENARIO, PAGE, PICTURE = "summary.json", "scenario.toml", "report.html", "goodput.png"
PARQUET = tuple(f"{name}.parquet" for name in ("timeline", *TABLES))
FILES = (SUMMARY, SCENARIO, PAGE, PICTURE, *PARQUET)  # that a run owns in its directory
IDENTITY = "openmrc.run"  # the key in the metadata of a Parquet file
FIRST_LINE = "# run "  # of scenario.toml, followed by the identity
WANTED = "a directory that mrc run --out has written"


def named(scenario_toml: str, identity: str) -> str:
    """Return the text of `scenario.toml` with the run that it is of."""
    return f"{FIRST_LINE}{identity}\n{scenario_toml}"


@dataclass(frozen=True)
class Saved:
    """What `mrc run --out` wrote into a directory. Everything raises `InputError` for files that
    are not there, were not written so, or are of another run.
    """

    directory: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The object of `summary.json`, which has all that `run.summary` describes."""
        found: dict[str, Any] = self._parsed(SUMMARY, _summary)
        if found.get("run") is None:
            raise InputError(
                f"{self.directory / SUMMARY}: does not name its run, an older openmrc wrote it;"
                f" run it again (mrc run {self.directory / SCENARIO})"
            )
        return found

    @cached_property
    def scenario(self) -> dict[str, Any]:
        """The tables of `scenario.toml`."""
        said, tables = self._parsed(SCENARIO, _scenario)
        self._check(SCENARIO, said)
        found: dict[str, Any] = tables
        return found

    def has(self, table: str) -> bool:
        """Whether there is a file of this table."""
        return (self.directory / f"{table}.parquet").exists()

    def check_tables(self) -> None:
        """Raise `InputError` if any table is of another run."""
        for name in PARQUET:
            if (self.directory / name).exists():
                said = self._says(name)
                if said is not None:
                    self._check(name, said)

    def table(self, name: str, limits: Limits) -> pl.DataFrame:
        """Return a table, all of whose values are within `limits`."""
        file = f"{name}.parquet"
        said = self._says(file)
        if said is not None:  # before values, which another run may well have other ones of
            self._check(file, said)
        found = read_table(self._there(file), TABLES[name], limits)
        self._check(file, said)
        return found

    def _says(self, name: str) -> str | None:
        """The run that a Parquet file says it is of."""
        import polars as pl

        file = self._there(name)
        try:
            return pl.read_parquet_metadata(file).get(IDENTITY)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
            raise _foreign(file, str(error).partition("\n")[0]) from None

    def _check(self, name: str, said: str | None) -> None:
        run = self.summary["run"]
        if said == run:
            return
        says = f"is of run {said}" if said is not None else "does not say of which run it is"
        raise InputError(
            f"{self.directory / name}: {says}, {SUMMARY} is of run {run};"
            f" run it again (mrc run {self.directory / SCENARIO})"
        )

    def _there(self, name: str) -> Path:
        """The file, which is one: what is a pipe or a device would be read for ever."""
        file = self.directory / name
        try:
            check_file(file, WANTED)
        except FileNotFoundError:
            words = f"has no {name}" if self.directory.exists() else "is not there"
            raise InputError(f"{self.directory}: {words}; name {WANTED}") from None
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}; name {WANTED}") from None
        return file

    def _parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        file = self._there(name)
        text = read_text(file, WANTED)
        try:
            return parse(text)
        except RecursionError:
            raise _foreign(file, "nested too deeply") from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise _foreign(file, str(error)) from None


def _foreign(file: Path, why: str) -> InputError:
    return InputError(f"{file}: was not written by mrc run --out ({why}); run it again")


def _summary(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text, parse_constant=_no_number)
    check_depth(found)
    msgspec.convert(found, FORM)
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _scenario(text: str) -> tuple[str | None, dict[str, Any]]:
    """The run that a scenario says it is of, and its tables."""
    first = text.partition("\n")[0].rstrip()
    said = first.removeprefix(FIRST_LINE) if first.startswith(FIRST_LINE) else None
    return said, toml(text)
