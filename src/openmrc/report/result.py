"""What Python gets of a run: a result that shows itself, and can be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.newfile import write_whole
from openmrc.run import results, simulation
from openmrc.sim.watch.forms import NATIVE

if TYPE_CHECKING:
    from openmrc.scenario.scenario import Scenario


@dataclass(frozen=True, repr=False)
class Result(results.Result):
    """All transports of one scenario, in its order: data frames, a table, a page, a directory."""

    def save(self, directory: str | Path) -> None:
        """Write the results directory, as `mrc run --out` does.

        Raises `InputError` for what is no directory, `OutputError` for what cannot be written.
        """
        from openmrc.report.directory import check_directory
        from openmrc.report.files import write_results

        check_directory(Path(directory), "save")
        write_results(self, Path(directory))

    def report(self, path: str | Path) -> None:
        """Write `report.html` alone, to a file of this name; an older one is replaced.

        What the run looked like over time is in it if `simulate` was called with `sampled=True`.
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


def simulate(
    scenario: Scenario | str | Path | Mapping[str, Any],
    progress: Callable[[simulation.Step], None] | None = None,
    compiling: Callable[[str, int, int], None] | None = None,
    pcap: Path | None = None,
    at: Sequence[str] = ("everywhere",),
    sampled: bool = False,
    frames: str = NATIVE,
) -> Result:
    """Run every transport of `scenario`, one after the other, and return what came of it.

    `scenario` may also be the name of a file, or dicts as `make_scenario` takes them.
    Everything is checked before the first one starts (`InputError`). Ctrl-C ends the run and
    returns what there is, marked partial. `compiling(what, step, steps)` is called before each
    step of a first compilation, which takes up to two minutes. What crosses the links `at` these
    places is written to `pcap`, or to one file for each transport, as `frames` says: "native",
    "ipv4", "ipv6". `sampled` keeps what the pictures of `report.html` show, as `[report]` says; it
    changes nothing else.
    """
    result = simulation.simulate(scenario, progress, compiling, pcap, at, sampled, frames)
    return Result(**{each.name: getattr(result, each.name) for each in fields(result)})
