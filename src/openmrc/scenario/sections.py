"""The tables of a scenario file: every key with its type, limits and default.

This module has what all have in common, and the small tables; each other has a file of its own. A
key that would have no effect (`planes` of a fat tree) is not part of that kind, and so unknown
there. None means `"auto"`: derived at start. A Struct's own checks raise ValueError that begins
with the key (".rate: ..."), which `toml` completes with the place. docs/scenario.md describes the
keys.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from openmrc.scenario.toml import Time

# 16 times the largest installation published (131,072 NICs); larger arrays do not fit a machine.
NICS_MAX = 2_097_152

Count = Annotated[int, Meta(ge=1, le=NICS_MAX)]
Nics = Annotated[int, Meta(ge=2, le=NICS_MAX)]
NicId = Annotated[int, Meta(ge=0, lt=NICS_MAX)]
Share = Annotated[float, Meta(ge=0, le=1)]
Label = Annotated[str, Meta(min_length=1, max_length=100)]
Level = Literal["packet", "flow"]  # docs/flow.md


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the tables."""


class StopSection(Section, frozen=True, kw_only=True):
    """`[stop]`: the simulated time at which the run ends as planned; `"auto"` when all is done."""

    time: Time | None = None


class ReportSection(Section, frozen=True, kw_only=True):
    """`[report]`: what `report.html` shows, where results are written."""

    qp: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    samples: Annotated[int, Meta(ge=20, le=1000)] = 500


class Header(Section, frozen=True, kw_only=True):
    """The keys above all tables."""

    name: Label
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    level: Level = "packet"
