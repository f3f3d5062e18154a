"""All commands of `mrc`, in groups, and how their errors and their help read."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from textwrap import wrap
from typing import Any, NoReturn

from openmrc.capi import command as capi
from openmrc.cli import (
    about,
    bench,
    compare,
    completion,
    decode,
    doctor,
    init,
    lab,
    ops,
    policy,
    run,
    secret,
    sweep,
)
from openmrc.conform import command as conformance
from openmrc.day import command as day
from openmrc.errors import InputError
from openmrc.ops import command as why
from openmrc.ops.export import command as switches
from openmrc.paper import command as paper
from openmrc.perf import command as perf
from openmrc.planning import command as plan
from openmrc.soak import command as soak
from openmrc.zoom import command as zoom

# Each module adds one command or two, and returns the parsers that take --json.
GROUPS = {
    "Simulate": (init, run, sweep, compare, policy, plan, day, zoom),
    "Real frames": (lab, perf, decode, secret, doctor),
    "Implementers": (conformance, capi),
    "Operators": (why, ops, switches),
    "Project": (bench, soak, paper, completion, about),
}
EXAMPLES = """examples:
  mrc demo                            one all-reduce, three transports, links cut; a picture
  mrc init first.toml                 write a commented scenario
  mrc run first.toml --out results    run it; results/report.html is a page to look at
  mrc run first.toml --set fabric.nics=128 --json
  mrc sweep first.toml --over transport.pmtu=2048,4096 --over seed=1..5 --out swept
  mrc plan --gpus 65536               switches, optics, power, cost and failures, by arithmetic
  mrc help COMMAND                    every option of a command"""
NAME_WIDTH, WIDTH = 14, 100


class Parser(argparse.ArgumentParser):
    """argparse that reports errors in one line, like every other bad input."""

    def error(self, message: str) -> NoReturn:
        """Raise `InputError` with the message, and what may be meant."""
        wrong = re.search(r"(.*invalid choice: )'(.*)' \(choose from (.*)\)", message)
        if wrong is not None:
            known = re.findall(r"[\w-]+", wrong[3])
            accepted = f"accepted: {', '.join(known)}"
            message = f"{wrong[1]}{wrong[2]!r};{_did_you_mean(wrong[2], known)} {accepted}"
        raise InputError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but a command reports unknown options under its own name."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [text for action in self._actions for text in action.option_strings]
            near = _did_you_mean(unknown[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near and ';'}{near}")
        return parsed, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse does, but a failure to print help is an error like any other."""
        (file or sys.stderr).write(message)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f" did you mean {near[0]!r}?" if near else ""


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="mrc",
        usage="mrc COMMAND ...",
        description="MRC, Multipath Reliable Connection: simulate fabrics packet by packet,\n"
        "run the protocol over real frames, decode captures.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=about.version_line())
    commands = parser.add_subparsers(
        dest="command", prog="mrc", required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )
    groups: dict[str, list[str]] = {}
    for group, modules in GROUPS.items():
        before = len(commands.choices)
        for module in modules:
            for each in module.add_command(commands):
                each.add_argument("--json", action="store_true", help="print JSON and nothing else")
        groups[group] = list(commands.choices)[before:]
    helps = {each.dest: each.help or "" for each in commands._choices_actions}
    parser.epilog = "\n".join((*_grouped(groups, helps), EXAMPLES))
    parser.set_defaults(parser=parser)
    return parser


def _grouped(groups: Mapping[str, Sequence[str]], helps: Mapping[str, str]) -> Iterator[str]:
    """The lines of the help that list all commands."""
    indent = " " * (2 + NAME_WIDTH)
    for group, names in groups.items():
        yield f"{group}:"
        for name in names:
            first = f"  {name:{NAME_WIDTH}}"
            yield from wrap(helps[name], WIDTH, initial_indent=first, subsequent_indent=indent)
        yield ""
