"""`mrc conformance`: rules of MRC, held against an implementation."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmrc.errors import InputError
from openmrc.newfile import write_whole

if TYPE_CHECKING:
    from openmrc.conform.script import Rule

TARGETS = {"engine": "openmrc's engine"}
ROLES = ("requester", "responder")


def add_command(commands: Any) -> argparse.ArgumentParser:
    """Add `conformance` to the subparsers of `mrc`, and return its parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "conformance",
        help="hold an implementation against the rules of MRC",
        description="Run scripted exchanges against an implementation: what is sent, what must"
        " come back, by when, and what must not. Exit status 1 if a rule fails.",
    )
    add = parser.add_argument
    add("--role", choices=ROLES, help="of the implementation (default: both)")
    words = "what to test: engine, openmrc's own in process (default)"
    add("--against", choices=tuple(TARGETS), default="engine", help=words)
    words = "only this rule; may be given several times"
    add("--rule", metavar="NAME", action="append", default=[], help=words)
    add("--list", action="store_true", help="print the rules and their sources, and run none")
    add("--page", metavar="FILE.html", type=Path, help="write a page")
    add("--junit", metavar="FILE.xml", type=Path, help="write JUnit XML")
    add("--json", action="store_true", help="print JSON and nothing else")
    parser.set_defaults(run=_conformance)
    return parser


def _conformance(arguments: argparse.Namespace) -> int:
    from openmrc.conform import plain, report
    from openmrc.conform.run import FAIL

    rules = _rules(arguments)
    if arguments.list:
        _list(rules, arguments.json)
        return 0
    target = TARGETS[arguments.against]
    outcomes = plain.outcomes(rules)
    if arguments.junit is not None:
        write_whole(arguments.junit, report.junit(outcomes, target), "--junit")
    if arguments.page is not None:
        write_whole(arguments.page, report.page(outcomes, target), "--page")
    if arguments.json:
        told = [each.as_dict() for each in outcomes]
        print(json.dumps({"target": target, "rules": told}))
    else:
        print("\n".join(report.lines(outcomes)))
    return int(any(each.outcome == FAIL for each in outcomes))


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    from openmrc.conform import script

    rules = script.rules(arguments.role)
    if not arguments.rule:
        return rules
    known = {rule.name: rule for rule in rules}
    for name in arguments.rule:
        if name not in known:
            raise InputError(f"--rule {name}: is no rule of this role; --list shows all")
    return [known[name] for name in arguments.rule]


def _list(rules: list[Rule], as_json: bool) -> None:
    if as_json:
        told = [{"rule": r.name, "role": r.role, "says": r.says, "source": r.source} for r in rules]
        print(json.dumps(told))
        return
    for rule in rules:
        print(f"{rule.role:10}  {rule.name}  ({rule.source})\n            {rule.says}")
