"""The command `mrc doctor`: what of the live world this machine can run, why not, what to type."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_command(commands: Any) -> Any:
    """Add `doctor` to the parser; returns its own."""
    doctor = commands.add_parser(
        "doctor",
        help="what of the live world this machine can run, and what to type if not",
        description="Tries what the live world needs: packet sockets, namespaces, Linux's SRv6.",
    )
    doctor.set_defaults(run=_doctor)
    return doctor


def _doctor(arguments: argparse.Namespace) -> int:
    """Print one line a use; 0 if all can be had, else 1."""
    from openmrc.live.lab.needs import examine, lacking

    findings = examine()
    lacks = lacking(findings)
    if arguments.json:
        print(
            json.dumps(
                {
                    "uses": {
                        use: {"can": not lines, "lacks": lines} for use, lines in lacks.items()
                    },
                    "checks": [
                        {"need": need, "lacks": line, "took_s": round(took_s, 4)}
                        for need, line, took_s in findings
                    ],
                },
                indent=2,
            )
        )
    else:
        for use, lines in lacks.items():
            print(f"{use:12} {'no' if lines else 'yes'}")
            for line in lines:
                print(f"{'':12} {line}")
    return 1 if any(lacks.values()) else 0
