"""The result of a scenario: all of its transports, as objects, tables and an exit status."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc import version
from openmrc.ending import EXIT_INTERRUPTED
from openmrc.printable import printable
from openmrc.run.figures import without_measured
from openmrc.run.outcome import TransportResult
from openmrc.units import fmt_time

if TYPE_CHECKING:
    import polars as pl

    from openmrc.scenario.scenario import Scenario

SHOWN = 4  # transports in the line of a result
IDENTITY_DIGITS = 20  # 80 bits: no two runs share one by chance
# Exit statuses. 2, bad input, never reaches a Result.
EXIT_OK, EXIT_UNFINISHED, EXIT_BAD_INPUT = 0, 1, 2


@dataclass(frozen=True, repr=False)
class Result:
    """All transports of one scenario, in its order."""

    scenario: Scenario
    transports: tuple[TransportResult, ...]
    partial: bool
    wall_s: float
    fault_marks: Sequence[tuple[int, str]] = field(default=())

    def __repr__(self) -> str:
        """One short line: the transports, and when each finished."""
        times = (
            f"{run.name} " + ("unfinished" if run.finish_ps is None else fmt_time(run.finish_ps))
            for run in self.transports[:SHOWN]
        )
        more = ", ..." if len(self.transports) > SHOWN else ""
        partial = ", partial" if self.partial else ""
        return printable(f"<Result of {self.title}{partial}: {', '.join(times)}{more}>")

    @property
    def title(self) -> str:
        """The scenario's name and seed, and the level if that is not the packet."""
        level = "" if self.scenario.level == "packet" else f", {self.scenario.level} level"
        return f"{self.scenario.name}, seed {self.scenario.seed}{level}"

    @cached_property
    def identity(self) -> str:
        """A name of the run, which all its files carry: a hash of the scenario and of what came
        out. Two runs with the same one are the same, wherever and however fast they ran.
        """
        digest = hashlib.sha256(f"{version.__version__} {self.partial}\n".encode())
        digest.update(self.scenario.to_toml().encode(errors="surrogatepass"))
        for run in self.transports:
            summary = json.dumps(without_measured(run.summary()))
            digest.update(f"{json.dumps(run.name)} {summary}\n".encode())
            for name, column in run.flows.items():
                digest.update(name.encode() + column.tobytes())
        return digest.hexdigest()[:IDENTITY_DIGITS]

    @property
    def exit_status(self) -> int:
        """0; 1 if a flow failed, a job died, or a flow is unfinished without a stated end; 130 if
        interrupted.
        """
        if self.partial:
            return EXIT_INTERRUPTED
        planned = self.scenario.stop.time is not None
        if any(
            run.n_failed or run.died or (run.n_unfinished and not planned)
            for run in self.transports
        ):
            return EXIT_UNFINISHED
        return EXIT_OK

    @property
    def flows(self) -> pl.DataFrame:
        """One row per transport and flow, as in `flows.parquet`; times in us."""
        return self._stacked("flow_table")

    @property
    def timeline(self) -> pl.DataFrame:
        """One row per transport and bin of simulated time, as in `timeline.parquet`."""
        return self._stacked("time_table")

    @property
    def steps(self) -> pl.DataFrame:
        """One row per transport and step of a training job, as in `steps.parquet`; times in us."""
        return self._stacked("step_table")

    @property
    def events(self) -> pl.DataFrame:
        """One row per transport and event of a path, as in `events.parquet`; times in us."""
        return self._stacked("event_table")

    @property
    def paths(self) -> pl.DataFrame:
        """One row per transport, bin of time and path that lost packets, as in `paths.parquet`."""
        return self._stacked("path_table")

    @property
    def account(self) -> pl.DataFrame:
        """One row per transport and packet or probe that was judged lost, or probe that was
        answered, as in `account.parquet`; times in us.
        """
        return self._stacked("account_table")

    @property
    def counts(self) -> pl.DataFrame:
        """One row per transport, tick and directed port in use, as in `counts.parquet`."""
        return self._stacked("count_table")

    @property
    def figures(self) -> pl.DataFrame:
        """One row per transport: the summary's figures, named by their place in it
        (`flows.fct_us.p100`).
        """
        return self._stacked("figure_table")

    def _stacked(self, table: str) -> pl.DataFrame:
        """Stack this table of all transports."""
        from openmrc.run import tables

        return tables.stacked(map(getattr(tables, table), self.transports))

    def summary(self) -> dict[str, Any]:
        """Return the object of `summary.json`."""
        return {
            "scenario": self.scenario.name,
            "seed": self.scenario.seed,
            "level": self.scenario.level,
            "openmrc": version.__version__,
            "run": self.identity,
            "partial": self.partial,
            "wall_s": round(self.wall_s, 3),
            "peak_rss_mb": round(peak_rss_mb(), 1),
            "transports": {run.name: run.summary() for run in self.transports},
        }


def peak_rss_mb() -> float:
    """Return this process's largest resident memory so far, in 10^6 bytes.

    `VmHWM` belongs to this program alone; `ru_maxrss` survives exec and shows the parent's memory
    in a small child.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    except (OSError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
