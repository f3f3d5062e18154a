"""The definition of an experiment: its cases, what was published, and how its runs are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openmrc.paper.case import Case
from openmrc.paper.data import Data
from openmrc.paper.verdict import Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Finding:
    """The results of an experiment: rows of the table, the content of its figure, and text.

    `drawn` is plain JSON: it is stored beside the page, so that a figure can be drawn again without
    a run. It is None if an older page stored none; its figure then stays unchanged.
    """

    checks: Sequence[Check]
    drawn: Any
    words: Sequence[str] = ()
    code: str | None = None  # hash of the code that made its runs; None: not known


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
    draw: Callable[[Any], Figure]  # of what `read` found for it

    @property
    def files(self) -> list[str]:
        """Its scenario files, each once."""
        return list(dict.fromkeys(case.file for case in self.cases))
