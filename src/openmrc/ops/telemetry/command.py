"""`mrc telemetry`: prints the alert rules, or the dashboard, that are shipped."""

from __future__ import annotations

import argparse
from typing import Any

FILES = {"alerts": "alerts.yml", "dashboard": "dashboard.json"}


def add_command(commands: Any) -> None:
    """Add `telemetry` to the parser."""
    telemetry = commands.add_parser(
        "telemetry",
        help="print alert rules for Prometheus, or a dashboard for Grafana",
        description="Both use the metrics that mrc perf --metrics and openmrc.verbs.metrics serve.",
    )
    words = "rules of Prometheus (YAML), or a dashboard that Grafana imports (JSON)"
    telemetry.add_argument("what", choices=list(FILES), help=words)
    telemetry.set_defaults(run=_telemetry)


def _telemetry(arguments: argparse.Namespace) -> int:
    print(text(arguments.what), end="")
    return 0


def text(what: str) -> str:
    """Return a file that is shipped: "alerts" or "dashboard"."""
    from importlib.resources import files

    return files(__package__).joinpath(FILES[what]).read_text(encoding="utf-8")
