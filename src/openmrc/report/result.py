"""The result of a run in Python: it shows itself as a table, and can be saved."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import ParamSpec

from openmrc.newfile import write_whole
from openmrc.run import results, simulation

Told = ParamSpec("Told")


@dataclass(frozen=True, repr=False)
class Result(results.Result):
    """All transports of one scenario, in its order: data frames, a table, a page, a directory."""

    def save(self, directory: str | Path) -> None:
        """Write the results directory, as `mrc run --out` does.

        Raises `InputError` if `directory` is not one, `OutputError` if it cannot be written.
        """
        from openmrc.report.directory import check_directory
        from openmrc.report.files import write_results

        check_directory(Path(directory), "save")
        write_results(self, Path(directory))

    def report(self, path: str | Path) -> None:
        """Write `report.html` alone, to `path`; an existing file is replaced.

        It shows the run over time if `simulate` was called with `sampled=True`.
        Raises `InputError` and `OutputError` as `save` does.
        """
        from openmrc.report.page import html

        write_whole(Path(path), html(self), "report")

    def _repr_html_(self) -> str:
        """The table of `mrc run`, for notebooks."""
        from openmrc.report.page import table_of
        from openmrc.report.table import sentences

        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(self))
        return f"<p>{escape(self.title)}</p>{table_of(self)}{said}"


def _shown(run: Callable[Told, results.Result]) -> Callable[Told, Result]:
    """Return the same function, whose result shows itself."""

    @functools.wraps(run)
    def shown(*args: Told.args, **named: Told.kwargs) -> Result:
        result = run(*args, **named)
        return Result(**{each.name: getattr(result, each.name) for each in fields(result)})

    shown.__module__ = __name__  # where it is found by name, also by pickle
    return shown


simulate = _shown(simulation.simulate)
