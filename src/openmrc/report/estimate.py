"""What a run will take, as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openmrc.report.progress import duration
from openmrc.say import counted

if TYPE_CHECKING:
    from openmrc.run.estimate import Estimate
    from openmrc.scenario.scenario import Scenario


def sentences(scenario: Scenario, found: Sequence[Estimate]) -> list[str]:
    """Return a line for each transport, and further notes."""
    lines = [_line(each) for each in found]
    known = {each.transport for each in found}
    missing = [section.name for section in scenario.transports if section.name not in known]
    if missing:
        lines.append(
            f"{', '.join(missing)}: no estimate; what RoCEv2 costs is not known before a run."
        )
    if any(each.ends_early for each in found):
        lines.append("The run has a stop.time, so it may be over sooner.")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if any(each.memory_bytes > machine for each in found):
        lines.append(f"This machine has {machine / 1e9:.1f} GB of memory: it does not fit.")
    return lines


def _line(one: Estimate) -> str:
    building = f", {duration(one.build_s)} of them building," if one.build_s >= 0.5 else ""
    million = round(one.link_traversals / 1e6)
    crossed = f"{million:,} million" if million > 1 else f"{one.link_traversals:,.0f}"
    return (
        f"{one.transport}: about {duration(max(one.wall_s, 1))} of one core{building} and"
        f" {one.memory_bytes / 1e9:,.1f} GB; estimated, for {counted(one.nics, 'NIC')},"
        f" {counted(one.qps, 'queue pair')} and {crossed} link traversals."
    )
