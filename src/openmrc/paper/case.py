"""The scenarios of an experiment, and all runs of one setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from openmrc.scenario.scenario import Scenario, load_scenario
from openmrc.sweeps.plan import Run, plan

SHIPPED_AS = "examples/paper"  # in a clone; the command finds them in the package
FEW = 3  # seeds of long runs
SEVERAL = 5


@dataclass(frozen=True)
class Case:
    """Some runs of one scenario file: all seeds of one setting.

    `quick` is what the reduced set changes further; it has one seed, 1 unless that says otherwise.
    `keep` names what is kept of each run in addition to its figures: "flows", "timeline", "steps",
    "paths".
    """

    tag: str
    file: str
    change: dict[str, Any] = field(default_factory=dict)
    seeds: int = SEVERAL
    keep: tuple[str, ...] = ()
    quick: dict[str, Any] | None = field(default_factory=dict)  # None: not in the reduced set

    def runs(self, quick: bool) -> list[Run]:
        """Return its runs; none if the reduced set does not have it."""
        if quick and self.quick is None:
            return []
        if quick:
            points = [{"seed": 1} | self.change | (self.quick or {})]
        else:
            points = [self.change | {"seed": seed} for seed in range(1, self.seeds + 1)]
        return plan(scenario(self.file), points)


def folder() -> Path:
    """Return the directory of the experiments' scenario files, which are part of the package."""
    return Path(str(files("openmrc.scenario").joinpath("files/paper")))


def scenario(file: str) -> Scenario:
    """Return the scenario of a file of that directory, named without its suffix."""
    return load_scenario(folder() / f"{file}.toml")
