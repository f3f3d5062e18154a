"""`mrc ops alerts` and `mrc ops dashboard` print files that are shipped."""

from __future__ import annotations

import argparse
from typing import Any

FILES = {"alerts": "alerts.yml", "dashboard": "dashboard.json"}
HELPS = {
    "alerts": "print alert rules for Prometheus (YAML)",
    "dashboard": "print a dashboard that Grafana imports (JSON)",
}


def add_commands(parts: Any) -> None:
    """Add `alerts` and `dashboard` to the parts of `mrc ops`."""
    words = "Uses the metrics that mrc perf --metrics and openmrc.verbs.metrics serve."
    for name, about in HELPS.items():
        part = parts.add_parser(name, help=about, description=f"{about.capitalize()}. {words}")
        part.set_defaults(run=_print, what=name)


def _print(arguments: argparse.Namespace) -> int:
    print(text(arguments.what), end="")
    return 0


def text(what: str) -> str:
    """Return a file that is shipped: "alerts" or "dashboard"."""
    from importlib.resources import files

    return files(__package__).joinpath(FILES[what]).read_text(encoding="utf-8")
