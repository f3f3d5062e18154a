"""What an experiment is: its scenarios, what was published, and how its runs are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.paper.verdict import Check
from openmrc.scenario import Scenario, load_scenario
from openmrc.sweeps.plan import Run, plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from openmrc.paper.data import Data

SHIPPED_AS = "examples/paper"  # in a clone; the command finds them in the package
FEW = 3  # seeds of what takes long
SEVERAL = 5


@dataclass(frozen=True)
class Case:
    """Some runs of one scenario file: all seeds of one setting.

    `quick` is what the reduced set changes further; it has one seed, 1 unless that says otherwise.
    `keep` names what is kept of each run beside its figures: "flows", "timeline", "steps",
    "paths".
    """

    tag: str
    file: str
    change: dict[str, Any] = field(default_factory=dict)
    seeds: int = SEVERAL
    keep: tuple[str, ...] = ()
    quick: dict[str, Any] | None = field(default_factory=dict)  # None: not in the reduced set

    def runs(self, quick: bool) -> list[Run]:
        """Return its runs; none if the reduced set is without it."""
        if quick and self.quick is None:
            return []
        if quick:
            points = [{"seed": 1} | self.change | (self.quick or {})]
        else:
            points = [self.change | {"seed": seed} for seed in range(1, self.seeds + 1)]
        return plan(scenario(self.file), points)


@dataclass(frozen=True)
class Finding:
    """What came of an experiment: rows of the table, its figure, and words about it."""

    checks: Sequence[Check]
    figure: Figure
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Experiment:
    """One published experiment. Texts are Markdown, a paragraph each."""

    name: str  # the row of the reference, such as "B6"
    title: str
    original: str  # where it was published
    claim: str
    scaled: str  # what is smaller here, and why the comparison still holds
    cases: Sequence[Case]
    read: Callable[[Data], Finding]

    @property
    def files(self) -> list[str]:
        """Its scenario files, each once."""
        return list(dict.fromkeys(case.file for case in self.cases))


def folder() -> Path:
    """Return where the scenario files of the experiments are: they are part of the package."""
    return Path(str(files("openmrc").joinpath("scenarios/paper")))


def scenario(file: str) -> Scenario:
    """Return the scenario of a file of that folder, named without its ending."""
    return load_scenario(folder() / f"{file}.toml")
