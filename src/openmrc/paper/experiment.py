"""What an experiment is: its cases, what was published, and how its runs are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.verdict import Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
