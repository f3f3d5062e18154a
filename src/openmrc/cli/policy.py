"""`mrc policy`: what a user's policy sees of the engine, and checks of one."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from openmrc.ending import EXIT_INTERRUPTED
from openmrc.printable import printable
from openmrc.say import counted

EXIT_FAULTS = 1


def add_command(commands: Any) -> list[argparse.ArgumentParser]:
    """Add `policy`; return the parsers that take --json."""
    policy = commands.add_parser(
        "policy",
        help="check a congestion control or path selection of your own",
        description="Policies of your own: docs/policies.md.",
    )
    parts = policy.add_subparsers(dest="part", required=True, metavar="PART")
    check: argparse.ArgumentParser = parts.add_parser(
        "check",
        help="read, run uncompiled and compile a policy",
        description="Report misspelt fields by line; run the policy uncompiled in a small fabric,"
        " where exceptions and writes out of bounds are reported and Ctrl-C ends an endless loop;"
        " then compile it.",
    )
    check.add_argument("file", metavar="FILE.py[:NAME]", help="a policy, or one function of it")
    check.set_defaults(run=_check)
    fields: argparse.ArgumentParser = parts.add_parser(
        "fields", help="the fields that a policy reads, with meaning and unit"
    )
    fields.set_defaults(run=_fields)
    return [check, fields]


def _check(arguments: argparse.Namespace) -> int:
    """Print the findings; 0 if the policy can be run, 1 if not."""
    from openmrc.policies.check import check

    checked = check(arguments.file)
    if arguments.json:
        told = {
            "file": str(checked.file),
            "functions": checked.roles,
            "sound": checked.is_sound,
            "findings": [finding._asdict() for finding in checked.findings],
            "trouble": checked.trouble or None,
            "run": checked.run,
        }
        print(json.dumps(told, indent=2))
    else:
        for line in checked.lines():
            print(printable(line))
        for role, name in checked.roles.items() if checked.is_sound else ():
            print(f"{name}: {_counted(role, checked.run)}; compiles")
    if checked.interrupted:
        return EXIT_INTERRUPTED
    return 0 if checked.is_sound else EXIT_FAULTS


def _counted(role: str, run: dict[str, Any]) -> str:
    calls = run["calls"]
    words = f"called {counted(calls.get(role, 0), 'time')} uncompiled"
    if role == "step":
        kinds = (
            f"{calls.get(f'step {kind}', 0):,} {kind}" for kind in ("SACKs", "trims", "losses")
        )
        words += f" ({', '.join(kinds)})"
        if run["window_bytes"]:
            low, high = run["window_bytes"]
            words += f", window {low / 1e3:,.1f} to {high / 1e3:,.1f} kB"
    elif "learn" in calls:
        words += f", learn {counted(calls['learn'], 'time')}"
    return words


def _fields(arguments: argparse.Namespace) -> int:
    """Print the fields of each record that a policy sees."""
    from openmrc.policies.fields import VISIBLE
    from openmrc.tabular import Column, print_table

    if arguments.json:
        told = {
            record: {name: field._asdict() for name, field in fields.items()}
            for record, (_, fields) in VISIBLE.items()
        }
        print(json.dumps(told, indent=2))
        return 0
    columns = [
        Column("field", words=True),
        Column("unit", words=True),
        Column("meaning", words=True),
    ]
    for record, (_, fields) in VISIBLE.items():
        rows = [(name, field.unit, field.meaning) for name, field in fields.items()]
        print_table(record, columns, rows, sys.stdout)
    return 0
