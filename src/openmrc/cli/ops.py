"""`mrc ops`: what runs beside a fabric: agents, their controller, alerts and a dashboard."""

from __future__ import annotations

import argparse
from typing import Any

from openmrc.nics import command as nics
from openmrc.ops.mapper import command as mapper
from openmrc.ops.telemetry import command as telemetry


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `ops` and its parts; none prints JSON on request."""
    ops = commands.add_parser(
        "ops",
        help="probe every link from its hosts, collect the reports, watch them",
        description="What runs beside a fabric: docs/operators.md.",
    )
    metavar = "agent|nic|evs|controller|alerts|dashboard"
    parts = ops.add_subparsers(dest="part", required=True, metavar=metavar)
    mapper.add_commands(parts)
    nics.add_commands(parts)
    telemetry.add_commands(parts)
    return []
